package main

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestCloudParts writes to each kind of store.
func TestCloudParts(t *testing.T) {
	all := clouds(t)
	writePartsSource(t, "src.safetensors")
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			part := func(k int, flags ...string) []string {
				return append([]string{"cp", "-q", "src.safetensors", c.at("dst"), "--max-shard-size", "200B", "--part", fmt.Sprintf("%d/3", k)}, flags...)
			}
			succeeds(t, "cp", "-q", "src.safetensors", c.at("plain"), "--max-shard-size", "200B")
			for _, k := range []int{2, 2, 3, 1} {
				fails(t, 1, "ls", c.at("dst"))
				succeeds(t, part(k)...)
			}
			succeeds(t, part(1)...)
			require.Len(t, c.folder("plain"), 8)
			require.Equal(t, c.folder("plain"), withoutPlan(t, c.folder("dst")))
			require.Len(t, c.objects(), 2*8+1)
			require.Equal(t, "equal\n", succeeds(t, "diff", "src.safetensors", c.at("dst"), "--meta"))
			require.Contains(t, fails(t, 3, part(1, "--dtype", "f16")...), "it was made with no --dtype, and this command has --dtype f16")
			require.Contains(t, fails(t, 3, part(1, "--dtype", "f16", "--force")...), "/dst holds a checkpoint: model.safetensors.index.json")

			before := c.objects()
			defer c.faults.setFault(nil)
			c.faults.setFault(func(_ http.ResponseWriter, r *http.Request) bool {
				for _, name := range []string{"If-None-Match", "X-Goog-If-Generation-Match"} {
					r.Header.Del(name)
				}
				return false
			})
			other := append(part(1), c.at("other"))
			other = slices.Delete(other, 3, 4)
			require.Contains(t, fails(t, 3, other...), "the store has replaced a file that it should only have created")
			require.Equal(t, before, c.objects())
			c.faults.setFault(func(w http.ResponseWriter, r *http.Request) bool {
				creates := r.Header.Get("If-None-Match") == "*" || r.Header.Get("X-Goog-If-Generation-Match") == "0"
				if creates {
					w.WriteHeader(http.StatusNotImplemented)
				}
				return creates
			})
			t.Setenv("AWS_MAX_ATTEMPTS", "1")
			require.Contains(t, fails(t, 3, other...), "unsupported operation")
			require.Equal(t, before, c.objects())
		})
	}
}

// TestPartsFromAway copies from a web server and from a hub. A source that has changed
// since the first part is refused, by its ETag, its time or its commit, and so is another
// folder of the same commit, even if the headers in it are the same. Shards of an index at a
// URL may have the same name in two folders: each of them counts.
func TestPartsFromAway(t *testing.T) {
	t.Chdir(t.TempDir())
	writePartsSource(t, "src.safetensors")
	succeeds(t, "cp", "-q", "src.safetensors", "repo", "--max-shard-size", "500B")
	require.NoError(t, os.WriteFile("repo/config.json", []byte("{}"), 0o666))
	for i, file := range []string{"step-1/model", "step-2/model", "folders/a/x", "folders/b/x"} {
		mkdir(t, "repo", filepath.Dir(file))
		tensors := map[string]safetensors.Tensor{path.Base(path.Dir(file))[:1]: floats(t, []int{1}, float32(i))}
		require.NoError(t, safetensors.WriteFile("repo/"+file+".safetensors", tensors, nil))
	}
	write(t, "repo/folders/model.safetensors.index.json", `{"metadata":{},"weight_map":{"a":"a/x.safetensors","b":"b/x.safetensors"}}`)
	url, _ := startHub(t, "repo")
	index, folders := []string{url + "/model.safetensors.index.json"}, []string{url + "/folders/model.safetensors.index.json"}
	hub, step1, step2 := []string{"hf://owner/name", "--with-files"}, []string{"hf://owner/name/step-1"}, []string{"hf://owner/name/step-2"}
	touch := func(name string) func() {
		return func() { require.NoError(t, os.Chtimes("repo/"+name, time.Time{}, time.Unix(1, 0))) }
	}
	push := func() { startHubAt(t, "repo", strings.Repeat("a", 40)) }
	for i, c := range []struct {
		src    []string
		change func()
		then   []string // the source
		want   string
	}{
		{index, touch("model-00001-of-00003.safetensors"), index, "model-00001-of-00003.safetensors in SRC has changed"},
		{folders, touch("folders/a/x.safetensors"), folders, "a/x.safetensors in SRC has changed"},
		{folders, touch("folders/b/x.safetensors"), folders, "b/x.safetensors in SRC has changed"},
		{hub, push, hub, "owner/name in SRC has changed"},
		{step1, func() {}, step2, "its SRC lacks owner/name/step-2"},
	} {
		plain, dst := fmt.Sprint("plain", i), fmt.Sprint("dst", i)
		part := func(src []string, k int) []string {
			return append([]string{"cp", "-q", "--max-shard-size", "200B", "--part", fmt.Sprintf("%d/3", k)}, append(src, dst)...)
		}
		succeeds(t, append([]string{"cp", "-q", "--max-shard-size", "200B"}, append(c.src, plain)...)...)
		for _, k := range []int{1, 2, 3, 1} {
			succeeds(t, part(c.src, k)...)
		}
		require.Equal(t, tree(t, plain), withoutPlan(t, tree(t, dst)))
		c.change()
		require.Contains(t, fails(t, 3, part(c.then, 1)...), c.want)
	}
	fails(t, 1, "cp", "-q", url+"/model-00001-of-00003.safetensors", "src.safetensors", "twice", "--except", "layers.0",
		"--max-shard-size", "200B", "--part", "1/3") // a tensor in two of them
}

// TestPartsReadOnly requires that a part reads headers, and of the data what its shards
// need: together the parts read it once.
func TestPartsReadOnly(t *testing.T) {
	t.Chdir(t.TempDir())
	tensors := make(map[string]safetensors.Tensor)
	for i := range 16 {
		tensors[fmt.Sprintf("layers.%02d", i)] = counting(t, 250_000)
	}
	require.NoError(t, safetensors.WriteShards("src", tensors, nil, 4_000_000))
	var sent, requests atomic.Int64
	web := http.FileServer(http.Dir("src"))
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		web.ServeHTTP(countingWriter{w, &sent}, r)
	})
	for n := 1; n <= 8; n *= 2 {
		dst := fmt.Sprint("dst", n)
		for k := 1; k <= n; k++ {
			sent.Store(0)
			requests.Store(0)
			succeeds(t, "cp", "-q", url+"/model.safetensors.index.json", dst, "--max-shard-size", "2MB", "--part", fmt.Sprintf("%d/%d", k, n))
			share := int64(16_000_000 / n)
			require.Less(t, sent.Load(), share+500_000, "%d/%d", k, n) // 100 kB are the start of each of the four files
			require.GreaterOrEqual(t, sent.Load(), share)
			require.Less(t, requests.Load(), 20+2*share/1_000_000, "%d/%d", k, n)
		}
		require.Equal(t, "equal\n", succeeds(t, "diff", "src", dst))
	}
}

type countingWriter struct {
	http.ResponseWriter
	n *atomic.Int64
}

func (w countingWriter) Write(p []byte) (int, error) {
	w.n.Add(int64(len(p))) // before the client can see them
	return w.ResponseWriter.Write(p)
}

// TestS3Parts starts parts at once, on a real server too.
func TestS3Parts(t *testing.T) { eachStore(t, testS3Parts) }

func testS3Parts(t *testing.T, s *store) {
	writePartsSource(t, "src.safetensors")
	tensors := map[string]safetensors.Tensor{"big": counting(t, 5<<20)}
	require.NoError(t, safetensors.WriteFile("big.safetensors", tensors, nil))
	write(t, "src/config.json", "{}")
	require.NoError(t, os.Rename("src.safetensors", "src/model.safetensors"))
	args := []string{"cp", "-q", "src", "--max-shard-size", "500B", "--with-files"}
	succeeds(t, append(args, "s3://models/last", "--part", "1/1")...)
	order := s.requests()
	require.Less(t, slices.Index(order, "PUT /models/last/config.json"), slices.Index(order, "PUT /models/last/model.safetensors.index.json"))
	args = []string{"cp", "-q", "src", "big.safetensors", "--max-shard-size", "500B"}
	succeeds(t, append(args, "plain")...)
	for _, n := range []int{1, 3} {
		dst := fmt.Sprintf("s3://models/dst%d", n)
		var all sync.WaitGroup
		codes := make([]int, 2*n)
		for i := range codes {
			all.Add(1)
			go func() {
				defer all.Done()
				cmd := exec.Command(program, append(args, dst, "--part", fmt.Sprintf("%d/%d", i/2+1, n))...)
				cmd.Stderr = os.Stderr
				cmd.Run()
				codes[i] = cmd.ProcessState.ExitCode()
			}()
		}
		all.Wait()
		require.Equal(t, make([]int, 2*n), codes)
		succeeds(t, "cp", "-q", dst, fmt.Sprint("back", n))
		require.Equal(t, "equal\n", succeeds(t, "diff", "plain", dst, "--meta"))
		s.requests()
		succeeds(t, append(args, dst, "--part", fmt.Sprintf("1/%d", n))...)
		require.Empty(t, s.puts(), "nothing is written again")
		require.Contains(t, fails(t, 3, append(args, dst, "--part", fmt.Sprintf("1/%d", n), "--tie")...), "it was made with no --tie, and this command has --tie;")
	}
	require.Contains(t, s.objects(t), "dst3/model.safetensors.index.json") // and no upload is left over
}

// TestPartsFaults refuses each request of a part once, before and after the store has done
// what it asks for. The part ends with 0 or 1, and run again it comes to its end. By default
// it is after, which is the harder case.
func TestPartsFaults(t *testing.T) {
	all := clouds(t)
	writePartsSource(t, "src.safetensors")
	succeeds(t, "cp", "-q", "src.safetensors", "plain", "--max-shard-size", "400B")
	c, places := all["s3"], 0
	args := func() []string {
		return []string{"cp", "-q", "src.safetensors", c.at(fmt.Sprint("dst", places)), "--max-shard-size", "400B", "--part", "1/1"}
	}
	_, count := c.faults.run(t, 0, false, args()...)
	faults := []bool{false}
	if os.Getenv("SAFETENSORS_FAULTS") == "1" {
		faults = []bool{true, false}
	}
	for _, before := range faults {
		good := 0
		for at := 1; at <= count; at++ {
			places++
			r, _ := c.faults.run(t, at, before, args()...)
			require.LessOrEqual(t, r.code, 1, "request %d, %v: %s", at, before, r.stderr)
			if r.code == 0 {
				good++
			}
			succeeds(t, args()...)
			require.Equal(t, "equal\n", succeeds(t, "diff", "plain", c.at(fmt.Sprint("dst", places)), "--meta"))
		}
		if before {
			require.Zero(t, good)
		} else {
			require.Equal(t, 4, good, "three shards and the index are there, whatever the answer was")
		}
	}
}

// TestPartsLate has a part wait for its source while another job takes the plan away, or
// while a source changes: its shard does not appear.
func TestPartsLate(t *testing.T) {
	t.Chdir(t.TempDir())
	writePartsSource(t, "src.safetensors")
	require.NoError(t, safetensors.WriteFile("more.safetensors", map[string]safetensors.Tensor{"more": counting(t, 1<<20)}, nil))
	arrived := make(chan bool, 100)
	var gate atomic.Pointer[sync.WaitGroup]
	web := http.FileServer(http.Dir("."))
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && !strings.HasPrefix(r.Header.Get("Range"), "bytes=0-") { // the data
			arrived <- true
			gate.Load().Wait()
		}
		web.ServeHTTP(w, r)
	})
	start := func() *exec.Cmd {
		closed := new(sync.WaitGroup)
		closed.Add(1)
		gate.Store(closed)
		cmd := exec.Command(program, "cp", "-q", url+"/more.safetensors", "src.safetensors", "dst", "--max-shard-size", "1GB", "--part", "1/1")
		cmd.Stderr = new(strings.Builder)
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { cmd.Process.Kill() })
		<-arrived
		return cmd
	}
	late := start()
	succeeds(t, "cp", "-q", "src.safetensors", "dst", "--max-shard-size", "200B", "--part", "1/1", "--force")
	before := tree(t, "dst")
	maps.DeleteFunc(before, func(name, _ string) bool { return strings.HasSuffix(name, ".tmp") || name == ".safetensors-lock" }) // of the late one, which Windows does not let go
	gate.Load().Done()
	late.Wait()
	require.Equal(t, 3, late.ProcessState.ExitCode(), late.Stderr)
	require.Contains(t, fmt.Sprint(late.Stderr), "another job has replaced the plan")
	require.Equal(t, before, tree(t, "dst"))

	require.NoError(t, os.RemoveAll("dst"))
	late = start()
	require.NoError(t, os.Chtimes("src.safetensors", time.Time{}, time.Unix(1, 0)))
	gate.Load().Done()
	late.Wait()
	require.Equal(t, 3, late.ProcessState.ExitCode(), late.Stderr)
	require.Contains(t, fmt.Sprint(late.Stderr), "src.safetensors has changed since it was opened")
	require.Equal(t, []string{planFile}, list(t, "dst"))

	require.NoError(t, os.RemoveAll("dst"))
	late = start()
	removed, linked := os.Remove("src.safetensors"), os.Symlink("src.safetensors", "src.safetensors")
	gate.Load().Done()
	late.Wait()
	if removed == nil && linked == nil { // an error of the system, which may pass
		require.Equal(t, 1, late.ProcessState.ExitCode(), late.Stderr)
	}
}
