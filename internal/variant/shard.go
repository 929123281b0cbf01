package variant

import (
	"fmt"
	"math/rand/v2"
	"path"
	"strconv"
	"strings"
)

// A Shard is the name of one file of a sharded model, split into its parts:
//
//	model-00001-of-00003.safetensors
//	model.123456789-00001-of-00003.safetensors
//	model.fp16-00001-of-00003.safetensors
//	model-00001-of-00003.fp16.safetensors
//
// Two shards belong to one set if their Set methods return equal values.
type Shard struct {
	Stem    string // "model"
	Variant string // "fp16", or "" if there is none
	Save    string // the nine digits of NewSave, or "" if there are none
	Number  string // at least five digits
	Count   string // at least five digits
	Ending  string // ".safetensors"

	late bool // whether the variant follows the count, as in older checkpoints
}

// IsOnly reports whether the shard is number 1 of 1.
func (s Shard) IsOnly() bool {
	n, err := strconv.Atoi(s.Count)
	return err == nil && n == 1
}

// ParseShard splits the name of a shard. It returns false for any other name.
func ParseShard(name string) (s Shard, ok bool) {
	s.Ending = path.Ext(name)
	base := strings.TrimSuffix(name, s.Ending)
	stem, ok := s.cutNumbers(base)
	if !ok {
		base, s.Variant = cutVariant(base)
		s.late = true
		if stem, ok = s.cutNumbers(base); !ok || s.Variant == "" {
			return Shard{}, false
		}
	}
	s.Stem, s.Save = cutSave(stem)
	if stem, variant := cutVariant(s.Stem); variant != "" && !s.late {
		s.Stem, s.Variant = stem, variant
	}
	return s, true
}

// cutNumbers cuts the number and the count off the end of a name, and stores them in s.
func (s *Shard) cutNumbers(name string) (stem string, ok bool) {
	of := strings.LastIndex(name, "-of-")
	if of < 0 {
		return "", false
	}
	dash := strings.LastIndexByte(name[:of], '-')
	if dash < 1 {
		return "", false
	}
	s.Number, s.Count = name[dash+1:of], name[of+len("-of-"):]
	return name[:dash], isNumber(s.Number) && isNumber(s.Count)
}

// String returns the name that ParseShard splits into s.
func (s Shard) String() string {
	name := s.Stem
	if !s.late {
		name = join(name, s.Variant)
	}
	name = fmt.Sprintf("%s-%s-of-%s", join(name, s.Save), s.Number, s.Count)
	if s.late {
		name = join(name, s.Variant)
	}
	return name + s.Ending
}

// Set returns s without its Number: the part of the name that all shards of a set have in common.
func (s Shard) Set() Shard {
	s.Number = ""
	return s
}

// SetOf returns the number of shards in the set to which all files belong, and the names of those
// that are missing. It returns 0 if the files do not belong to one set. If the set has more than most
// shards, it returns no names, because a name may claim any number.
func SetOf(files []string, most int) (n int, missing []string) {
	var first Shard
	have := make(map[int]bool)
	for _, name := range files {
		s, ok := ParseShard(name)
		if !ok || len(have) > 0 && s.Set() != first.Set() {
			return 0, nil
		}
		first = s
		i, _ := strconv.Atoi(s.Number)
		have[i] = true
	}
	n, _ = strconv.Atoi(first.Count)
	for i := 1; i <= n && n <= most; i++ {
		if !have[i] {
			first.Number = fmt.Sprintf("%05d", i)
			missing = append(missing, first.String())
		}
	}
	return n, missing
}

// MissingShards returns the text of the error for n shards of which some are missing. Each name
// appears as text returns it.
func MissingShards(n int, missing []string, text func(name string) string) string {
	verb := "are"
	if len(missing) == 1 {
		verb = "is"
	}
	return fmt.Sprintf("%d of %d shards %s missing: %s", len(missing), n, verb, List(missing, 10, text))
}

// NewSave returns nine random digits. A save puts them into the names of its shards, so that these
// do not replace the shards of another save.
func NewSave() string { return fmt.Sprint(100_000_000 + rand.IntN(900_000_000)) }

// WithSave returns the name of a file with the digits of a save. If the name already has such
// digits, the new ones replace them.
func WithSave(name, save string) string {
	if s, ok := ParseShard(name); ok {
		s.Save = save
		return s.String()
	}
	ending := path.Ext(name)
	stem, _ := cutSave(strings.TrimSuffix(name, ending))
	return join(stem, save) + ending
}

// IsRank reports whether HuggingFaceStorageWriter of PyTorch gives such a name to the file of one
// rank of a job, for example shard-00001-model-00001-of-00001.safetensors.
func IsRank(name string) bool {
	after, _ := strings.CutPrefix(name, "shard-")
	number, rest, _ := strings.Cut(after, "-")
	stem, ok := strings.CutSuffix(rest, ".safetensors")
	return after != name && isNumber(number) && ok && stem != ""
}

// isNumber reports whether text is the number of a shard, which has at least five digits.
func isNumber(text string) bool { return len(text) >= 5 && isDigits(text) }

func isDigits(text string) bool { return strings.Trim(text, "0123456789") == "" }

// cutSave cuts the digits of a save off the end of a name, if there are any.
func cutSave(name string) (before, save string) {
	at := len(name) - len(".123456789")
	if at < 1 || name[at] != '.' || !isDigits(name[at+1:]) {
		return name, ""
	}
	return name[:at], name[at+1:]
}

// join appends a part to a name, after a dot, unless the part is empty.
func join(name, part string) string {
	if part == "" {
		return name
	}
	return name + "." + part
}
