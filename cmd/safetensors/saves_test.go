//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/stretchr/testify/require"
)

// stepOf names the operation on the file system, by its number, at which a command ends by SIGKILL
// ("kill 3"), stops until its standard input is closed ("wait 3"), or from which on the file system
// has no rename ("rename 1").
const stepOf = "SAFETENSORS_TEST_STEP"

func init() {
	s := &steps{}
	if n, _ := fmt.Sscan(os.Getenv(stepOf), &s.does, &s.at); n == 2 {
		osfile.Wrap(func(system osfile.System) osfile.System {
			s.System = system
			return s
		})
	}
}

// steps counts the operations of a System that change what others see, or look at it.
type steps struct {
	osfile.System
	does string
	at   int64
	n    atomic.Int64
}

func (s *steps) step() {
	if s.n.Add(1) != s.at {
		return
	}
	switch s.does {
	case "kill":
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "wait":
		fmt.Println("waiting")
		os.Stdin.Read(make([]byte, 1))
	}
}

func (s *steps) ReadDir(name string) ([]os.DirEntry, error) {
	s.step()
	return s.System.ReadDir(name)
}

func (s *steps) Mkdir(name string, mode os.FileMode) error {
	s.step()
	return s.System.Mkdir(name, mode)
}

func (s *steps) Lock(dir string) (unlock func(), err error) {
	s.step()
	return s.System.Lock(dir)
}

func (s *steps) Rename(from, to string) error {
	s.step()
	if s.does == "rename" {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: syscall.ENOSYS}
	}
	return s.System.Rename(from, to)
}

func (s *steps) Remove(name string) error {
	s.step()
	return s.System.Remove(name)
}

func (s *steps) OpenDir(name string) (osfile.Folder, error) {
	s.step()
	return s.System.OpenDir(name)
}

// at starts a command that does something at a step.
func at(t *testing.T, does string, step int, args ...string) *running {
	t.Helper()
	r := &running{Cmd: exec.Command(program, args...)}
	r.in, r.Stdout, r.Stderr = must(r.StdinPipe()), &r.out, &r.errs
	r.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d", stepOf, does, step))
	if does == "wait" {
		r.Stdout = nil
	}
	return r
}

// writeSavedModels writes models to copy: a and b are folders with shards of the same names, c is one of
// other names, one is a single file, p and q are pipelines of two models.
func writeSavedModels(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	model := func(dir, stem string, first float32, shards int) {
		tensors := map[string]safetensors.Tensor{}
		for i := range 6 {
			tensors[fmt.Sprintf("layers.%d", i)] = floats(t, []int{2}, first, float32(i))
		}
		size := 48 / shards
		require.NoError(t, safetensors.WriteShards(dir, tensors, nil, int64(size)))
		for _, name := range list(t, dir) {
			text := strings.ReplaceAll(string(must(os.ReadFile(filepath.Join(dir, name)))), "model-", stem+"-")
			require.NoError(t, os.Remove(filepath.Join(dir, name)))
			write(t, filepath.Join(dir, strings.Replace(name, "model", stem, 1)), text)
		}
		write(t, filepath.Join(dir, "config.json"), fmt.Sprintf(`{"first":%v}`, first))
	}
	model("a", "model", 1, 3)
	model("b", "model", 2, 3)
	model("c", "diffusion_pytorch_model", 3, 2)
	model("one", "model", 4, 1)
	for i, pipeline := range []string{"p", "q"} {
		model(pipeline+"/unet", "diffusion_pytorch_model", float32(10*i+5), 2)
		model(pipeline+"/vae", "diffusion_pytorch_model", float32(10*i+6), 1)
		write(t, pipeline+"/model_index.json", fmt.Sprintf(`{"_class_name": "X%d", "unet": ["diffusers", "U"], "vae": ["diffusers", "V"]}`, i))
	}
}

// holds returns which of some models a folder holds, with all of its files and no others, "" for
// none of them.
func holds(t *testing.T, dst string, models map[string]map[string]string) string {
	t.Helper()
	now := tree(t, dst)
	for name, want := range models {
		if len(now) == len(want) && contentsOf(now) == contentsOf(want) {
			return name
		}
	}
	return ""
}

// contentsOf returns a text that tells the files of a model apart from any others, however its
// shards are named.
func contentsOf(files map[string]string) string {
	var all []string
	for _, name := range keysOf(files) {
		dir, base := filepath.Split(name)
		switch {
		case strings.HasSuffix(name, ".safetensors.index.json"):
			all = append(all, dir+base) // names shards
		case strings.HasSuffix(name, ".safetensors"):
			all = append(all, dir+files[name])
		default:
			all = append(all, name+files[name])
		}
	}
	return fmt.Sprintf("%q", all)
}

// alone returns the files that each copy makes when it runs alone, by the first word of its source.
func alone(t *testing.T, copies ...string) map[string]map[string]string {
	t.Helper()
	models := map[string]map[string]string{}
	for _, args := range copies {
		succeeds(t, commandOf(args, "alone")...)
		models[args] = tree(t, "alone")
		delete(models[args], ".safetensors-plan.json")
		require.NoError(t, os.RemoveAll("alone"))
	}
	return models
}

// commandOf returns the command line of a copy in which DST stands for the destination.
func commandOf(args, dst string, flags ...string) []string {
	return append(strings.Fields(strings.ReplaceAll(args, "DST", dst)), flags...)
}

// TestTwoCopies stops a copy at each of its steps, while another one into the same folder runs from
// its beginning to its end, then lets it go on. The folder holds one of the models, whole. Without
// --force, only the copy of that model has succeeded, and the error of the other one says why.
func TestTwoCopies(t *testing.T) {
	writeSavedModels(t)
	const a, b, one = "cp -q a DST --with-files", "cp -q b DST --with-files", "cp -q one DST --with-files"
	pairs := [][2]string{
		{a, b}, {a, one}, {one, a}, {"cp -q c DST --with-files", "cp -q p/unet DST --with-files"},
		{"cp -q p DST --with-files", "cp -q q DST --with-files"},
		{"merge -q a b DST", "cp -q one DST --with-files --max-shard-size 20B"},
	}
	stop := 1
	if os.Getenv("SAFETENSORS_FAULTS") != "1" {
		stop = 3
	}
	for i, pair := range pairs {
		for _, flags := range [][]string{nil, {"--force"}} {
			models := alone(t, pair[:]...)
			steps := 0
			for n := 1 + i%stop; twoCopies(t, pair, models, n, flags...); n += stop {
				steps++
			}
			require.Greater(t, steps, 3, pair)
		}
	}
}

// twoCopies reports whether the first copy has a step of that number.
func twoCopies(t *testing.T, pair [2]string, models map[string]map[string]string, n int, flags ...string) (stopped bool) {
	t.Helper()
	const dst = "dst"
	require.NoError(t, os.RemoveAll(dst))
	first := at(t, "wait", n, commandOf(pair[0], dst, flags...)...)
	out := must(first.StdoutPipe())
	require.NoError(t, first.Start())
	defer first.Process.Kill()
	word := make([]byte, len("waiting"))
	if k, _ := out.Read(word); k > 0 {
		stopped = true
	}
	second := runs(t, commandOf(pair[1], dst, flags...)...)
	first.in.(*os.File).Close()
	first.Wait()
	code := first.ProcessState.ExitCode()
	where := fmt.Sprintf("%q %q, step %d: %d %s, %d %s; %q", pair, flags, n, code, first.errs.String(), second.code, second.stderr, keysOf(tree(t, dst)))
	have := holds(t, dst, models)
	require.NotEmpty(t, have, where)
	switch {
	case code == 0 && second.code == 0:
		require.NotEmpty(t, flags, where)
	case code == 0:
		require.Equal(t, pair[0], have, where)
	default:
		require.Zero(t, second.code, where)
		require.Equal(t, pair[1], have, where)
	}
	for code, text := range map[int]string{code: first.errs.String(), second.code: second.stderr} {
		if code != 0 {
			require.Equal(t, 1, code, where)
			require.Regexp(t, "another process is writing to dst|exists( with another content)?; --force replaces it", text, where)
		}
	}
	return stopped
}

// TestCopiesAtOnce starts several copies into one folder at the same time. The folder holds one of
// the models, whole, of a copy that has succeeded.
func TestCopiesAtOnce(t *testing.T) {
	writeSavedModels(t)
	copies := []string{"cp -q a DST --with-files", "cp -q b DST --with-files", "cp -q one DST --with-files"} // c has another stem, and would stay beside these
	models := alone(t, copies...)
	rounds := 3
	if os.Getenv("SAFETENSORS_FAULTS") == "1" {
		rounds = 60
	}
	for round := range rounds {
		for _, flags := range [][]string{nil, {"--force"}} {
			require.NoError(t, os.RemoveAll("dst"))
			all := make(map[string]*running)
			for _, args := range copies[:2+round%2] {
				all[args] = start(t, commandOf(args, "dst", flags...)...)
			}
			succeeded := 0
			for _, r := range all {
				if r.Wait(); r.ProcessState.ExitCode() == 0 {
					succeeded++
				}
			}
			have := holds(t, "dst", models)
			require.NotEmpty(t, have, "%q", keysOf(tree(t, "dst")))
			require.Zero(t, all[have].ProcessState.ExitCode())
			if flags == nil {
				require.Equal(t, 1, succeeded)
			}
		}
	}
}

// TestCopyAndParts stops a part at each of its steps, while a copy of another model into the same
// folder runs, and a copy while a part does. One of them has the folder.
func TestCopyAndParts(t *testing.T) {
	writeSavedModels(t)
	const part, whole = "cp -q a DST --max-shard-size 16B --part 1/1", "cp -q one/model.safetensors DST"
	models := alone(t, part, whole)
	for _, pair := range [][2]string{{part, whole}, {whole, part}} {
		for n := 1; ; n++ {
			require.NoError(t, os.RemoveAll("dst"))
			first := at(t, "wait", n, commandOf(pair[0], "dst")...)
			out := must(first.StdoutPipe())
			require.NoError(t, first.Start())
			k, _ := out.Read(make([]byte, 10))
			second := runs(t, commandOf(pair[1], "dst")...)
			first.in.(*os.File).Close()
			first.Wait()
			where := fmt.Sprintf("%q, step %d: %s; %s; %q", pair, n, first.errs.String(), second.stderr, list(t, "dst"))
			os.Remove("dst/.safetensors-plan.json")
			have := holds(t, "dst", models)
			require.NotEmpty(t, have, where)
			require.Equal(t, have == pair[0], first.ProcessState.ExitCode() == 0, where)
			require.Equal(t, have == pair[1], second.code == 0, where)
			if k == 0 {
				require.Greater(t, n, 3)
				break
			}
		}
	}
}

// TestKilledForce ends cp --force by SIGKILL at each of its steps. The folder opens as one of the
// two models. The next copy, of the same model, or of one in a single file, leaves its own files and
// no others, except those of a model with another stem.
func TestKilledForce(t *testing.T) {
	writeSavedModels(t)
	copies := []string{"cp -q b DST", "cp -q one/model.safetensors DST", "cp -q one/model.safetensors DST --max-shard-size 16B"}
	diffusion := []string{"cp -q c DST", "cp -q p/unet DST"}
	models := alone(t, slices.Concat(copies, diffusion)...)
	for _, scene := range [][2]string{
		{"cp -q c DST", "cp -q b DST"}, {"cp -q one/model.safetensors DST", "cp -q b DST"}, {"cp -q a DST", "cp -q b DST"},
		{"cp -q a DST", "cp -q one/model.safetensors DST"}, {"cp -q a DST", "cp -q a DST --except layers.0"}, {"cp -q c DST", "cp -q p/unet DST"},
	} {
		for n, ended := 1, false; !ended; n++ {
			require.NoError(t, os.RemoveAll("dst"))
			succeeds(t, commandOf(scene[0], "dst")...)
			r := at(t, "kill", n, commandOf(scene[1], "dst", "--force")...)
			require.NoError(t, r.Start())
			r.Wait()
			ended = r.ProcessState.ExitCode() == 0
			where := fmt.Sprintf("%q, step %d: %s%q", scene, n, r.errs.String(), list(t, "dst"))
			require.True(t, ended || r.ProcessState.ExitCode() == -1, where)
			opened := 0
			for _, args := range scene {
				if r := runs(t, "diff", "-q", strings.Fields(args)[2], "dst"); r.code == 0 {
					opened++
				}
			}
			if !strings.Contains(scene[1], "--except") { // which differs from what is copied
				require.Equal(t, 1, opened, where)
			}
			next := copies[n%len(copies)]
			if scene[1] == diffusion[1] {
				next = diffusion[n%len(diffusion)]
			}
			succeeds(t, commandOf(next, "dst", "--force")...)
			if scene[0] == diffusion[0] && scene[1] != diffusion[1] {
				for name, text := range models[diffusion[0]] {
					require.Equal(t, text, tree(t, "dst")[name], where)
					require.NoError(t, os.Remove(filepath.Join("dst", name)))
				}
			}
			require.Equal(t, next, holds(t, "dst", models), "%s; %q", where, list(t, "dst"))
		}
	}
}

// TestSweep: a copy removes the temporary files of copies that were killed, and leaves those of
// saves to a single file, which may still run.
func TestSweep(t *testing.T) {
	writeSavedModels(t)
	for _, name := range []string{".safetensors-shards-0123456789abcdef.tmp", ".safetensors-0123456789abcdef.tmp"} {
		write(t, "dst/"+name, "data")
	}
	succeeds(t, "cp", "-q", "a", "dst")
	require.Contains(t, list(t, "dst"), ".safetensors-0123456789abcdef.tmp")
	require.Len(t, list(t, "dst"), 5)
}

// TestRecordOfStrangers: the record that a folder comes with removes no file but weights of that
// version, in that folder.
func TestRecordOfStrangers(t *testing.T) {
	writeSavedModels(t)
	succeeds(t, "cp", "-q", "a", "dst")
	write(t, "other.safetensors", "x")
	write(t, "dst/notes.txt", "x")
	write(t, "dst/mine.safetensors", "x")
	write(t, "dst/.safetensors-copy.json", `{"Old": {"../other.safetensors": "", "mine.safetensors": "1"}, "New": {"../other.safetensors": -1, "notes.txt": -1, "mine.safetensors": 2}}`)
	succeeds(t, "cp", "-q", "b", "dst", "--force")
	require.FileExists(t, "other.safetensors")
	require.Subset(t, list(t, "dst"), []string{"notes.txt", "mine.safetensors"})
	require.Len(t, list(t, "dst"), 6)
}

// TestWithoutRename: where the file system cannot rename, the error says what helps.
func TestWithoutRename(t *testing.T) {
	writeSavedModels(t)
	for _, args := range []string{
		"cp -q a DST", "cp -q a DST/x.safetensors", "cp -q a DST/x.npz", "cp -q one/model.safetensors DST", "merge -q a b DST",
	} {
		mkdir(t, "dst")
		r := at(t, "rename", 1, commandOf(args, "dst")...)
		require.NoError(t, r.Start())
		r.Wait()
		require.Equal(t, 1, r.ProcessState.ExitCode())
		require.Contains(t, r.errs.String(), "(this file system cannot rename: write to - or to s3://BUCKET/KEY)", args)
		require.Empty(t, tree(t, "dst"), args)
	}
}
