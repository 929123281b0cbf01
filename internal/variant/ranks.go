package variant

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A Rank describes a file that one rank of a job has saved with torch.save, as far as its name
// indicates.
type Rank struct {
	File   string
	Item   string // kind of the contents, such as model, optim or model_0000005
	World  int    // number of ranks; 0 if the name does not contain it
	Number int    // number of the rank, from 0
	Sure   bool   // whether only files of ranks have such a name; false for model_3.pt
}

// rankNames returns the patterns of the names that jobs give to the files of their ranks. The first
// call compiles them. Their groups are the item, the number of ranks and the number of the rank.
var rankNames = sync.OnceValue(func() []*regexp.Regexp {
	return []*regexp.Regexp{
		regexp.MustCompile(`^(?:(.+)[._-])?world_size_(\d{1,9})_rank_(\d{1,9})\.(?:pt|pth|bin|ckpt)$`), // verl, SkyRL, oumi
		regexp.MustCompile(`^(?:(.+)[._-])?rank()[_-]?(\d{1,9})\.(?:pt|pth|bin|ckpt)$`),                // dinov2
		regexp.MustCompile(`^(.+)()_(\d{1,9})\.pt$`),                                                   // torchtitan
	}
})

// RankOf parses the name of a file in a folder. It returns false if ranks do not give their files
// such a name.
func RankOf(name string) (r Rank, ok bool) {
	patterns := rankNames()
	for i, pattern := range patterns {
		if m := pattern.FindStringSubmatch(name); m != nil {
			world, _ := strconv.Atoi(m[2])
			number, _ := strconv.Atoi(m[3])
			return Rank{name, m[1], world, number, i < len(patterns)-1}, true
		}
	}
	return r, false
}

// IsRankFile reports whether a file has a name that a rank of a job may give it with torch.save.
// For a name like model_3.pt, only the content of the file shows whether a rank has saved it.
func IsRankFile(name string) bool {
	_, ok := RankOf(name)
	return ok
}

// RankFiles returns those of the files in a folder that hold the model of a job, in the order of
// the ranks. It returns none if no name is the name of a rank's file. It is an error if the folder
// has several models, or files of jobs with different numbers of ranks.
func RankFiles(names []string) (model []Rank, err error) {
	items := make(map[string][]Rank)
	sure := false
	for _, name := range names {
		if r, ok := RankOf(name); ok {
			items[r.Item] = append(items[r.Item], r)
			sure = sure || r.Sure
		}
	}
	if unsure := items["model"]; sure && len(unsure) > 1 && !slices.ContainsFunc(unsure, func(r Rank) bool { return r.Sure }) {
		return nil, fmt.Errorf("files of the ranks of several saves: %.200q", slices.Sorted(maps.Keys(items)))
	}
	for item, ranks := range items {
		ranks = slices.DeleteFunc(ranks, func(r Rank) bool { return sure && !r.Sure })
		if items[item] = ranks; len(ranks) == 0 {
			delete(items, item)
		}
	}
	model = items["model"]
	if model == nil {
		besides := func(item string, _ []Rank) bool {
			return strings.HasPrefix(item, "optim") || strings.HasPrefix(item, "extra_state")
		}
		if others := maps.Clone(items); len(items) > 1 {
			if maps.DeleteFunc(others, besides); len(others) > 0 {
				items = others
			}
		}
		if names := slices.Sorted(maps.Keys(items)); len(names) > 1 {
			return nil, fmt.Errorf("files of the ranks of several saves: %.200q", names)
		}
		for _, only := range items {
			model = only
		}
	}
	slices.SortFunc(model, func(a, b Rank) int {
		return cmp.Or(cmp.Compare(a.World, b.World), cmp.Compare(a.Number, b.Number), strings.Compare(a.File, b.File))
	})
	for i, r := range model {
		switch before := model[max(0, i-1)]; {
		case r.World != before.World:
			return nil, fmt.Errorf("files of several saves, by jobs of %s and of %s ranks: %.200q and %.200q", worldText(before), worldText(r), before.File, r.File)
		case i > 0 && r.Number == before.Number:
			return nil, fmt.Errorf("two files of rank %d: %.200q and %.200q", r.Number, before.File, r.File)
		}
	}
	return model, nil
}

func worldText(r Rank) string {
	if r.World == 0 {
		return "unknown many"
	}
	return strconv.Itoa(r.World)
}
