package pattern

import (
	"fmt"
	"slices"
	"strings"
)

// Suggest returns a question with the nearest of names, to be printed after a name that is not
// among them: ", did you mean …?". It returns "" if none is near.
func Suggest(name string, names []string) string { return question(Nearest(name, names)) }

// question returns the question that Suggest returns for the nearest name, or "" if there is none.
func question(nearest string) string {
	if nearest == "" {
		return ""
	}
	return fmt.Sprintf(", did you mean %q?", nearest)
}

// Nearest returns the nearest of names to a name, or "" if none is near.
func Nearest(name string, names []string) string {
	best, distance := "", len(name)/3+1 // a candidate at this distance or a greater one is a different name
	for _, candidate := range names {
		if d := Distance(strings.ToLower(name), strings.ToLower(candidate), distance); d < distance {
			best, distance = candidate, d
		}
	}
	longer := slices.IndexFunc(names, func(candidate string) bool {
		return strings.HasPrefix(candidate, name) || strings.Contains(candidate+".", "."+name+".") || strings.Contains(candidate+".", "/"+name+".")
	})
	switch {
	case best != "":
		return best
	case len(name) < 3 || longer < 0:
		return ""
	}
	return names[longer]
}

// Distance returns how many changes turn a into b: a byte is inserted, removed or replaced, or two
// neighbors are exchanged, as in "modle" (the optimal string alignment; Levenshtein, 1966, and
// Damerau, 1964). If that number is at least the limit most, Distance returns the limit.
func Distance(a, b string, most int) int {
	if len(a)-len(b) >= most || len(b)-len(a) >= most {
		return most
	}
	earlier, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		earlier, last, row = last, row, earlier
		row[0] = i + 1
		least := row[0]
		for j := range len(b) {
			cost := last[j]
			if a[i] != b[j] {
				cost = 1 + min(last[j], row[j], last[j+1])
				if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
					cost = min(cost, 1+earlier[j-1])
				}
			}
			row[j+1] = cost
			least = min(least, cost)
		}
		if least >= most {
			return most
		}
	}
	return min(row[len(b)], most)
}
