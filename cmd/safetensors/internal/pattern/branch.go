package pattern

import (
	"cmp"
	"slices"
	"strings"
)

// A Branch consists of names that begin with the same parts, which are separated by dots. It is a
// range of all sorted names. A tree with a node for each part of each name could have twenty times
// as many nodes as there are names.
type Branch struct {
	Members []int  // indices of the names, in the order of the sorted names
	Name    string // the parts with which all names of the branch begin
	Start   int    // offset in Name at which the last part starts

	names        []string
	parts, limit int
}

// Tree returns the Branch of all names. A name is split into at most limit parts, of which the last
// is the rest of the name.
func Tree(names []string, limit int) Branch {
	b := Branch{Members: make([]int, len(names)), names: names, limit: limit}
	for i := range names {
		b.Members[i] = i
	}
	slices.SortFunc(b.Members, func(i, j int) int { return compareParts(names[i], names[j]) })
	return b
}

// compareParts compares names part by part, so that names that begin with the same parts are
// adjacent.
func compareParts(a, b string) int {
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	restA, _, _ := strings.Cut(a[i:], ".")
	restB, _, _ := strings.Cut(b[i:], ".")
	return cmp.Or(cmp.Compare(restA, restB), cmp.Compare(len(a), len(b)))
}

// Named returns the index of the name that equals b.Name, or -1 if there is none. It is the first
// of Members.
func (b Branch) Named() int {
	if b.parts > 0 && len(b.Members) > 0 && len(b.names[b.Members[0]]) == len(b.Name) {
		return b.Members[0]
	}
	return -1
}

// Split returns the branches below b, sorted by name. They contain all members except Named.
func (b Branch) Split() (below []Branch) {
	rest, start := b.Members, 0
	if b.parts > 0 {
		start = len(b.Name) + 1
	}
	if b.Named() >= 0 {
		rest = rest[1:]
	}
	for len(rest) > 0 {
		next := Branch{Start: start, names: b.names, parts: b.parts + 1, limit: b.limit}
		part := func(i int) string { return b.names[i][start:next.end(b.names[i])] }
		next.Name = b.names[rest[0]][:start+len(part(rest[0]))]
		n := 1
		for n < len(rest) && part(rest[n]) == next.Name[start:] {
			n++
		}
		next.Members, rest = rest[:n], rest[n:]
		below = append(below, next)
	}
	return below
}

// end returns the offset in name, which is one of the names of b, at which the branch's last part
// ends.
func (b Branch) end(name string) int {
	if dot := strings.IndexByte(name[b.Start:], '.'); dot >= 0 && b.parts < b.limit {
		return b.Start + dot
	}
	return len(name)
}
