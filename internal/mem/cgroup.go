package mem

import (
	"io/fs"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A hierarchy is a tree of cgroups that limit memory.
type hierarchy struct {
	mount, root string // directory where the tree is mounted, and the cgroup at its top
	cgroup      string // path of the cgroup of this process
	file        string // name of the file that holds the limit of a cgroup
}

// cgroupLimit returns the smallest memory limit, in bytes, of the cgroup of this process and its
// ancestors, in cgroups of version 1 and 2. root is the root file system of a Linux machine. It
// returns 0 if there is no limit.
func cgroupLimit(root fs.FS) int64 {
	limit := int64(math.MaxInt64)
	for _, h := range hierarchies(root) {
		dir := path.Clean("/" + h.cgroup)
		if h.root != "/" { // then the process is in a container without a cgroup namespace of its own
			dir, _ = strings.CutPrefix(dir, path.Clean(h.root))
		}
		for dir = path.Clean("/" + dir); ; dir = path.Dir(dir) {
			text, err := fs.ReadFile(root, strings.TrimPrefix(path.Join(h.mount, dir, h.file), "/"))
			if n, bad := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && bad == nil { // a file that contains "max", or that cannot be read, sets no limit
				limit = min(limit, n)
			}
			if dir == "/" {
				break
			}
		}
	}
	if limit == math.MaxInt64 {
		return 0
	}
	return limit
}

// hierarchies returns the cgroup trees that can limit the memory of this process.
func hierarchies(root fs.FS) (found []hierarchy) {
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return nil
	}
	mounts, err := fs.ReadFile(root, "proc/self/mountinfo")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(groups)) { // ID:CONTROLLERS:CGROUP
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) < 3 {
			continue
		}
		isV2 := parts[0] == "0" && parts[1] == ""
		if !isV2 && !slices.Contains(strings.Split(parts[1], ","), "memory") {
			continue
		}
		for line := range strings.Lines(string(mounts)) {
			if h, ok := mountOf(line, isV2); ok {
				h.cgroup = parts[2]
				found = append(found, h)
			}
		}
	}
	return found
}

// mountOf parses a line of mountinfo, "ID PARENT DEVICE ROOT MOUNT OPTIONS [TAG...] - TYPE SOURCE
// OPTIONS". It reports whether the line mounts cgroups of the version asked for.
func mountOf(line string, isV2 bool) (h hierarchy, ok bool) {
	place, kind, _ := strings.Cut(line, " - ")
	where, what := strings.Fields(place), strings.Fields(kind)
	if len(where) < 5 || len(what) < 3 {
		return h, false
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	h.root, h.mount, h.file = unescape.Replace(where[3]), unescape.Replace(where[4]), "memory.max"
	if isV2 {
		return h, what[0] == "cgroup2"
	}
	h.file = "memory.limit_in_bytes"
	return h, what[0] == "cgroup" && slices.Contains(strings.Split(what[2], ","), "memory")
}
