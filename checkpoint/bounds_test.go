package checkpoint_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/checkpoint"
	"github.com/stretchr/testify/require"
)

// weights returns a file with tensors of F32 [2], by name: both elements have the value.
func weights(t testing.TB, values map[string]float32) string {
	t.Helper()
	tensors := make(map[string]safetensors.Tensor)
	for name, v := range values {
		x, err := safetensors.NewTensor(safetensors.F32, []int{2}, []float32{v, v})
		require.NoError(t, err)
		tensors[name] = x
	}
	var b bytes.Buffer
	require.NoError(t, safetensors.Write(&b, tensors, map[string]string{"format": "pt"}))
	return b.String()
}

// index returns an index of tensors and their shards.
func index(t testing.TB, shards map[string]string) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{}, "weight_map": shards})
	require.NoError(t, err)
	return string(text)
}

// check returns the findings of a file system, as texts.
func check(t testing.TB, fsys fs.FS) []string {
	t.Helper()
	found, err := checkpoint.Check(fsys, ".")
	require.NoError(t, err)
	var texts []string
	for _, f := range found {
		texts = append(texts, f.String())
	}
	return texts
}

// TestTooManyFiles: a directory of more than 10,000 files with weights is refused before any of them
// is opened, and so is one of endlessly many directories.
func TestTooManyFiles(t *testing.T) {
	fsys := make(fstest.MapFS)
	for i := range 10_001 {
		fsys[fmt.Sprintf("x%d.safetensors", i)] = &fstest.MapFile{}
	}
	_, err := checkpoint.Check(onlyListed{fsys}, ".")
	require.ErrorContains(t, err, "10001 files with weights exceed the limit of 10000")
	_, err = checkpoint.OpenFS(onlyListed{fsys}, ".")
	require.ErrorContains(t, err, "exceed the limit of 10000")
	_, err = checkpoint.Check(endlessFS{}, ".")
	require.ErrorContains(t, err, "more than 10000 directories")
}

// An endlessFS has a directory in each directory.
type endlessFS struct{}

func (endlessFS) Open(name string) (fs.File, error) {
	return fstest.MapFS{"d/d": {Mode: fs.ModeDir}}.Open("d") // always a directory
}

func (endlessFS) ReadDir(name string) ([]fs.DirEntry, error) {
	return fs.ReadDir(fstest.MapFS{"d": {Mode: fs.ModeDir}}, ".")
}

// An onlyListed file system fails when a file in it is opened.
type onlyListed struct{ fstest.MapFS }

func (o onlyListed) Open(name string) (fs.File, error) {
	if info, err := o.MapFS.Stat(name); err == nil && !info.IsDir() {
		return nil, errors.New("a file was opened")
	}
	return o.MapFS.Open(name)
}

// TestLongTexts: a config of more than 4 MiB, a list of parts of more, and an index of more than 64 MiB
// are unreadable.
func TestLongTexts(t *testing.T) {
	long := strings.Repeat(" ", 4<<20) + "{}"
	for _, name := range []string{"config.json", "modules.json", "model_index.json", "adapter_config.json"} {
		found := check(t, files(map[string]string{"model.safetensors": weights(t, map[string]float32{"x": 1}), name: long}))
		require.Len(t, found, 1, name)
		require.Contains(t, found[0], "unreadable: "+fmt.Sprintf("%q", name))
		require.Contains(t, found[0], "longer than the limit")
	}
	found := check(t, files(map[string]string{"model.safetensors.index.json": strings.Repeat(" ", 64<<20) + "{}"}))
	require.Len(t, found, 1)
	require.Contains(t, found[0], "longer than")
}

// A countingFS counts how often each file is opened.
type countingFS struct {
	fs.FS
	mu    sync.Mutex
	opens map[string]int
}

func (c *countingFS) Open(name string) (fs.File, error) {
	c.mu.Lock()
	c.opens[name]++
	c.mu.Unlock()
	return c.FS.Open(name)
}

// TestOpensOnce: each file with weights, each index and each config of a sound folder is opened once.
func TestOpensOnce(t *testing.T) {
	shards := map[string]string{}
	all := map[string]string{"config.json": `{"model_type":"x"}`, "README.md": ""}
	for i := range 50 {
		name, tensor := fmt.Sprintf("model-%05d-of-00050.safetensors", i+1), fmt.Sprintf("t%d", i)
		all[name] = weights(t, map[string]float32{tensor: 1})
		shards[tensor] = name
	}
	all["model.safetensors.index.json"] = index(t, shards)
	fsys := &countingFS{FS: files(all), opens: make(map[string]int)}
	require.Empty(t, check(t, fsys))
	require.Zero(t, fsys.opens["README.md"])
	delete(all, "README.md")
	for name := range all {
		require.Equal(t, 1, fsys.opens[name], name)
	}
}

// TestIrregularFiles: pipes are not waited for, and a link to nothing is missing.
func TestIrregularFiles(t *testing.T) {
	fsys := files(map[string]string{"config.json": "{}"})
	fsys["model.safetensors"] = &fstest.MapFile{Mode: fs.ModeNamedPipe | 0o666}
	found := check(t, fsys)
	require.Equal(t, []string{`unreadable: "model.safetensors" cannot be read: it is not a regular file`}, found)
	fsys = files(map[string]string{"model.safetensors": weights(t, map[string]float32{"a": 1})})
	fsys["config.json"] = &fstest.MapFile{Mode: fs.ModeNamedPipe | 0o666}
	require.Equal(t, []string{`unreadable: "config.json" cannot be read: it is not a regular file`}, check(t, fsys))
	if runtime.GOOS == "windows" {
		return
	}
	dir := t.TempDir()
	require.NoError(t, os.Symlink("nothing", filepath.Join(dir, "model.safetensors")))
	found = check(t, os.DirFS(dir))
	require.Len(t, found, 1)
	require.Contains(t, found[0], "link to nothing")

	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	require.NoError(t, os.Remove(filepath.Join(dir, "model.safetensors")))
	require.NoError(t, os.Symlink(filepath.Join(t.TempDir(), "x"), filepath.Join(dir, "model.safetensors")))
	judged, err := checkpoint.Check(root.FS(), ".")
	if _, ok := root.FS().(interface{ ReadLink(string) (string, error) }); ok {
		require.NoError(t, err)
		require.Len(t, judged, 1)
		require.Contains(t, judged[0].Text, "leads out of the directory")
	} else {
		require.Error(t, err, "an os.Root follows no link that leaves it")
	}
}

// TestNamesInTexts: names of files and tensors are quoted and cut, and a text is one line.
func TestNamesInTexts(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for _, tensor := range []string{long, "\x1b[1mred\n"} {
		found := check(t, files(map[string]string{
			"model.safetensors.index.json":     index(t, map[string]string{"a": "model-00001-of-00001.safetensors"}),
			"model-00001-of-00001.safetensors": weights(t, map[string]float32{"a": 1, tensor: 2}),
		}))
		require.Len(t, found, 1)
		require.Less(t, len(found[0]), 1000)
		require.NotContains(t, found[0], "\n")
		require.NotContains(t, found[0], "\x1b")
	}
	found := check(t, files(map[string]string{"model.safetensors.index.json": index(t, map[string]string{"a": "no\nthing.safetensors"})}))
	require.Len(t, found, 1)
	require.NotContains(t, found[0], "\n")
}

// A failingFS fails to read a file, as a network would.
type failingFS struct {
	fs.FS
	name string
}

var errNetwork = errors.New("connection reset")

func (f failingFS) Open(name string) (fs.File, error) {
	if name == f.name {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errNetwork}
	}
	return f.FS.Open(name)
}

// TestNoVerdictOnWhatWasNotRead: a file that cannot be read for a reason that is not its content is an
// error, and there are no findings.
func TestNoVerdictOnWhatWasNotRead(t *testing.T) {
	fsys := files(map[string]string{
		"config.json": "{}", "model_index.json": "{}", "model.safetensors.index.json": index(t, map[string]string{"a": "a.safetensors"}),
		"a.safetensors": weights(t, map[string]float32{"b": 1}),
	})
	require.NotEmpty(t, check(t, fsys))
	for name := range fsys {
		found, err := checkpoint.Check(failingFS{fsys, name}, ".")
		require.ErrorIs(t, err, errNetwork, name)
		require.Nil(t, found)
	}
	_, err := checkpoint.Check(fsys, "none")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// TestReplacedWhileJudged: a directory whose files are replaced while it is judged gives the verdict on
// one of the two, a difference between them, or an error. It never panics or hangs.
func TestReplacedWhileJudged(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		temp := filepath.Join(dir, "."+name)
		require.NoError(t, os.WriteFile(temp, []byte(text), 0o666))
		_ = os.Rename(temp, filepath.Join(dir, name)) // which Windows refuses for an open file
	}
	stop, done := make(chan struct{}), make(chan struct{})
	versions := make(map[string]bool)
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			values := map[string]float32{"a": float32(i)}
			if i%2 == 1 {
				values["b"] = 1
			}
			write("model.safetensors", weights(t, values))
		}
	}()
	for until := time.Now().Add(100 * time.Millisecond); time.Now().Before(until); {
		_, _ = checkpoint.Check(os.DirFS(dir), ".")
		if v, err := checkpoint.Version(os.DirFS(dir), "."); err == nil {
			versions[v] = true
		}
		if f, err := checkpoint.Open(dir); err == nil {
			require.NoError(t, f.Close())
		}
	}
	close(stop)
	<-done
	require.NotEmpty(t, versions)
	require.Empty(t, check(t, os.DirFS(dir)))
}

// written returns a file with some tensors.
func written(t testing.TB, tensors map[string]safetensors.Tensor) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, safetensors.Write(&b, tensors, map[string]string{"format": "pt"}))
	return b.String()
}
