package safetensors

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ParseRanges parses ranges as Python writes them in brackets, one for each leading dimension,
// joined by commas: "3:, -1, ::2" is From(3), At(-1), All().By(2). It accepts the output of
// Range.String, and blanks around numbers, colons and commas. An empty text has no ranges, so that
// Slice selects the whole tensor.
//
// A step below 1, an ellipsis, None, and everything else that is not a range of integers are
// errors. Slice checks whether the ranges fit a tensor.
func ParseRanges(text string) ([]Range, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	fields := strings.Split(text, ",")
	ranges := make([]Range, len(fields))
	for i, field := range fields {
		r, err := parseRange(field)
		if err != nil {
			return nil, prefixed(fmt.Errorf("range %d of %s: %w", i+1, quote(text), err))
		}
		ranges[i] = r
	}
	return ranges, nil
}

// parseRange parses "index" or "start:stop:step". In the latter, everything except the first
// colon may be left out.
func parseRange(text string) (Range, error) {
	parts := strings.Split(text, ":")
	numbers := make([]int, len(parts))
	for i, part := range parts {
		part = strings.TrimSpace(part)
		parts[i] = part
		if part == "" {
			continue
		}
		n, err := strconv.Atoi(part)
		if errors.Is(err, strconv.ErrSyntax) {
			return Range{}, fmt.Errorf("%s is not an integer", quote(part))
		}
		if err != nil {
			return Range{}, fmt.Errorf("%s: %w", quote(part), errors.Unwrap(err))
		}
		numbers[i] = n
	}
	switch {
	case len(parts) > 3:
		return Range{}, errors.New("it has more than two colons")
	case len(parts) == 1 && parts[0] == "":
		return Range{}, errors.New("it is empty")
	case len(parts) == 1:
		return At(numbers[0]), nil
	}
	r := All()
	switch {
	case parts[1] != "":
		r = Span(numbers[0], numbers[1]) // if there is no start, it is 0
	case parts[0] != "":
		r = From(numbers[0])
	}
	if len(parts) < 3 || parts[2] == "" {
		return r, nil
	}
	if numbers[2] < 1 {
		return Range{}, fmt.Errorf("the step %d is below 1", numbers[2])
	}
	return r.By(numbers[2]), nil
}
