//go:build unix

package main

import (
	"bytes"
	"crypto/elliptic"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// A running is the command while it runs.
type running struct {
	*exec.Cmd
	in        io.Writer
	out, errs bytes.Buffer
}

func start(t *testing.T, args ...string) *running {
	t.Helper()
	r := &running{Cmd: exec.Command(program, args...)}
	r.in, r.Stdout, r.Stderr = must(r.StdinPipe()), &r.out, &r.errs
	require.NoError(t, r.Start())
	t.Cleanup(func() { r.Process.Kill() })
	return r
}

// writes waits for a new file in a folder. On Linux it has no name until it is complete,
// and is found among the open files of the process.
func (r *running) writes(t *testing.T, dir string) {
	t.Helper()
	full := must(filepath.Abs(dir))
	require.Eventually(t, func() bool {
		fds, _ := filepath.Glob("/proc/" + strconv.Itoa(r.Process.Pid) + "/fd/*")
		for _, fd := range fds {
			if name, err := os.Readlink(fd); err == nil && strings.HasPrefix(name, full+"/") {
				return true
			}
		}
		return len(list(t, dir)) > 0
	}, time.Minute, time.Millisecond)
}

// interrupted presses Ctrl-C and requires a clean end.
func (r *running) interrupted(t *testing.T) {
	t.Helper()
	require.NoError(t, r.Process.Signal(os.Interrupt))
	r.Wait()
	require.Equal(t, 130, r.ProcessState.ExitCode(), r.errs.String())
	require.Equal(t, "safetensors: interrupted\n", r.errs.String())
}

// TestHangup: a terminal that is closed ends a copy as Ctrl-C does: no temporary file and no part
// of an upload stays, although two signals arrive. A copy that nohup has started goes on.
func TestHangup(t *testing.T) {
	t.Chdir(t.TempDir())
	writeSparse(t, "model.safetensors", 8)
	for _, args := range []string{"out/copy.safetensors --dtype f16", "out --max-shard-size 1GiB"} {
		mkdir(t, "out")
		r := start(t, append([]string{"cp", "-q", "model.safetensors"}, strings.Fields(args)...)...)
		r.writes(t, "out")
		require.NoError(t, r.Process.Signal(syscall.SIGHUP))
		r.Process.Signal(syscall.SIGHUP) // it may have ended
		r.Wait()
		require.Equal(t, 130, r.ProcessState.ExitCode(), r.errs.String())
		require.Equal(t, "safetensors: interrupted\n", r.errs.String())
		require.Empty(t, list(t, "out"), args)
	}
	nohup := &running{Cmd: exec.Command("sh", "-c", `trap '' HUP; exec "$0" "$@"`, program, "cp", "-q", "-", "out/ignored.safetensors")}
	nohup.in, nohup.Stderr = must(nohup.StdinPipe()), &nohup.errs
	require.NoError(t, nohup.Start())
	t.Cleanup(func() { nohup.Process.Kill() })
	var data bytes.Buffer
	require.NoError(t, safetensors.Write(&data, map[string]safetensors.Tensor{"x": counting(t, 1<<20)}, nil))
	want := bytes.Clone(data.Bytes())
	must(nohup.in.Write(data.Next(1 << 20))) // more than a pipe holds: the command reads
	require.NoError(t, nohup.Process.Signal(syscall.SIGHUP))
	must(data.WriteTo(nohup.in))
	require.NoError(t, nohup.in.(io.Closer).Close())
	require.NoError(t, nohup.Wait(), nohup.errs.String())
	require.Equal(t, want, must(os.ReadFile("out/ignored.safetensors")))
}

// writeSparse writes a file of n tensors of 256 MiB each that takes no place on the
// disk.
func writeSparse(t testing.TB, name string, n int) {
	t.Helper()
	h := &safetensors.Header{}
	for i := range n {
		h.Tensors = append(h.Tensors, safetensors.TensorInfo{Name: "layers." + strconv.Itoa(i) + ".weight", DType: safetensors.F32, Shape: []int{8192, 8192}})
	}
	start := must(h.AppendBinary(nil))
	require.NoError(t, os.WriteFile(name, start, 0o666))
	require.NoError(t, os.Truncate(name, int64(len(start))+int64(n)<<28))
}

// TestInterruptCopy interrupts copies to a file and to a folder, and a download, once their new
// files are there.
func TestInterruptCopy(t *testing.T) {
	t.Chdir(t.TempDir())
	mkdir(t, "repo")
	writeSparse(t, "repo/model.safetensors", 8)
	startHub(t, "repo")
	for _, args := range []string{
		"repo/model.safetensors out/copy.safetensors", "repo/model.safetensors out/copy.safetensors --dtype f16",
		"repo/model.safetensors out --max-shard-size 1GiB", "hf://owner/name out/copy.safetensors",
		"repo/model.safetensors out/new/folder/", "repo/model.safetensors out/new/folder --max-shard-size 1GiB", "repo/model.safetensors out/new/folder --ranks 2",
	} {
		mkdir(t, "out")
		r := start(t, append([]string{"cp", "-q"}, strings.Fields(args)...)...)
		r.writes(t, "out")
		r.interrupted(t)
		require.Empty(t, list(t, "out"), args)
	}
}

// TestInterruptReaders interrupts the verbs that only read.
func TestInterruptReaders(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("SAFETENSORS_PROGRESS_INTERVAL", "1ms")
	writeSparse(t, "big.safetensors", 256)
	for _, args := range [][]string{
		{"stats", "big.safetensors"}, {"hash", "--tensors", "big.safetensors"}, {"diff", "big.safetensors", "big.safetensors", "--json"},
		{"cp", "big.safetensors", "-"},
	} {
		r := &running{Cmd: exec.Command(program, args...)}
		if args[0] != "cp" {
			r.Stdout = &r.out
		}
		errs := must(r.StderrPipe())
		require.NoError(t, r.Start())
		t.Cleanup(func() { r.Process.Kill() })
		must(errs.Read(make([]byte, 1))) // the progress: it has begun
		require.NoError(t, r.Process.Signal(os.Interrupt))
		var rest bytes.Buffer
		rest.ReadFrom(errs)
		r.Wait()
		require.Equal(t, 130, r.ProcessState.ExitCode(), "%q", args)
		require.Regexp(t, `of \d+ GB, .* left\n`, rest.String())
		require.True(t, strings.HasSuffix(rest.String(), "safetensors: interrupted\n"), rest.String())
	}
}

// TestInterruptPipes interrupts the wait for standard input, and for pipes that the command line
// names. Temporary files are removed.
func TestInterruptPipes(t *testing.T) {
	t.Chdir(t.TempDir())
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	writeShards(t, "model")
	writeKeys(t, "key", elliptic.P256())
	succeeds(t, "sign", "model", "--key", "key.pem")
	require.NoError(t, syscall.Mkfifo("pipe", 0o666))
	for _, args := range []string{
		"ls -", "ls pipe", "verify model pipe", "verify model -", "sign model --key pipe --force", "verify model --signature pipe --public-key key.pub",
		"verify model --signature model.sig --public-key pipe", "verify model --signature model.sig --chain pipe",
	} {
		r := start(t, strings.Fields(args)...)
		if strings.Contains(args, "pipe") {
			defer must(os.OpenFile("pipe", os.O_WRONLY, 0)).Close() // returns when the command opens it
		} else {
			must(r.in.Write(bytes.Repeat([]byte("#\n"), 1<<19))) // more than a pipe holds: the command reads
		}
		r.interrupted(t)
	}
	require.Empty(t, list(t, temp))
}

// TestS3Interrupt interrupts an upload in several parts, and that of an index, by SIGINT and by
// SIGHUP: nothing of the checkpoint is left.
func TestS3Interrupt(t *testing.T) { eachStore(t, testS3Interrupt) }

func testS3Interrupt(t *testing.T, s *store) {
	require.NoError(t, safetensors.WriteFile("big.safetensors", map[string]safetensors.Tensor{"big": counting(t, 6<<20), "second": counting(t, 6<<20)}, nil))
	for size, lost := range map[string]func(*http.Request) bool{
		"5GB":  func(r *http.Request) bool { return r.URL.Query().Get("partNumber") == "2" },
		"30MB": func(r *http.Request) bool { return r.Method == "PUT" && strings.HasSuffix(r.URL.Path, ".index.json") },
	} {
		for _, interrupt := range []os.Signal{os.Interrupt, syscall.SIGHUP} {
			arrived, release := make(chan bool, 100), make(chan bool)
			s.setFault(func(w http.ResponseWriter, r *http.Request) bool {
				if !lost(r) {
					return false
				}
				arrived <- true
				<-release
				return size != "5GB" // an index never comes to the store
			})
			r := start(t, "cp", "-q", "big.safetensors", "s3://models/folder", "--max-shard-size", size)
			<-arrived
			require.NoError(t, r.Process.Signal(interrupt))
			r.Wait()
			close(release) // the part comes to an upload that is gone: while both run, a store may keep it
			require.Equal(t, 130, r.ProcessState.ExitCode(), r.errs.String())
			require.Equal(t, "safetensors: interrupted\n", r.errs.String())
			require.Empty(t, s.objects(t))
		}
	}
}

// TestMemory runs each verb on a file that is larger than the memory that it may take.
// The size of the file makes no difference: 64 GiB took the same.
func TestMemory(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector takes more")
	}
	if runtime.GOOS != "linux" {
		t.Skip("the peak is in a file of Linux")
	}
	t.Chdir(t.TempDir())
	t.Setenv(statusFile, "status")
	writeSparse(t, "big.safetensors", 5)
	bucket := filepath.Join(t.TempDir(), "bucket")
	for _, args := range [][]string{
		{"cp", "big.safetensors", "copy.safetensors"},
		{"cp", "big.safetensors", "half.safetensors", "--dtype", "bf16"},
		{"cp", "big.safetensors", "shards", "--max-shard-size", "500MB"},
		{"cp", "big.safetensors", "shards", "--max-shard-size", "500MB", "--part", "1/1", "--dtype", "bf16"},
		{"cp", "big.safetensors", "-"},
		{"cp", "big.safetensors", "file://" + filepath.ToSlash(bucket), "--max-shard-size", "1GB"},
		{"stats", "big.safetensors"}, {"hash", "--tensors", "big.safetensors"}, {"diff", "big.safetensors", "copy.safetensors"},
		{"show", "big.safetensors", "layers.2.weight"}, {"check", "big.safetensors"}, {"ls", "big.safetensors"},
		{"meta", "copy.safetensors", "a=b", "--in-place"},
	} {
		cmd := exec.Command(program, append(args, "-q")...)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		require.NoError(t, cmd.Run(), "%q: %s", args, &errs)
		status := must(os.ReadFile("status"))
		_, after, found := strings.Cut(string(status), "VmHWM:")
		require.True(t, found, "%s", status)
		peak := must(strconv.Atoi(strings.Fields(after)[0]))
		t.Logf("%4d MiB: %q", peak>>10, args)
		require.Less(t, peak>>10, 512, "%q", args)
		for _, name := range []string{"half.safetensors", "shards", bucket} {
			require.NoError(t, os.RemoveAll(name))
		}
	}
}
