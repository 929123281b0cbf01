package main

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/npz"
	"github.com/stretchr/testify/require"
)

// errInjected is an error of the system, as those of a broken disk are.
var errInjected = fmt.Errorf("injected fault: %w", syscall.EIO)

// A readFault makes one operation of the file systems of a run fail, or that and all later ones. If interrupt is set, it is called
// instead.
type readFault struct {
	at        int64 // the operation that fails, from 1 on
	forEver   bool
	interrupt func()
	err       error // the error of the operation that fails; nil for an error that names the file
	seen      atomic.Int64
	failed    atomic.Pointer[string] // the first one
}

func (f *readFault) operation(op, name string) error {
	n := f.seen.Add(1)
	if n != f.at && !(f.forEver && n > f.at) {
		return nil
	}
	text := op + " " + name
	f.failed.CompareAndSwap(nil, &text)
	if f.interrupt != nil {
		f.interrupt()
		return nil
	}
	if f.err != nil {
		return f.err
	}
	return &fs.PathError{Op: op, Path: name, Err: errInjected}
}

func (f *readFault) through(files fs.FS) fs.FS { return faultyFS{files, f} }

// A faultyFS counts every operation, also those of its files.
type faultyFS struct {
	files fs.FS
	*readFault
}

func (f faultyFS) Open(name string) (fs.File, error) {
	if err := f.operation("open", name); err != nil {
		return nil, err
	}
	file, err := f.files.Open(name)
	if err != nil {
		return nil, err
	}
	faulty := faultyFile{file, name, f.readFault}
	if ranges, ok := file.(safetensors.RangeReader); ok {
		return faultyRanges{faulty, ranges}, nil
	}
	return faulty, nil
}

func (f faultyFS) Stat(name string) (fs.FileInfo, error) {
	if err := f.operation("stat", name); err != nil {
		return nil, err
	}
	return fs.Stat(f.files, name)
}

func (f faultyFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := f.operation("readdir", name); err != nil {
		return nil, err
	}
	return fs.ReadDir(f.files, name)
}

type faultyFile struct {
	fs.File
	name string
	*readFault
}

func (f faultyFile) Stat() (fs.FileInfo, error) {
	if err := f.operation("fstat", f.name); err != nil {
		return nil, err
	}
	return f.File.Stat()
}

func (f faultyFile) Read(p []byte) (int, error) {
	if err := f.operation("read", f.name); err != nil {
		return 0, err
	}
	return f.File.Read(p)
}

func (f faultyFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.operation("pread", f.name); err != nil {
		return 0, err
	}
	return f.File.(io.ReaderAt).ReadAt(p, off)
}

type faultyRanges struct {
	faultyFile
	ranges safetensors.RangeReader
}

func (f faultyRanges) ReadRanges(ranges iter.Seq2[int64, []byte]) error {
	if err := f.operation("preadv", f.name); err != nil {
		return err
	}
	return f.ranges.ReadRanges(ranges)
}

// runsThrough runs the command in this process with a fault.
func runsThrough(f *readFault, args []string) result {
	var out, errs bytes.Buffer
	code := seams{through: f.through}.run(args, new(bytes.Reader), &out, &errs)
	return result{out.String(), errs.String(), code}
}

// A reading is a source, and a command line that reads it.
type reading struct{ src, line string }

// readings returns command lines of all verbs that read, over sources of all kinds. The folder w is
// made anew for each run: w/out is a new file or folder, and w/old has an older checkpoint.
func readings() (all []reading) {
	add := func(srcs, lines []string) {
		for _, src := range srcs {
			for _, line := range lines {
				all = append(all, reading{src, strings.ReplaceAll(line, "SRC", src)})
			}
		}
	}
	verdicts := []string{
		"ls SRC", "stats SRC", "diff SRC SRC", "check SRC", "hash SRC", "hash SRC --tensors", "verify SRC sums/SRC",
		"verify SRC sums/SRC --tensors", "meta SRC",
	}
	add([]string{"a.safetensors", "shards", "fp8"}, verdicts)
	add([]string{"a.safetensors", "shards", "fp8", "pipe"}, []string{
		"cp SRC w/old --force", "cp SRC w/out --dtype F16", "sign SRC --key key.pem --out w/out",
	})
	add([]string{"shards", "fp8", "pipe"}, []string{"check SRC --values", "cp SRC w/out --with-files"})
	if !testing.Short() {
		add([]string{"compressed.pt", "legacy.pt", "x.npz", "x.npy", "x.bt", "distcp", "mesh"}, append(verdicts, "cp SRC w/out.safetensors", "cp SRC w/old --force"))
	}
	for _, line := range []string{
		"show shards x", "hash shards --data", "stats fp8 --dequantize", "stats shards --html w/out.html", "cp fp8 w/out --dequantize F32", "cp shards w/out.npz",
		"cp wide.safetensors w/out --quantize fp8-channel", "cp shards fp8 w/out", "cp tied.safetensors w/out.safetensors --tie",
		"merge shards shards w/out", "merge shards shards w/old --force", "merge base.safetensors w/out --lora peft",
		"cp shards w/out --max-shard-size 100B --part 1/1", "cp fp8 w/out --max-shard-size 100B --part 1/1",
		"cp fp8 w/out --max-shard-size 100B --part 1/1 --dequantize F32", "cp shards w/out --max-shard-size 100B --part 1/1 --dtype F16",
		"meta w/shards a=b --in-place", "meta w/one.safetensors a=b --in-place", "verify shards --signature shards.sig --public-key key.pub",
	} {
		if runtime.GOOS == "windows" && strings.Contains(line, "--in-place") {
			continue // a file that is mapped cannot be replaced there
		}
		all = append(all, reading{"", line})
	}
	return all
}

// writeReadings writes the sources of readings, and their sums.
func writeReadings(t *testing.T) {
	root := must(filepath.Abs(repository))
	t.Chdir(t.TempDir())
	writeFiles(t, ".")
	writeModels(t, ".")
	for name, at := range map[string]string{
		"legacy.pt": "torch/testdata/legacy.pt", "compressed.pt": "torch/testdata/compressed.pt", "x.npy": "cmd/safetensors/internal/npz/testdata/version1.npy",
	} {
		write(t, name, string(must(os.ReadFile(filepath.Join(root, filepath.FromSlash(at))))))
	}
	for name, at := range map[string]string{"distcp": "dcp/testdata/distcp/one", "mesh": "dcp/testdata/mesh"} {
		require.NoError(t, os.CopyFS(name, os.DirFS(filepath.Join(root, filepath.FromSlash(at)))))
	}
	require.NoError(t, safetensors.WriteFile("wide.safetensors", map[string]safetensors.Tensor{"mlp.weight": counting(t, 16, 32)}, nil))
	require.NoError(t, safetensors.WriteFile("base.safetensors", map[string]safetensors.Tensor{"a.weight": floats(t, []int{1, 2}, 1, 2)}, nil))
	succeeds(t, "cp", "shards", "x.npz")
	succeeds(t, "cp", "shards", "x.bt")
	succeeds(t, "sign", "shards", "--key", "key.pem", "--out", "shards.sig")
	require.NoError(t, os.Mkdir("sums", 0o777))
	for _, r := range readings() {
		if strings.HasPrefix(r.line, "verify "+r.src+" sums/") {
			write(t, "sums/"+r.src, succeeds(t, "hash", r.src, "--tensors")+succeeds(t, "hash", r.src))
		}
	}
}

// renew makes the folder w anew.
func renew(t *testing.T) {
	require.NoError(t, os.RemoveAll("w"))
	require.NoError(t, os.CopyFS("w/shards", os.DirFS("shards")))
	require.NoError(t, os.CopyFS("w/old", os.DirFS("shards")))
	write(t, "w/one.safetensors", string(must(os.ReadFile("a.safetensors"))))
}

// openFiles returns the names of files of the working directory that this process has open, and the mappings of such files. Only
// Linux lists them.
func openFiles() (all []string) {
	if runtime.GOOS != "linux" {
		return nil
	}
	dir := must(os.Getwd()) + "/"
	for _, fd := range must(os.ReadDir("/proc/self/fd")) {
		name, _ := os.Readlink("/proc/self/fd/" + fd.Name()) // the one that listed the directory is closed
		if strings.HasPrefix(name, dir) {
			all = append(all, name)
		}
	}
	for line := range strings.Lines(string(must(os.ReadFile("/proc/self/maps")))) {
		if strings.Contains(line, dir) {
			all = append(all, line)
		}
	}
	return all
}

// requireClosed checks that no file of the working directory stays open or mapped. A source that is opened when the command is
// interrupted may be closed a moment later.
func requireClosed(t *testing.T, where string) {
	t.Helper()
	for range 100 {
		if len(openFiles()) == 0 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	require.Empty(t, openFiles(), where)
}

// TestEveryRead makes each operation of reading fail in turn, and then each with all that follow,
// under every verb that reads, of all kinds of sources. The verb exits with 1 and names the error,
// since an answer needs all that was to be read, and what it would replace is as it was. No file stays open.
func TestEveryRead(t *testing.T) {
	writeReadings(t)
	for _, r := range readings() {
		args := strings.Fields(r.line)
		renew(t)
		whole := new(readFault)
		got := runsThrough(whole, args)
		require.Zero(t, got.code, "%s: %s", r.line, got.stderr)
		requireClosed(t, r.line)
		for _, forEver := range []bool{false, true} {
			if forEver && testing.Short() {
				break
			}
			for at := int64(1); ; at++ {
				f := &readFault{at: at, forEver: forEver}
				renew(t)
				before := tree(t, "w")
				got := runsThrough(f, args)
				if f.failed.Load() == nil { // operations at once may be one less in another order
					require.GreaterOrEqual(t, at, whole.seen.Load()/2, r.line)
					break
				}
				where := fmt.Sprintf("%s: operation %d, %s", r.line, at, *f.failed.Load())
				require.Equal(t, exitFailed, got.code, where)
				require.Contains(t, got.stdout+got.stderr, errInjected.Error(), where)
				requireUntouched(t, r, before, where)
				requireClosed(t, where)
			}
		}
	}
}

// TestEveryReadNamed makes each read of data fail with an error that names no file, as that of a broken archive
// does. The verb names the file that it has read, whatever its format is.
func TestEveryReadNamed(t *testing.T) {
	root := must(filepath.Abs(repository))
	writeReadings(t)
	require.NoError(t, os.CopyFS("bin", os.DirFS(filepath.Join(root, "torch", "testdata", "folders", "shards"))))
	failed := make(map[string]bool)
	for _, src := range []string{"a.safetensors", "shards", "fp8", "compressed.pt", "legacy.pt", "x.npz", "x.npy", "x.bt", "distcp", "mesh", "bin"} {
		for _, line := range []string{"cp SRC w/out.npz", "cp wide.safetensors SRC w/out --dtype F16", "hash SRC --tensors"} {
			for at := int64(1); ; at++ {
				f := &readFault{at: at, err: errors.New("injected fault")}
				renew(t)
				got := runsThrough(f, strings.Fields(strings.ReplaceAll(line, "SRC", src)))
				if f.failed.Load() == nil {
					break
				}
				op, name, _ := strings.Cut(*f.failed.Load(), " ")
				if op != "pread" {
					continue
				}
				failed[src] = true
				require.NotZero(t, got.code, line)
				require.Contains(t, got.stdout+got.stderr, filepath.Base(name), "%s: operation %d", line, at)
			}
		}
		require.True(t, failed[src], src)
	}
}

// TestCorruptMember copies archives in which the compressed bytes of a tensor are corrupt. This is noticed when the tensor is
// written, and the error names the tensor and the file, not only DST.
func TestCorruptMember(t *testing.T) {
	saved := must(os.ReadFile(filepath.Join(repository, "torch", "testdata", "compressed.pt")))
	t.Chdir(t.TempDir())
	require.NoError(t, safetensors.WriteFile("other.safetensors", map[string]safetensors.Tensor{"other": floats(t, []int{1}, 3)}, nil))
	var npy, packed bytes.Buffer
	require.NoError(t, npz.Write(&npy, map[string]safetensors.Tensor{"x": floats(t, []int{2}, 1, 2)}))
	from := must(zip.NewReader(bytes.NewReader(npy.Bytes()), int64(npy.Len())))
	to := zip.NewWriter(&packed)
	w := must(to.Create("x.npy"))
	must(io.Copy(w, must(from.File[0].Open())))
	require.NoError(t, to.Close())
	archives := map[string]string{"x.npz": packed.String(), "compressed.pt": string(saved), "bin/pytorch_model.bin": string(saved)}
	mkdir(t, "bin")
	for name, text := range archives {
		r := must(zip.NewReader(strings.NewReader(text), int64(len(text))))
		corrupted := 0
		for _, m := range r.File {
			if m.Method != zip.Deflate || m.UncompressedSize64 < 100 || strings.HasSuffix(m.Name, ".pkl") {
				continue
			}
			corrupted++
			end := int(must(m.DataOffset())) + int(m.CompressedSize64)
			write(t, name, text[:end-4]+"\xff\xff\xff\xff"+text[end:])
			for _, line := range []string{"cp SRC out.safetensors", "cp SRC out", "cp other.safetensors SRC out.npz --dtype F32", "merge SRC SRC out"} {
				src := strings.Split(name, "/")[0]
				got := runs(t, strings.Fields(strings.ReplaceAll(line, "SRC", src))...)
				require.Equal(t, exitFailed, got.code, "%s: %s", name, line)
				require.Regexp(t, `tensor "[^"]+".*`+regexp.QuoteMeta(filepath.FromSlash(name))+`: .*zip member`, got.stderr, line)
			}
		}
		require.NotZero(t, corrupted, name)
	}
}

// TestEveryInterrupt interrupts all verbs at each operation of reading. They exit with 130, and leave what they would replace as it
// was, unless they have done all work when they notice.
func TestEveryInterrupt(t *testing.T) {
	writeReadings(t)
	for _, r := range readings() {
		args := strings.Fields(r.line)
		var whole result
		for at := int64(0); ; at++ {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			f := &readFault{at: at, interrupt: cancel}
			renew(t)
			before := tree(t, "w")
			var out, errs bytes.Buffer
			code := seams{parent: ctx, through: f.through}.run(args, new(bytes.Reader), &out, &errs)
			got := result{out.String(), errs.String(), code}
			if at == 0 {
				whole = got
				continue
			}
			if f.failed.Load() == nil {
				break
			}
			where := fmt.Sprintf("%s: interrupted at operation %d, %s", r.line, at, *f.failed.Load())
			requireClosed(t, where)
			if code == exitOK {
				require.Equal(t, whole.stdout, got.stdout, where)
				continue
			}
			require.Equal(t, exitInterrupted, code, "%s: %s", where, got.stderr)
			require.True(t, strings.HasSuffix(got.stderr, "safetensors: interrupted\n"), "%s: %s", where, got.stderr)
			requireUntouched(t, r, before, where)
		}
	}
}

// requireUntouched checks that the files in w are as they were. Copies of a folder, of several models and
// of parts leave the files that are complete, for another try, but no checkpoint in w/out.
func requireUntouched(t *testing.T, r reading, before map[string]string, where string) {
	t.Helper()
	now := tree(t, "w")
	resumes := strings.Contains(r.line, "--part") || strings.Contains(r.line, "--with-files") || r.src == "pipe"
	for name, text := range now {
		_, old := before[name]
		require.True(t, old || resumes && strings.HasPrefix(name, "out/") || r.src == "pipe" && strings.HasPrefix(name, "old/"), "%s: %s", where, name)
		if old {
			require.Equal(t, before[name], text, "%s: %s", where, name)
		}
		require.NotEqual(t, "out/model.safetensors.index.json", name, where)
	}
	for name := range before {
		require.Contains(t, now, name, where)
	}
}

// TestEveryRequest refuses each request in turn that a verb sends to read a bucket: the verb exits
// with 1 and says so.
func TestEveryRequest(t *testing.T) {
	s := startStore(t, fakeS3())
	writeShards(t, "shards")
	write(t, "shards/config.json", "{}")
	succeeds(t, "cp", "shards", "s3://models/x", "--with-files")
	write(t, "files", succeeds(t, "hash", "s3://models/x"))
	write(t, "sums", succeeds(t, "hash", "s3://models/x", "--tensors")+succeeds(t, "hash", "s3://models/x"))
	for _, line := range []string{
		"ls SRC", "stats SRC", "diff SRC shards", "check SRC --values", "hash SRC", "hash SRC --tensors", "verify SRC sums", "verify SRC sums --tensors", "verify SRC files",
		"meta SRC", "cp SRC out.safetensors", "cp SRC out --with-files", "show SRC x", "merge SRC shards out.safetensors",
	} {
		args := strings.Fields(strings.ReplaceAll(line, "SRC", "s3://models/x"))
		for at := int64(1); ; at++ {
			os.Remove("out.safetensors")
			os.RemoveAll("out")
			var seen atomic.Int64
			s.setFault(func(w http.ResponseWriter, r *http.Request) bool {
				if seen.Add(1) != at {
					return false
				}
				w.WriteHeader(http.StatusForbidden)
				return true
			})
			got := runs(t, args...)
			if seen.Load() < at {
				require.Zero(t, got.code, "%s: %s", line, got.stderr)
				require.Greater(t, at, int64(3), line)
				break
			}
			require.Equal(t, exitFailed, got.code, "%s: request %d: %s", line, at, got.stderr)
			require.Contains(t, got.stdout+got.stderr, "403 Forbidden", "%s: request %d", line, at)
			if args[0] == "verify" {
				require.Empty(t, got.stdout, "%s: request %d: there are no findings", line, at)
			}
			require.NoFileExists(t, "out.safetensors")
			require.NoFileExists(t, "out/model.safetensors.index.json")
		}
	}
}

// TestNewFolders fails at each operation of reading in turn: a copy removes the folders that it has created, and
// keeps one that was there before, even if it is empty.
func TestNewFolders(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, safetensors.WriteFile("a.safetensors", map[string]safetensors.Tensor{"x": floats(t, []int{2}, 1, 2), "y": floats(t, []int{1}, 3)}, nil))
	for _, line := range []string{
		"cp a.safetensors there/new/folder/", "cp a.safetensors there/new/folder", "cp a.safetensors there/new/folder --max-shard-size 8B",
		"cp a.safetensors there/new/folder --ranks 2", "cp a.safetensors there/", "merge a.safetensors a.safetensors there/new/folder",
	} {
		failed := 0
		for at := int64(1); ; at++ {
			require.NoError(t, os.RemoveAll("there"))
			mkdir(t, "there")
			f := &readFault{at: at}
			got := runsThrough(f, strings.Fields(line))
			if f.failed.Load() == nil {
				require.Zero(t, got.code, got.stderr)
				break
			}
			if got.code != 0 {
				failed++
				require.DirExists(t, "there")
				require.Empty(t, list(t, "there"), "%s: operation %d, %s", line, at, *f.failed.Load())
			}
		}
		require.Positive(t, failed, line)
	}
}
