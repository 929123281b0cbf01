//go:build unix

package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// partsRounds is how many rounds TestPartsKilled plays. .ci/run sets it.
const partsRounds = "SAFETENSORS_PARTS"

// keyID is the variable whose value the command sends to S3 with each request.
const keyID = "AWS_ACCESS_KEY_ID="

// A field is where parts are killed: a folder or a bucket.
type field struct {
	dst   string
	files func() map[string]string // of dst
	kill  func(r *running)         // arranges the end of a process
}

// A game is a checkpoint that is written in parts.
type game struct {
	field
	want  map[string]string // the files of plain cp
	flags []string
	n     int
}

// started counts processes: the number of each is in its requests.
var started atomic.Int64

// starts starts a part.
func (g *game) starts(t *testing.T, k int) *running {
	t.Helper()
	r := &running{Cmd: exec.Command(program, append([]string{"cp", "-q", "--part", fmt.Sprintf("%d/%d", k, g.n)}, append(g.flags, g.dst)...)...)}
	r.Stdout, r.Stderr = &r.out, &r.errs
	r.Env = append(os.Environ(), fmt.Sprint(keyID, started.Add(1)))
	require.NoError(t, r.Start())
	t.Cleanup(func() { r.Process.Kill() })
	return r
}

// ends waits for a part, and reports whether it was killed. It may not fail.
func (g *game) ends(t *testing.T, r *running) (killed bool) {
	t.Helper()
	r.Wait()
	if r.ProcessState.ExitCode() == -1 {
		return true
	}
	require.Zero(t, r.ProcessState.ExitCode(), "%q: %s", r.Args, r.errs.String())
	return false
}

// look requires that what is there is of the checkpoint, byte for byte, and that it has an
// index only when it is complete.
func (g *game) look(t *testing.T) {
	t.Helper()
	now := g.files()
	for name, text := range now {
		if strings.HasPrefix(name, ".safetensors-") {
			continue // the plan, a temporary file
		}
		require.True(t, g.want[name] == text, "%s has %d bytes, not the %d of cp; %q", name, len(text), len(g.want[name]), g.flags)
	}
	if _, indexed := now["model.safetensors.index.json"]; indexed {
		require.Subset(t, keysOf(now), keysOf(g.want), "there is an index; %q", g.flags)
	}
}

// play runs all parts, some at once, some more often than once, and kills some, until
// each has come to its end. It returns how many were killed.
func (g *game) play(t *testing.T, random *rand.Rand) (killed int) {
	t.Helper()
	left := random.Perm(g.n)
	for len(left) > 0 {
		batch := left[:min(len(left), 1+random.IntN(4))]
		left = left[len(batch):]
		if random.IntN(3) == 0 { // the same part twice
			batch = append(batch[:len(batch):len(batch)], batch[0])
		}
		if random.IntN(4) == 0 { // one that may have ended long ago
			batch = append(batch[:len(batch):len(batch)], random.IntN(g.n))
		}
		all := make([]*running, len(batch))
		for i, k := range batch {
			all[i] = g.starts(t, k+1)
			if random.IntN(2) == 0 {
				g.kill(all[i])
			}
		}
		for i, r := range all {
			if g.ends(t, r) {
				killed++
				left = append(left, batch[i])
			}
		}
		g.look(t)
	}
	require.Equal(t, keysOf(g.want), keysOf(withoutPlan(t, g.files())), "%q", g.flags) // look has compared the contents
	return killed
}

// newGame makes a random checkpoint, and the files that plain cp makes of it.
func newGame(t *testing.T, random *rand.Rand, f field) *game {
	t.Helper()
	g := &game{field: f, n: 1 + random.IntN(16)}
	if random.IntN(2) == 0 {
		g.n = 1 + random.IntN(4)
	}
	require.NoError(t, os.RemoveAll("src"))
	require.NoError(t, os.RemoveAll("plain"))
	write(t, "src/config.json", `{"a": 1}`)
	tensors := make(map[string]safetensors.Tensor)
	for i := range 1 + random.IntN(20) {
		tensors[fmt.Sprintf("layers.%d.x", i)] = counting(t, random.IntN(1<<random.IntN(18)))
	}
	require.NoError(t, safetensors.WriteFile("src/model.safetensors", tensors, map[string]string{"format": "pt"}))
	g.flags = []string{"src", "--max-shard-size", fmt.Sprintf("%dB", 1+random.IntN(1<<random.IntN(20)))}
	g.flags = append(g.flags, [][]string{nil, {"--dtype", "bf16"}, {"--with-files"}, {"--rename", "s/x/y/"}}[random.IntN(4)]...)
	succeeds(t, append([]string{"cp", "-q"}, append(g.flags, "plain")...)...)
	g.want = tree(t, "plain")
	return g
}

// TestPartsKilled plays random games on a disk and on S3, the same ones each time: only the
// moment of a kill is by chance.
func TestPartsKilled(t *testing.T) {
	rounds, _ := strconv.Atoi(os.Getenv(partsRounds))
	if rounds == 0 {
		rounds = 8
	}
	s := startSniper(t)
	killed, parts := 0, 0
	for round := range rounds {
		random := rand.New(rand.NewPCG(uint64(round), 0))
		name := fmt.Sprint("dst", round)
		f := field{name, func() map[string]string { return tree(t, name) }, func(r *running) {
			delay := time.Duration(random.IntN(30_000)) * time.Microsecond
			time.AfterFunc(delay, func() { r.Process.Kill() })
		}}
		if round%3 == 0 {
			f = field{"s3://models/" + name, s.folder(t, name), func(r *running) {
				s.aim(r, 1+random.IntN(20), random.IntN(2) == 0)
			}}
		}
		g := newGame(t, random, f)
		t.Logf("round %d: %d parts, %q", round, g.n, g.flags)
		killed += g.play(t, random)
		parts += g.n
		require.NoError(t, os.RemoveAll(name))
	}
	t.Logf("%d rounds, %d parts, %d killed", rounds, parts, killed)
	require.NotZero(t, killed)
}

// TestPartsEveryRequest kills a part at each of its requests to S3, before the store has done
// it and after, lets the other part come to its end, and runs the first again. By default
// some of the places are tried.
func TestPartsEveryRequest(t *testing.T) {
	s := startSniper(t)
	tensors := map[string]safetensors.Tensor{"a": counting(t, 40), "b": counting(t, 3<<20), "c": counting(t, 50)} // b is uploaded in parts
	write(t, "src/config.json", `{"a": 1}`)
	require.NoError(t, safetensors.WriteFile("src/model.safetensors", tensors, nil))
	flags := []string{"src", "--max-shard-size", "1MB", "--with-files"}
	succeeds(t, append([]string{"cp", "-q"}, append(flags, "plain")...)...)
	step := 11
	if os.Getenv(partsRounds) != "" {
		step = 1
	}
	places := 0
	for k := 1; k <= 2; k++ {
		for _, before := range []bool{true, false} {
			for at, over := 1+places%step, false; !over; at += step {
				name := fmt.Sprintf("dst%d-%d-%v", k, at, before)
				f := field{"s3://models/" + name, s.folder(t, name), nil}
				g := &game{f, tree(t, "plain"), flags, 2}
				r := g.starts(t, k)
				s.aim(r, at, before)
				over = !g.ends(t, r)
				g.look(t)
				require.False(t, g.ends(t, g.starts(t, 3-k)))
				g.look(t)
				require.False(t, g.ends(t, g.starts(t, k)))
				g.look(t)
				require.Len(t, g.files(), len(g.want)+1)
				places++
			}
		}
	}
	t.Logf("killed at %d places", places-4)
	require.Greater(t, places, 4)
}

// TestPartsEverySystemCall kills a part at each system call that creates, writes, flushes,
// names or removes a file.
func TestPartsEverySystemCall(t *testing.T) {
	strace := programOf(t, "SAFETENSORS_STRACE")
	t.Chdir(t.TempDir())
	writePartsSource(t, "src.safetensors")
	flags := []string{"src.safetensors", "--max-shard-size", "300B"}
	succeeds(t, append([]string{"cp", "-q"}, append(flags, "plain")...)...)
	places := 0
	calls := []string{"openat", "fallocate", "ftruncate", "pwrite64", "write", "fsync", "close", "renameat", "linkat", "mkdirat", "unlinkat"}
	for _, call := range calls {
		for when, killed := 1, true; killed; when++ { // each thread counts its own calls
			places++
			name := fmt.Sprintf("dst%d", places)
			g := &game{field{name, func() map[string]string { return tree(t, name) }, nil}, tree(t, "plain"), flags, 1}
			all := append([]string{"-f", "-o", os.DevNull, "-e", "trace=" + call, "-e", fmt.Sprintf("inject=%s:signal=KILL:when=%d", call, when), program, "cp", "-q", "--part", "1/1"}, append(flags, name)...)
			killed = exec.Command(strace, all...).Run() != nil
			g.look(t)
			require.False(t, g.ends(t, g.starts(t, 1)))
			g.look(t)
			require.Len(t, g.files(), len(g.want)+1, "%s %d", call, when)
			require.NoError(t, os.RemoveAll(name))
		}
	}
	t.Logf("killed at %d places", places-len(calls))
	require.Greater(t, places, 2*len(calls)) // the fewer, the more threads there are
}

// TestPartsFlushFolders: a folder that a part makes is flushed to the disk with its name.
func TestPartsFlushFolders(t *testing.T) {
	strace := programOf(t, "SAFETENSORS_STRACE")
	dir := must(filepath.EvalSymlinks(t.TempDir()))
	t.Chdir(dir)
	writePartsSource(t, "src.safetensors")
	require.NoError(t, exec.Command(strace, "-f", "-y", "-o", "log", "-e", "trace=fsync", program,
		"cp", "-q", "src.safetensors", "new/dst", "--max-shard-size", "300B", "--part", "1/1").Run())
	log := must(os.ReadFile("log"))
	for _, flushed := range []string{dir, filepath.Join(dir, "new"), filepath.Join(dir, "new", "dst")} {
		require.Contains(t, string(log), "<"+flushed+">")
	}
}

// A sniper kills a process at one of its requests, before the store has done it or after.
type sniper struct {
	*store
	mu     sync.Mutex
	target map[string]*target // by id
}

func startSniper(t *testing.T) *sniper {
	s := &sniper{store: startStore(t, fakeS3()), target: make(map[string]*target)}
	s.setFault(s.shoots)
	return s
}

type target struct {
	*running
	left   int // requests
	before bool
}

// aim has the n-th request of a process be its last.
func (s *sniper) aim(r *running, n int, before bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := strings.TrimPrefix(r.Env[len(r.Env)-1], keyID)
	s.target[id] = &target{r, n, before}
}

func (s *sniper) shoots(_ http.ResponseWriter, r *http.Request) bool {
	s.mu.Lock()
	_, scope, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
	id, _, _ := strings.Cut(scope, "/")
	hit := s.target[id]
	if hit != nil {
		hit.left--
	}
	missed := hit == nil || hit.left != 0
	s.mu.Unlock()
	if missed {
		return false
	}
	s.swallow(r, hit.before)
	hit.Process.Kill()
	select {
	case <-r.Context().Done(): // the connection ends with the process
	case <-time.After(time.Minute):
	}
	return true
}

// folder returns a func for the files in a folder. Parts of uploads may be left over.
func (s *sniper) folder(t *testing.T, dir string) func() map[string]string {
	return func() map[string]string { return inFolder(s.contents(t, dir+"/"), dir) }
}
