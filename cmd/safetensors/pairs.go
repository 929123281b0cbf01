package main

import (
	"fmt"
	"maps"
	"strings"
)

// parsePairs reads KEY=VALUE arguments.
func parsePairs(args []string) (map[string]string, error) {
	pairs := make(map[string]string)
	for _, arg := range args {
		key, value, ok := strings.Cut(arg, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not KEY=VALUE", arg)
		}
		pairs[key] = value
	}
	return pairs, nil
}

// withPairs returns metadata with pairs set. Without any it stays nil.
func withPairs(metadata, pairs map[string]string) map[string]string {
	if len(pairs) == 0 {
		return metadata
	}
	all := maps.Clone(metadata)
	if all == nil {
		all = make(map[string]string)
	}
	maps.Copy(all, pairs)
	return all
}
