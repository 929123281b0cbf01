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
// call compiles them. Their groups are the item, the number of ranks (world) and the number of the rank.
// Only files of ranks have a name that matches one of the patterns before the last.
var rankNames = sync.OnceValue(func() []*regexp.Regexp {
	return []*regexp.Regexp{
		regexp.MustCompile(`^(?:(?P<item>.+)[._-])?world_size_(?P<world>\d{1,9})_rank_(?P<rank>\d{1,9})\.(?:pt|pth|bin|ckpt)$`), // verl, SkyRL, oumi
		regexp.MustCompile(`^(?:(?P<item>.+)[._-])?rank[_-]?(?P<rank>\d{1,9})[_-]of[_-](?P<world>\d{1,9})\.(?:pt|pth|bin|ckpt)$`),
		regexp.MustCompile(`^(?:(?P<item>.+)[._-])?rank(?P<world>)[_-]?(?P<rank>\d{1,9})\.(?:pt|pth|bin|ckpt)$`), // dinov2
		regexp.MustCompile(`^(?P<item>.+)(?P<world>)_(?P<rank>\d{1,9})\.pt$`),                                    // torchtitan
	}
})

// RankOf parses the name of a file in a folder. It returns false if ranks do not give their files
// such a name.
func RankOf(name string) (r Rank, ok bool) {
	patterns := rankNames()
	for i, pattern := range patterns {
		if m := pattern.FindStringSubmatch(name); m != nil {
			world, _ := strconv.Atoi(m[pattern.SubexpIndex("world")])
			number, _ := strconv.Atoi(m[pattern.SubexpIndex("rank")])
			return Rank{name, m[pattern.SubexpIndex("item")], world, number, i < len(patterns)-1}, true
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
// has several models, or files of jobs with different numbers of ranks. The error is a *NumberedError if
// the names leave open whether ranks have saved the files.
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
		return nil, severalError(slices.Sorted(maps.Keys(items))) // model_0.pt and model_1.pt are another model beside the files of ranks
	}
	for item, ranks := range items {
		ranks = slices.DeleteFunc(ranks, func(r Rank) bool { return sure && !r.Sure })
		if items[item] = ranks; len(ranks) == 0 {
			delete(items, item)
		}
	}
	if model = items["model"]; model == nil {
		if model, err = onlyItem(items, sure); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(model, func(a, b Rank) int {
		return cmp.Or(cmp.Compare(a.World, b.World), cmp.Compare(a.Number, b.Number), strings.Compare(a.File, b.File))
	})
	if err := checkRanks(model); err != nil {
		return nil, err
	}
	return model, nil
}

// onlyItem returns the files of the only item, or none if there are no items. It ignores items that
// lie beside a model, such as the state of the optimizer, unless there are no other items. sure
// means that only files of ranks have such names.
func onlyItem(items map[string][]Rank, sure bool) (model []Rank, err error) {
	besides := func(item string, _ []Rank) bool {
		return strings.HasPrefix(item, "optim") || strings.HasPrefix(item, "extra_state")
	}
	if others := maps.Clone(items); len(items) > 1 {
		if maps.DeleteFunc(others, besides); len(others) > 0 {
			items = others
		}
	}
	switch names := slices.Sorted(maps.Keys(items)); {
	case len(names) > 1 && sure:
		return nil, severalError(names)
	case len(names) > 1:
		return nil, &NumberedError{names}
	}
	for _, only := range items {
		model = only
	}
	return model, nil
}

// checkRanks returns an error if the sorted files of a model are of jobs with different numbers of
// ranks, or if two of them are of the same rank.
func checkRanks(model []Rank) error {
	for i, r := range model {
		switch before := model[max(0, i-1)]; {
		case r.World != before.World:
			return fmt.Errorf("files of several saves, by jobs of %s and of %s ranks: %.200q and %.200q", worldText(before), worldText(r), before.File, r.File)
		case i > 0 && r.Number == before.Number:
			return fmt.Errorf("two files of rank %d: %.200q and %.200q", r.Number, before.File, r.File)
		}
	}
	return nil
}

func worldText(r Rank) string {
	if r.World == 0 {
		return "unknown many"
	}
	return strconv.Itoa(r.World)
}

// severalError returns the error for a folder with files of the ranks of several items.
func severalError(items []string) error {
	return fmt.Errorf("files of the ranks of several models or saves: %s; those of one need a folder of their own", listed(items))
}

// A NumberedError reports a folder with several series of numbered files, such as a_0.pt, a_1.pt and
// b_0.pt, which ranks may have saved or not.
type NumberedError struct{ items []string }

func (e *NumberedError) Error() string {
	return fmt.Sprintf("several series of numbered files: %s; if ranks have saved them, those of one model need a folder of their own", listed(e.items))
}

// listed returns the first ten items, in quotes, and the number of the others.
func listed(items []string) string {
	return List(items, 10, func(item string) string { return fmt.Sprintf("%.200q", item) })
}
