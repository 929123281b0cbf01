package checkpoint

import (
	"fmt"
	"slices"
)

// A Rule is the kind of a [Finding]. The values are stable: programs may compare them.
type Rule string

// The rules that Check knows.
const (
	Unreadable Rule = "unreadable" // a file breaks a rule of its format, or has another format than its name indicates
	Missing    Rule = "missing"    // a shard, a tensor of the index, a part of a set, or a component is not there
	Copies     Rule = "copies"     // a tensor is stored twice, and the two are not alike
	Unlisted   Rule = "unlisted"   // a shard has tensors, or the directory has shards, that the index does not name
	Ambiguous  Rule = "ambiguous"  // there are two checkpoints: the reader decides which one it opens
	NoIndex    Rule = "no-index"   // there are shards without an index: some readers find no model
	Config     Rule = "config"     // config.json, or another config, contradicts the tensors
)

// A Finding is something that two readers of a directory could see differently, or that is
// missing.
type Finding struct {
	Rule   Rule
	Files  []string // relative to the name that was checked, slash-separated; the one that Open opens comes first
	Tensor string   // "" if no single tensor is concerned
	Text   string   // one sentence for people, which names the files; names in it are quoted and cut
}

// String returns the rule and the text.
func (f Finding) String() string { return fmt.Sprintf("%s: %s", f.Rule, f.Text) }

// A tally collects the tensors for findings that each name two files.
type tally struct {
	keys    [][2]string
	tensors map[[2]string][]string
}

func (t *tally) add(tensor, first, second string) {
	key := [2]string{first, second}
	if t.tensors == nil {
		t.tensors = make(map[[2]string][]string)
	}
	if t.tensors[key] == nil {
		t.keys = append(t.keys, key)
	}
	t.tensors[key] = append(t.tensors[key], tensor)
}

// each calls f for each pair of files in sorted order, with the first tensor, and with a text that contains the name
// of this tensor and says how many others there are.
func (t *tally) each(f func(files [2]string, tensor, text string)) {
	slices.SortFunc(t.keys, func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
	for _, key := range t.keys {
		tensors := t.tensors[key]
		slices.Sort(tensors)
		f(key, tensors[0], tensorText(tensors))
	}
}

// tensorText returns a text that names the first tensor and says how many others there are.
func tensorText(tensors []string) string {
	switch n := len(tensors); n {
	case 1:
		return "the tensor " + quoted(tensors[0])
	case 2:
		return "the tensor " + quoted(tensors[0]) + " and one more"
	default:
		return fmt.Sprintf("the tensor %s and %d more", quoted(tensors[0]), n-1)
	}
}
