// Package parts writes a checkpoint in parts, by processes that know nothing of each
// other but the folder that they fill: any number of them at once, each as often as it
// takes. The folder holds their plan; doc/command.md has the contract.
package parts

import (
	"fmt"
	"strconv"
	"strings"
)

// A Part is one of N parts of some work, from 1 on. It is a flag: "2/8". The zero Part is
// all of the work.
type Part struct{ K, N int }

// maxParts is more than any job has had.
const maxParts = 1 << 20

func (p *Part) String() string {
	if p.N == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", p.K, p.N)
}

// Set parses a part.
func (p *Part) Set(text string) error {
	k, n, ok := strings.Cut(text, "/")
	first, err := strconv.Atoi(k)
	last, errN := strconv.Atoi(n)
	if !ok || err != nil || errN != nil || first < 1 || last > maxParts || first > last {
		return fmt.Errorf("expected K/N, K from 1 to N, N at most %d", maxParts)
	}
	*p = Part{first, last}
	return nil
}

// Type is for the help.
func (p *Part) Type() string { return "K/N" }

// IsSet reports whether there are parts at all.
func (p *Part) IsSet() bool { return p.N > 0 }

// Of returns what falls to the part: of items in a row a range, because neighbors are
// often in one file of the source. No part has more than one item more than another.
func Of[T any](p Part, items []T) []T {
	if p.N == 0 {
		return items
	}
	return items[(p.K-1)*len(items)/p.N : p.K*len(items)/p.N]
}
