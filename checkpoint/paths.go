package checkpoint

import (
	"slices"
	"strconv"
	"strings"
)

// A path is the start of the name of a tensor, up to a dot and with it: "model.layers.0.mlp." is the path of a module. This
// file has the funcs that take paths apart, and that find the tensors below them.

// Rules about modules do not judge names beyond these limits, which no model exceeds. Without them, an untrusted name could
// have a million parts.
const (
	maxName  = 512     // largest number of bytes of a name
	maxParts = 32      // largest number of parts of a name, which dots separate
	maxPaths = 1 << 20 // largest number of paths with a number, in all names together
)

// An instances counts the tensors below each path that contains a number. Paths that differ only in numbers are instances of
// one template: layers.0.mlp. and layers.1.mlp. are instances of layers.*.mlp. The keys are templates; the keys of each value
// are the instances of the template.
type instances map[string]map[string]int

// instancesOf returns the instances in sorted names, without those of buffers. It returns nil if there are more than maxPaths.
func instancesOf(names []string) instances {
	in := make(instances)
	paths := 0
	for _, name := range names {
		if isBuffer(name) {
			continue
		}
		template, numbered := "", false
		for rest, done := name, 0; ; {
			part, after, more := strings.Cut(rest, ".")
			if !more {
				break
			}
			done += len(part) + 1
			if _, err := strconv.ParseUint(part, 10, 31); err == nil {
				part, numbered = "*", true
			}
			template += part + "."
			if rest = after; numbered {
				if in[template] == nil {
					in[template] = make(map[string]int)
				}
				count := in[template]
				if count[name[:done]]++; count[name[:done]] == 1 {
					paths++
				}
			}
		}
		if paths > maxPaths {
			return nil
		}
	}
	return in
}

// templateOf returns the template of a path: the path with * for each part that is a number.
func templateOf(path string) string {
	parts := strings.Split(path, ".")
	for i, part := range parts {
		if _, err := strconv.ParseUint(part, 10, 31); err == nil {
			parts[i] = "*"
		}
	}
	return strings.Join(parts, ".")
}

// isBoundary reports whether odd, which is one of the paths, is in the first or the last of the layers that paths have, and
// that layer has at most two of the paths.
func isBoundary(paths []string, odd string) bool {
	layer := firstNumber(odd)
	least, most, same := layer, layer, 0
	for _, path := range paths {
		n := firstNumber(path)
		least, most = min(least, n), max(most, n)
		if n == layer {
			same++
		}
	}
	return (layer == least || layer == most) && same < 3
}

// restsBelow returns the names of the tensors below a path, relative to it, without those of buffers. names must be sorted, and
// the result is sorted.
func restsBelow(names []string, path string) (rests []string) {
	at, _ := slices.BinarySearch(names, path)
	for _, name := range names[at:] {
		rest, is := strings.CutPrefix(name, path)
		if !is {
			break
		}
		if !isBuffer(name) {
			rests = append(rests, rest)
		}
	}
	return rests
}

// has reports whether sorted names contain name.
func has(names []string, name string) bool {
	_, found := slices.BinarySearch(names, name)
	return found
}

// firstNumber returns the first number in a path, or -1.
func firstNumber(path string) int {
	for part := range strings.SplitSeq(path, ".") {
		if n, err := strconv.Atoi(part); err == nil {
			return n
		}
	}
	return -1
}

// lastPart returns the last part of a path, without the dot.
func lastPart(path string) string {
	path = strings.TrimSuffix(path, ".")
	return path[strings.LastIndexByte(path, '.')+1:]
}

// outer returns a path without its last part: "model." for "model.encoder.". It also accepts the name of a tensor or a module.
func outer(prefix string) string {
	return prefix[:strings.LastIndexByte(strings.TrimSuffix(prefix, "."), '.')+1]
}

// stackOf returns the text before the first number in a name.
func stackOf(name string) string {
	at := 0
	for part := range strings.SplitSeq(name, ".") {
		if firstNumber(part) >= 0 {
			break
		}
		at += len(part) + 1
	}
	return name[:at]
}
