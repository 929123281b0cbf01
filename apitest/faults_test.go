//go:build !plan9

// Plan 9 has no error numbers.

package apitest_test

import (
	"cmp"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
	"syscall"
	"testing"

	. "github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/stretchr/testify/require"
)

// replacements are saves over an earlier one; the first is zero where there is none.
var replacements = []struct{ first, second save }{
	{save{}, writeFile}, {writeFile, writeFile}, {writeFile, createWriter},
	{save{}, shards(3)}, {save{}, shards(1)},
	{shards(3), shards(3)}, {shards(3), shards(2)}, {shards(2), shards(3)},
	{shards(1), shards(3)}, {shards(3), shards(1)}, {shards(1), shards(1)},
}

// onAllDisks calls test with each replacement on a disk of each kind.
func onAllDisks(test func(first, second save, kind func(*disk))) {
	for _, r := range replacements {
		for _, kind := range diskKinds {
			test(r.first, r.second, kind)
		}
	}
}

// replaced returns a disk with the first save of a replacement. Its files have a
// mode that the umask would not give new ones.
func replaced(t testing.TB, first save, kind func(*disk)) *disk {
	d := diskWith(map[string][]byte{"work/other": nil})
	kind(d)
	if first.write != nil {
		require.NoError(t, d.save(t, first, 1, fault{}))
		d.settle()
		for name := range d.names {
			if n := d.now(name); !n.dir {
				n.mode = 0o666
			}
		}
	}
	return d
}

// errnos are the errors that operations fail with.
var errnos = map[error]string{
	syscall.ENOSPC: "ENOSPC", syscall.EIO: "EIO", syscall.EINTR: "EINTR", syscall.EROFS: "EROFS", syscall.EDQUOT: "EDQUOT",
}

// spelled lists the words of errors, by the kind of the operation that failed.
var spelled = map[string]string{
	"allocate": "reserve space", "fstat": "chmod",
}

// harmless reports whether a save goes on after a failure.
func harmless(s save, f fault, d *disk) bool {
	return !d.named && f.n <= trialOps(s.files)[f.op] || f.op == "lock" || // the file system has none
		f.op == "closedir" || // it was read only
		f.op == "close" && f.err == syscall.EINTR // the file was synced, and is closed
}

// trialOps counts the operations by which a save of some files finds out, by one more,
// whether a file without a name can have one later, and opens them. If they fail, files
// get temporary names. The closes are of the trial, and of files that have their names.
func trialOps(files int) map[string]int {
	return map[string]int{"tmpfile": 1 + files, "fstat": 1 + files, "link": 1, "remove": 1, "close": 1 + files}
}

// TestEveryFault makes each operation of a save fail in turn. The target is then as it was or, if
// the error says so, the new one. No temporary file is left, and no file is open. A power cut after
// the failure also leaves one whole generation. The next save succeeds, and a power cut after it
// leaves what it saved.
func TestEveryFault(t *testing.T) {
	onAllDisks(func(first, second save, kind func(*disk)) {
		d := replaced(t, first, kind)
		require.NoError(t, d.save(t, second, 2, fault{}))
		require.Zero(t, d.open)
		for op, count := range d.counts {
			for errno := range errnos {
				if testing.Short() && errno != syscall.EIO && errno != syscall.EINTR {
					continue
				}
				for n := 1; n <= count; n++ {
					for _, short := range []bool{false, true}[:1+strings.Count(op, "write")] {
						requireFault(t, first, second, kind, fault{op: op, n: n, err: errno, short: short})
					}
				}
			}
		}
	})
}

// requireFault fails one operation of a save.
func requireFault(t testing.TB, first, s save, kind func(*disk), f fault) {
	d := replaced(t, first, kind)
	before := d.files()
	old, mayFail := opensAs(cut{files: before}, s.target)
	d.fault = f
	during, after, err := powerCuts(t, d, s, 2)
	what := fmt.Sprintf("%s over %d: %s %d: %s, short %t: %v", s.name, old, f.op, f.n, errnos[f.err], f.short, err)
	require.True(t, d.fault.hit, what)
	require.Zero(t, d.open, what)
	require.False(t, d.locked, what)
	for name := range d.files() {
		require.NotContains(t, name, osfile.TempPrefix, what)
	}
	require.Empty(t, torn(during, s.target, mayFail, old, 2), what)
	if harmless(s, f, d) {
		require.NoError(t, err, what)
		require.Empty(t, torn(after, s.target, false, 2), what)
		return
	}
	require.Empty(t, torn(after, s.target, mayFail, old, 2), what)
	require.ErrorIs(t, err, f.err, what)
	require.Regexp(t, `^safetensors: .*\b`+cmp.Or(spelled[f.op], f.op)+` work`, err.Error(), what)
	require.NotContains(t, err.Error(), osfile.TempPrefix, what)
	late := strings.Contains(err.Error(), "was replaced, but may be the old file after a crash") ||
		strings.Contains(err.Error(), "is complete, but what follows failed")
	if late {
		require.Contains(t, []string{"syncdir", "remove"}, f.op, what)
		got, err := cut{files: d.files()}.generation(s.target)
		require.NoError(t, err, what)
		require.EqualValues(t, 2, got, what)
	} else {
		require.Equal(t, before, d.files(), what)
	}

	if f.err != syscall.EIO { // one is enough
		return
	}
	d.fault = fault{}
	_, after, err = powerCuts(t, d, s, 3)
	require.NoError(t, err, what)
	require.Empty(t, torn(after, s.target, false, 3), what)
}

// TestDyingDisk lets every operation fail from some moment on. Temporary files stay
// then, but what opens is one generation.
func TestDyingDisk(t *testing.T) {
	onAllDisks(func(first, second save, kind func(*disk)) {
		for n := 1; ; n++ {
			d := replaced(t, first, kind)
			old, mayFail := opensAs(cut{files: d.files()}, second.target)
			d.fault = fault{n: n, rest: true, err: syscall.EIO}
			during, after, err := powerCuts(t, d, second, 2)
			if !d.fault.hit {
				require.NoError(t, err)
				break
			}
			require.Zero(t, d.open)
			require.Empty(t, torn(during, second.target, mayFail, old, 2))
			if err == nil { // only the folder could not be closed
				require.Empty(t, torn(after, second.target, false, 2))
				continue
			}
			require.ErrorIs(t, err, syscall.EIO)
			require.Empty(t, torn(after, second.target, mayFail, old, 2))
		}
	})
}

// TestSomeFaults: a name that is taken, a file system that cannot reserve space and one that
// cannot sync folders are no errors. Where every name is taken, and where there is no space for
// a file, of which nothing is written then, the save fails.
func TestSomeFaults(t *testing.T) {
	faults := []fault{
		{op: "chmod", n: 1, err: syscall.ENOTSUP},
		{op: "create", n: 1, err: syscall.EEXIST},
		{op: "tmpfile", n: 1, err: syscall.EOPNOTSUPP},
		{op: "link", n: 1, err: syscall.EEXIST},
		{op: "link", n: 2, err: syscall.EEXIST},
		{op: "allocate", n: 1, err: syscall.ENOSYS},
		{op: "syncdir", n: 1, err: syscall.EINVAL},
		{op: "remove", n: 1, err: syscall.ENOENT},
		{op: "create", n: 1, err: syscall.EEXIST, rest: true},
		{op: "link", n: 2, err: syscall.EEXIST, rest: true}, // after the trial
		{op: "allocate", n: 1, err: syscall.ENOSPC, rest: true},
	}
	if runtime.GOOS == "windows" {
		faults = faults[len(faults)-3:] // what passes depends on the system
	}
	for _, f := range faults {
		hit := false
		onAllDisks(func(first, second save, kind func(*disk)) {
			d := replaced(t, first, kind)
			err := d.save(t, second, 2, f)
			hit = hit || d.fault.hit
			if f.rest && d.fault.hit {
				require.ErrorIs(t, err, f.err)
				require.False(t, f.op == "allocate" && d.counts["write"] > 0)
				if path := new(fs.PathError); f.op == "allocate" { // the error names the file once
					require.ErrorAs(t, err, &path)
					require.EqualError(t, err, "safetensors: "+path.Error())
				}
				return
			}
			require.NoError(t, err, "%s %s", f.op, f.err)
			require.EqualValues(t, 2, must(cut{files: d.files()}.generation(second.target)))
		})
		require.True(t, hit, f.op)
	}
}

// TestMissingCalls: on mounts of buckets and of HDFS, any call may be missing that a save can do
// without, alone or together with the others. The save succeeds, and leaves the new files and
// nothing else. Where a call is missing that no save can do without, the error names the call and
// what helps, and the old file stays. Without removals, files may be left over, and the old or the
// new checkpoint opens, as the error says.
func TestMissingCalls(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows reports other errors for these calls")
	}
	const all = "tmpfile link lock fstat chmod chown allocate truncate sync opendir syncdir closedir"
	help := map[string]string{
		"rename": "(this file system cannot rename: use Write, which writes to any io.Writer)",
		"write":  "(this file system cannot write any part of a file: use Write, which writes to any io.Writer)",
		"create": "(this file system cannot create a file in which any part can be written: use Write, which writes to any io.Writer)",
		"mkdir":  "(this file system cannot create a folder here: create it by other means, or use Write, which writes to any io.Writer)",
		"remove": "(this file system cannot remove a file here: remove it by other means, or save to an empty folder)",
	}
	missing := map[string]int{} // how often each call was
	for _, errno := range []syscall.Errno{syscall.ENOSYS, syscall.EINVAL, syscall.EOPNOTSUPP, syscall.EPERM} {
		for _, op := range append(strings.Fields(all), all, "allocate truncate", "rename", "write", "tmpfile create", "mkdir", "remove") {
			onAllDisks(func(first, second save, kind func(*disk)) {
				d := replaced(t, first, kind)
				before := d.files()
				err := d.save(t, second, 2, fault{op: op, n: 1, rest: true, err: errno})
				if !d.fault.hit {
					return
				}
				missing[op]++
				what := fmt.Sprintf("%s without %s: %s", second.name, op, errno)
				require.Zero(t, d.open, what)
				if op == "remove" {
					want := 1
					if err == nil || strings.Contains(err.Error(), "is complete, but what follows failed") {
						want = 2
					}
					if err != nil {
						require.ErrorContains(t, err, help[op], what)
					}
					if got, failed := (cut{files: d.files()}).generation(second.target); want == 2 || first.target == second.target {
						require.NoError(t, failed, what)
						require.EqualValues(t, want, got, what)
					}
					return
				}
				for name := range d.files() {
					require.NotContains(t, name, osfile.TempPrefix, what)
				}
				text, fails := help[strings.TrimPrefix(op, "tmpfile ")]
				if !fails {
					require.NoError(t, err, what)
					require.EqualValues(t, 2, must(cut{files: d.files()}.generation(second.target)), what)
					return
				}
				require.ErrorIs(t, err, errno, what)
				require.Equal(t, before, d.files(), what)
				if op != "tmpfile create" || errno != syscall.EPERM { // which may mean what it says
					require.ErrorContains(t, err, text, what)
				}
			})
		}
	}
	delete(missing, "truncate") // where space can be reserved, no file is truncated
	require.Len(t, missing, len(strings.Fields(all))+5, "%v", missing)
}

// TestPrivateFromTheStart: a file that only its owner may read is replaced by one that
// nobody else may read while it is written, either.
func TestPrivateFromTheStart(t *testing.T) {
	for _, kind := range diskKinds {
		d := diskWith(map[string][]byte{"work/x": nil})
		kind(d)
		d.now("work/x").mode = 0o600
		restore := d.use(t)
		err := WriteFile("work/x", checkpointOf(1), nil)
		restore()
		require.NoError(t, err)
		require.NotEmpty(t, d.modes)
		for _, mode := range d.modes {
			require.EqualValues(t, 0o600, mode)
		}
	}
}

// TestDescriptorsOfShards: of very many shards and their index, 256 have no name before all are complete.
// The others, which would each keep a descriptor, have temporary ones.
func TestDescriptorsOfShards(t *testing.T) {
	d, most := newDisk(), 0
	restore := d.use(t)
	d.observe = func(string) { most = max(most, d.open) }
	require.NoError(t, WriteShards(folder, checkpointOf(300), nil, 64))
	restore()
	require.Equal(t, 301-256, d.counts["create"])
	require.InDelta(t, 256, most, 6, "and those that are written at once, and the folder")
	require.Zero(t, d.open)
	require.Len(t, d.in(folder), 301)
}
