// Package lazyregexp has regular expressions for package variables that are compiled when they are
// first used, so that a program that imports a package does not pay for them at its start.
package lazyregexp

import (
	"regexp"
	"sync"
)

// New returns a func that returns the regular expression of text, which its first call compiles. It
// panics if text is not valid. It may be called concurrently.
func New(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}
