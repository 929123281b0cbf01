package mem

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// TestCgroupLimit: the tightest limit of the cgroup and its ancestors counts, in either version and
// wherever the hierarchy is mounted.
func TestCgroupLimit(t *testing.T) {
	const (
		v1     = "32 31 0:29 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
		other  = "33 31 0:30 / /sys/fs/cgroup/cpu rw,relatime shared:5 - cgroup cgroup rw,cpu\n"
		v2     = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
		hybrid = "30 23 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
		bound  = "32 31 0:29 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
	)
	for name, test := range map[string]struct {
		cgroup, mounts string
		files          map[string]string
		want           int64
	}{
		"own":          {"0::/a/b\n", v2, map[string]string{"a/b/memory.max": "100\n", "a/memory.max": "max\n"}, 100},
		"parent":       {"0::/a/b\n", v2, map[string]string{"a/b/memory.max": "100\n", "a/memory.max": "90\n"}, 90},
		"root":         {"0::/a/b\n", v2, map[string]string{"a/b/memory.max": "max\n", "memory.max": "80\n"}, 80},
		"namespace":    {"0::/\n", v2, map[string]string{"memory.max": "70\n"}, 70},
		"outside":      {"0::/../../x\n", v2, map[string]string{"memory.max": "60\n"}, 60},
		"no limit":     {"0::/a\n", v2, map[string]string{"a/memory.max": "max\n"}, 0},
		"other cgroup": {"0::/a\n", v2, map[string]string{"b/memory.max": "1\n"}, 0},
		"version 1":    {"4:cpu,memory:/a\n3:cpu:/b\n0::/\n", other + v1, map[string]string{"memory/a/memory.limit_in_bytes": "50\n", "memory/b/memory.limit_in_bytes": "1\n", "cpu/b/memory.limit_in_bytes": "1\n"}, 50},
		"v1, parent":   {"4:memory:/a/b\n", v1, map[string]string{"memory/a/b/memory.limit_in_bytes": "9223372036854771712\n", "memory/a/memory.limit_in_bytes": "40\n"}, 40},
		"bound":        {"4:memory:/docker/abc/d\n", bound, map[string]string{"memory/d/memory.limit_in_bytes": "35\n", "memory/memory.limit_in_bytes": "30\n"}, 30},
		"hybrid":       {"4:memory:/a\n0::/b\n", v1 + hybrid, map[string]string{"memory/a/memory.limit_in_bytes": "20\n", "unified/b/memory.max": "10\n"}, 10},
		"no mount":     {"0::/a\n", "", map[string]string{"a/memory.max": "1\n"}, 0},
		"broken":       {"0\n0::/a\n", "30\n30 - cgroup2\n" + v2, map[string]string{"a/memory.max": "a lot\n", "memory.max": ""}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			files := fstest.MapFS{
				"proc/self/cgroup":    &fstest.MapFile{Data: []byte(test.cgroup)},
				"proc/self/mountinfo": &fstest.MapFile{Data: []byte(test.mounts)},
			}
			for file, text := range test.files {
				files["sys/fs/cgroup/"+file] = &fstest.MapFile{Data: []byte(text)}
			}
			require.Equal(t, test.want, cgroupLimit(files))
			delete(files, "proc/self/mountinfo")
			require.Zero(t, cgroupLimit(files))
		})
	}
	require.Zero(t, cgroupLimit(fstest.MapFS{}))
}

// TestCheckSizeInContainer: a size above the limit of the container is refused, even if the machine
// has that much memory.
func TestCheckSizeInContainer(t *testing.T) {
	defer func(f func() int64) { container = f }(container)
	container = func() int64 { return 128 << 20 }
	require.NoError(t, CheckSize(128<<20))
	require.EqualError(t, CheckSize(128<<20+1), "134217729 bytes exceed the limit of memory of this container, 134217728 bytes")
	container = func() int64 { return 0 }
	require.NoError(t, CheckSize(128<<20+1))
}
