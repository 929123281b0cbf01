// Package lazyregexp has regular expressions for package variables that are compiled when they are
// first used, so that a program that imports a package does not pay for them at its start.
package lazyregexp

import (
	"regexp"
	"sync"
)

// New returns a func that returns the regular expression in text. The first call of that func
// compiles the expression, and panics if it is not valid. The func may be called concurrently.
func New(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}
