package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// readEquivalent reads a list of mutants that no test can kill, by their keys. Its
// paragraphs are the key of a mutant, as it is printed when it lives, and the reason;
// lines that start with # are comments.
func readEquivalent(name string) (map[string]bool, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	known := make(map[string]bool)
	isOld := func(line string) bool { return strings.HasPrefix(line, "- ") }
	for _, paragraph := range strings.Split(string(text), "\n\n") {
		var lines []string
		for line := range strings.Lines(paragraph) {
			if line = strings.TrimRight(line, "\n"); line != "" && line[0] != '#' {
				lines = append(lines, line)
			}
		}
		if len(lines) == 0 {
			continue
		}
		if len(lines) < 4 || !isOld(lines[1]) || !strings.HasPrefix(lines[2], "+") || slices.ContainsFunc(lines[3:], isOld) {
			return nil, fmt.Errorf("%s: not a mutant and a reason:\n%s", name, paragraph)
		}
		known[strings.Join(lines[:3], "\n")] = true
	}
	return known, nil
}
