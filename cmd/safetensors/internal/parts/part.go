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

// Has reports whether item i of some work falls to the part. Items go to the parts in
// turn: no part has more than one item more than another, and the large ones, which are
// often neighbors, are shared.
func (p *Part) Has(i int) bool { return p.N == 0 || i%p.N == p.K-1 }
