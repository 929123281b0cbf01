package storage

import (
	"maps"
	"slices"
	"strings"
)

// A Pin is a file as it was when a source was opened. Another machine that opens the
// source has the same pins, unless the source has changed.
type Pin struct {
	Name string `json:"name"` // in the folder of the source; of the second of several sources, 2:NAME
	Size int64  `json:"size"`
	Tag  string `json:"tag"` // an ETag, a time, a sum, a commit
}

// Pinned returns what was read and listed of a folder, by name. Of a file that was read its sum
// counts.
func (f *Folder) Pinned() []Pin {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	byName := make(map[string]Pin)
	for _, p := range f.listed {
		byName[p.Name] = p
	}
	for name, c := range f.files {
		byName[name] = c.pin
	}
	return slices.SortedFunc(maps.Values(byName), func(a, b Pin) int { return strings.Compare(a.Name, b.Name) })
}
