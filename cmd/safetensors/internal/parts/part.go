// Package parts writes a checkpoint in parts. Each part is written by a process of its own. The
// processes communicate only through the folder that they fill: any number of them may run at the
// same time, and each part may be tried as often as necessary. The folder contains their plan.
// doc/command.md has the contract.
package parts

import (
	"fmt"
	"strconv"
	"strings"
)

// A Part is one of N parts of some work, counted from 1. It is a flag: "2/8". The zero Part is the
// whole work.
type Part struct{ K, N int }

// maxParts is the largest number of parts. No job has had as many.
const maxParts = 1 << 20

func (p *Part) String() string {
	if p.N == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", p.K, p.N)
}

// Set parses a part, as pflag.Value requires.
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

// Type returns the text that stands for a part in the help.
func (p *Part) Type() string { return "K/N" }

// IsSet reports whether the work is divided into parts.
func (p *Part) IsSet() bool { return p.N > 0 }

// Has reports whether item i of some work belongs to the part. Items are assigned to the parts in
// turn. So the numbers of items of two parts differ by at most one, and large items, which are
// often neighbors, go to different parts.
func (p *Part) Has(i int) bool { return p.N == 0 || i%p.N == p.K-1 }
