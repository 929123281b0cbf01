//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

const fileSizeLimit = "SAFETENSORS_TEST_FILE_SIZE"

// init makes the system refuse what a file of a command would hold beyond that size, as a
// full disk does.
func init() {
	if n, err := strconv.ParseUint(os.Getenv(fileSizeLimit), 10, 63); err == nil {
		limit := syscall.Rlimit{Cur: n, Max: n}
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			panic(err)
		}
	}
}

// A scene is a folder with a checkpoint, and a command line that replaces it.
type scene struct {
	name string
	old  func(t *testing.T, dir string) // writes what is to be replaced
	args func(dir string) []string
}

// scenes are the destinations on a disk. new.safetensors is what is copied.
func scenes() []scene {
	file := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) { succeeds(t, "cp", "old.safetensors", filepath.Join(dir, name)) }
	}
	shards := func(t *testing.T, dir string) {
		succeeds(t, "cp", "old.safetensors", dir, "--max-shard-size", "300B", "--force")
	}
	cp := func(name string, flags ...string) func(string) []string {
		return func(dir string) []string {
			return append([]string{"cp", "-q", "--force", "new.safetensors", strings.ReplaceAll(name, "DIR", dir)}, flags...)
		}
	}
	return []scene{
		{"file", file("x.safetensors"), cp("DIR/x.safetensors")},
		{"file url", file("x.safetensors"), cp("file://DIR/x.safetensors")},
		{"npz", file("x.npz"), cp("DIR/x.npz")},
		{"bintensors url", file("x.bt"), cp("file://DIR/x.bt")},
		{"shards", shards, cp("DIR", "--max-shard-size", "200B")},
		{"shards url", shards, cp("file://DIR", "--max-shard-size", "200B")},
		{"one for shards", shards, cp("DIR")},
		{"shards for shards", shards, func(dir string) []string { return []string{"cp", "-q", "--force", "new", dir} }},
		{"shards for one", file("model.safetensors"), cp("file://DIR", "--max-shard-size", "200B")},
	}
}

// errKilled reports that the runtime of Go ended the program: it does so when the write that wakes its
// poller fails, which is one of the writes that TestEverySystemCall lets fail. The program can remove
// nothing then, as after a kill; TestKilledForce proves that the next save does.
var errKilled = errors.New("the runtime ended the program")

// play sets a scene, runs what run makes of its command line, and requires that the
// folder holds the old files, byte for byte, or those of the new checkpoint, and nothing
// else. It returns the outcome. Where removing fails, files may be left over.
func play(t *testing.T, s scene, mayLeave bool, run func(args []string) error) (replaced bool) {
	t.Helper()
	dir := must(filepath.Abs(must(os.MkdirTemp(".", "scene"))))
	defer os.RemoveAll(dir)
	s.old(t, dir)
	old := tree(t, dir)
	ended := run(s.args(dir))
	now := tree(t, dir)
	if ended != nil && fmt.Sprint(old) == fmt.Sprint(now) {
		return false
	}
	checkpoint := dir
	if len(old) == 1 && !strings.HasPrefix(s.name, "shards") {
		for name := range old {
			checkpoint = filepath.Join(dir, name)
		}
	}
	source := "new.safetensors"
	if errors.Is(ended, errKilled) {
		if _, err := os.Lstat(checkpoint); err != nil {
			checkpoint = dir // the single file has gone after the new checkpoint was complete
		}
		replaced = runs(t, "diff", source, checkpoint).code == 0
		for name, data := range old {
			require.True(t, replaced || data == now[name], "%s: %s", s.name, name)
		}
		return replaced
	}
	if ended != nil && runs(t, "diff", source, checkpoint).code != 0 {
		source = "old.safetensors"
		require.True(t, mayLeave, "%s: %q became %q", s.name, keysOf(old), keysOf(now))
	}
	require.Equal(t, "equal\n", succeeds(t, "diff", source, checkpoint), s.name)
	for name := range now {
		require.False(t, strings.HasSuffix(name, ".tmp"), "%s: %q", s.name, keysOf(now))
	}
	if ended == nil { // else the error says that old files could not be removed
		clean := filepath.Join(t.TempDir(), "clean")
		require.NoError(t, os.Mkdir(clean, 0o777))
		s.old(t, clean)
		succeeds(t, s.args(clean)...)
		require.Len(t, now, len(tree(t, clean)), "%s: %q", s.name, keysOf(now))
	}
	return true
}

func writeOldAndNew(t *testing.T) {
	t.Chdir(t.TempDir())
	tensors := map[string]safetensors.Tensor{"a": counting(t, 40), "b": counting(t, 50), "c": counting(t, 60)}
	require.NoError(t, safetensors.WriteFile("old.safetensors", tensors, nil))
	tensors["b"], tensors["d"] = counting(t, 30), counting(t, 45)
	require.NoError(t, safetensors.WriteFile("new.safetensors", tensors, nil))
	require.NoError(t, safetensors.WriteShards("new", tensors, nil, 200))
}

// TestFullDisk has the system refuse what a file would hold beyond a size: the old
// checkpoint stays.
func TestFullDisk(t *testing.T) {
	writeOldAndNew(t)
	for _, s := range scenes() {
		for _, size := range []int{0, 1, 100, 300, 600, 1 << 20} {
			replaced := play(t, s, false, func(args []string) error {
				cmd := exec.Command(program, args...)
				cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", fileSizeLimit, size))
				out, err := cmd.CombinedOutput()
				if err != nil {
					require.Contains(t, string(out), "file too large")
				}
				return err
			})
			if size != 600 { // which is enough for some
				require.Equal(t, size == 1<<20, replaced, "%s, %d bytes", s.name, size)
			}
		}
	}
}

// TestEverySystemCall has every system call of a copy fail once that creates, writes,
// flushes, names or removes a file. SAFETENSORS_STRACE names the program strace.
func TestEverySystemCall(t *testing.T) {
	strace := programOf(t, "SAFETENSORS_STRACE")
	writeOldAndNew(t)
	for _, s := range scenes() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			failEverySystemCall(t, strace, s)
		})
	}
}

func failEverySystemCall(t *testing.T, strace string, s scene) {
	injected := 0
	for _, call := range []string{
		"openat:error=EMFILE", "fallocate:error=ENOSPC", "ftruncate:error=ENOSPC", "pwrite64:error=ENOSPC", "write:error=ENOSPC",
		"fsync:error=EIO", "close:error=EIO", "renameat:error=EIO", "linkat:error=EIO", "mkdirat:error=EIO", "unlinkat:error=EIO",
	} {
		name, _, _ := strings.Cut(call, ":")
		for when, without := 1, 0; without < 3; when++ { // each thread counts its own calls
			hit := false
			play(t, s, name == "unlinkat", func(args []string) error {
				log := filepath.Join(t.TempDir(), "log")
				out, err := exec.Command(strace, append([]string{"-f", "-o", log, "-e", "trace=" + name,
					"-e", fmt.Sprintf("inject=%s:when=%d", call, when), program}, args...)...).CombinedOutput()
				hit = strings.Contains(string(must(os.ReadFile(log))), "(INJECTED)")
				if strings.Contains(string(out), "netpollBreak write failed") {
					return errKilled
				}
				return err
			})
			if without++; hit {
				without = 0
				injected++
			}
		}
	}
	t.Logf("%d faults", injected)
	require.Greater(t, injected, 8)
}
