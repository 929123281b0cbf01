package apitest_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

// TestKilledWrite kills processes that save. SAFETENSORS_TEST_KILLS says how many are
// killed at a moment of chance.
func TestKilledWrite(t *testing.T) {
	if name := os.Getenv(killedHalfway); name != "" {
		saveHalf(t, name)
		return
	}
	if name := os.Getenv(killedAnywhere); name != "" {
		saveForever(t, name)
		return
	}
	testplatform.NeedProcesses(t)
	t.Run("halfway", testKilledHalfway)
	rounds := 6
	if testplatform.Long() {
		rounds = 20
	}
	t.Run("anywhere", func(t *testing.T) { testKilledAnywhere(t, rounds) })
}

// These variables make this test binary save to the name in them.
const (
	killedHalfway  = "SAFETENSORS_TEST_KILL"
	killedAnywhere = "SAFETENSORS_TEST_KILL_ANYWHERE"
)

// saver returns a command that runs this test binary as a saver.
func saver(t *testing.T, variable, name string) *exec.Cmd {
	cmd := exec.Command(must(os.Executable()), "-test.run", "^TestKilledWrite$")
	cmd.Env = append(os.Environ(), variable+"="+name)
	return cmd
}

// temporary returns how many temporary files are in a folder.
func temporary(dir string) int {
	return len(must(filepath.Glob(filepath.Join(dir, osfile.TempPrefix+"*.tmp"))))
}

// saveHalf saves tensors that kill the process when they are read beyond the first MiB: with
// Create if the name says so, with WriteFile, or with WriteShards.
func saveHalf(t *testing.T, name string) {
	x := counting(U32, 1<<22)
	file := saved(map[string]Tensor{"x": x}, nil)
	killing := readerAtFunc(func(b []byte, off int64) (int, error) {
		if off > 1<<20 {
			if p, err := os.FindProcess(os.Getpid()); err != nil || p.Kill() != nil {
				os.Exit(1)
			}
			select {}
		}
		return bytes.NewReader(file).ReadAt(b, off)
	})
	tensors := maps.Collect(must(NewFile(killing, int64(len(file)))).Tensors())
	switch {
	case filepath.Base(name) == "create.safetensors":
		require.NoError(t, createFile(name, tensors, 1<<16))
	case filepath.Ext(name) == ".safetensors":
		require.NoError(t, WriteFile(name, tensors, nil))
	default:
		tensors["a"] = counting(U32, 1)
		require.NoError(t, WriteShards(name, tensors, nil, 4))
	}
}

// testKilledHalfway kills a process in the middle of WriteFile, of Create and of
// WriteShards, over existing files and over none. They are unchanged. Where the file
// system can have files without a name, nothing else is left.
func testKilledHalfway(t *testing.T) {
	kill := func(name string) {
		out, err := saver(t, killedHalfway, name).CombinedOutput()
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit, "%s", out)
		require.NotContains(t, string(out), "FAIL")
	}
	for _, base := range []string{"create.safetensors", "writefile.safetensors", "folder"} {
		name := filepath.Join(t.TempDir(), base)
		kill(name)
		require.ErrorIs(t, errorOf(Open(name)), fs.ErrNotExist)
		require.NoError(t, saveGeneration(name, 1))
		dir := name
		if base != "folder" {
			dir = filepath.Dir(name)
		}
		before := listDir(dir)
		kill(name)
		require.EqualValues(t, 1, must(generationOf(name)))
		if testplatform.HasUnnamedFiles(t, dir) {
			require.Zero(t, temporary(dir))
			require.Equal(t, before, listDir(dir), "nothing is left")
		} else {
			require.Greater(t, len(listDir(dir)), len(before), "it was killed while writing")
		}
	}
}

// saveGeneration saves to a file or a folder, in another number of shards each time.
func saveGeneration(name string, n int) error {
	if filepath.Ext(name) == ".safetensors" {
		return WriteFile(name, generation(n), nil)
	}
	return WriteShards(name, generation(n), nil, []int64{16, 16, 32, 48}[n%4])
}

// saveForever saves one generation after the other, from the one after that in name
// on, and says which are saved, until it is killed or its parent is.
func saveForever(t *testing.T, name string) {
	go func() {
		io.Copy(io.Discard, os.Stdin) // the parent holds the other end
		os.Exit(1)
	}()
	n := must(generationOf(name))
	fmt.Printf("\nsaved %d.\n", n)
	for n := int(n) + 1; ; n++ {
		if err := saveGeneration(name, n); err == nil {
			fmt.Printf("\nsaved %d.\n", n)
		} else {
			require.False(t, testplatform.ReplacesOpenFiles, err) // elsewhere the target may be open
		}
	}
}

// testKilledAnywhere kills processes that save while this one opens what they save,
// after a random number of times. It sees whole generations only, none older than
// what is known to be saved, and at the end at most one that is newer.
func testKilledAnywhere(t *testing.T, rounds int) {
	if text := os.Getenv("SAFETENSORS_TEST_KILLS"); text != "" {
		rounds = must(strconv.Atoi(text))
	}
	opens := 2000 // of a round, at most
	if testing.Short() {
		opens = 400
	}
	random := rand.New(rand.NewPCG(3, 4))
	for _, name := range []string{"model.safetensors", "checkpoint"} {
		name := filepath.Join(t.TempDir(), name)
		require.NoError(t, saveGeneration(name, 0))
		opened, gone, last := 0, 0, 0
		for range rounds / 2 {
			s := startSaver(t, name)
			for range random.IntN(opens) {
				known := s.saved.Load()
				got, err := generationOf(name)
				if err == nil {
					require.GreaterOrEqual(t, int64(got), known)
					opened++
					continue
				}
				require.NotErrorIs(t, err, errMixture, "saved %d before, %d after", known, s.saved.Load())
				if testplatform.ReplacesOpenFiles { // elsewhere nobody may open a file that is being replaced
					require.NotEqual(t, ".safetensors", filepath.Ext(name), "a file can always be opened: %v", err)
				}
				gone++
			}
			s.kill(t)
			got := must(generationOf(name))
			require.GreaterOrEqual(t, int64(got), s.saved.Load())
			if testplatform.ReplacesOpenFiles {
				require.LessOrEqual(t, int64(got), s.saved.Load()+1)
			}
			last = int(got)
		}
		require.Positive(t, opened)
		t.Logf("%s: %d generations, opened %d times, %d times the shards were gone, %d temporary files left",
			filepath.Base(name), last, opened, gone, temporary(filepath.Dir(name))+temporary(name))
		require.NoError(t, saveGeneration(name, last+1))
		require.Zero(t, temporary(name), "WriteShards removes what was left")
	}
}

// A runningSaver is a process in saveForever.
type runningSaver struct {
	*exec.Cmd
	saved atomic.Int64 // the last generation that it has saved, or -1
	done  chan struct{}
}

// startSaver starts a saver and waits until it saves.
func startSaver(t *testing.T, name string) *runningSaver {
	s := &runningSaver{Cmd: saver(t, killedAnywhere, name), done: make(chan struct{})}
	s.saved.Store(-1)
	s.Stderr = os.Stderr
	must(s.StdinPipe())
	out := must(s.StdoutPipe())
	require.NoError(t, s.Start())
	t.Cleanup(func() { s.Process.Kill(); s.Wait() }) // if the test fails
	go func() {
		defer close(s.done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var n int64
			if _, err := fmt.Sscanf(lines.Text(), "saved %d.", &n); err == nil { // the line was not cut off
				s.saved.Store(n)
			}
		}
	}()
	require.Eventually(t, func() bool { return s.saved.Load() >= 0 }, time.Minute, time.Millisecond, "the saver saves nothing")
	return s
}

// kill kills the process and waits for its last words.
func (s *runningSaver) kill(t *testing.T) {
	require.NoError(t, s.Process.Kill())
	<-s.done
	var exit *exec.ExitError
	require.True(t, errors.As(s.Wait(), &exit) && !exit.Exited() || runtime.GOOS == "windows", "it was killed")
}
