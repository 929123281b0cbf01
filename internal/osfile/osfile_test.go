package osfile

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

// must returns v. It panics if err is not nil, so use it only for calls that cannot fail in the
// test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// errorOf returns the error of a call.
func errorOf[T any](_ T, err error) error { return err }

// requireOnly checks that a folder contains exactly these names.
func requireOnly(t *testing.T, dir string, want ...string) {
	entries := must(os.ReadDir(dir))
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	require.ElementsMatch(t, want, names)
}

// TestCreateIsExclusive: a link in the place of a temporary file is not followed.
func TestCreateIsExclusive(t *testing.T) {
	name := filepath.Join(t.TempDir(), "taken")
	require.NoError(t, os.WriteFile(name, []byte("old"), 0o666))
	require.ErrorIs(t, errorOf(system.Create(name, 0o666)), fs.ErrExist)
	if !testplatform.HasSymlinks(t) {
		return
	}
	for _, to := range []string{name, name + "-not"} { // a link to an existing file, and one to a missing file
		link := filepath.Join(t.TempDir(), "link")
		require.NoError(t, os.Symlink(to, link))
		require.ErrorIs(t, errorOf(system.Create(link, 0o666)), fs.ErrExist)
	}
	require.NoFileExists(t, name+"-not")
	require.Equal(t, "old", string(must(os.ReadFile(name))))
}

// TestAtomic: a file gets its name at Commit. If the system supports that, it has no name before.
// After Abort, the old file is unchanged.
func TestAtomic(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	a := must(Create(name))
	require.NoError(t, a.Reserve(3))
	must(a.WriteAt([]byte("new"), 0))
	require.NoFileExists(t, name)
	require.NoError(t, a.Finish())
	if testplatform.HasUnnamedFiles(t, dir) {
		requireOnly(t, dir)
	} else {
		requireOnly(t, dir, filepath.Base(a.temp))
	}
	require.NoError(t, a.Commit())
	a.Abort() // has no effect after Commit
	for _, finish := range []bool{false, true} {
		a := must(Create(name))
		must(a.WriteAt([]byte("newer"), 0))
		if finish {
			require.NoError(t, a.Finish())
		}
		a.Abort()
		a.Abort()
		requireOnly(t, dir, "file")
	}
	require.Equal(t, "new", string(must(os.ReadFile(name))))
}

// TestErrorsNameTheTarget: errors of an atomic file name the target, not the temporary file.
func TestErrorsNameTheTarget(t *testing.T) {
	name := filepath.Join(t.TempDir(), "missing", "file")
	_, err := Create(name)
	var path *fs.PathError
	require.ErrorAs(t, err, &path)
	require.Equal(t, name, path.Path)
	require.ErrorIs(t, err, fs.ErrNotExist)

	require.ErrorIs(t, errorOf(Create("")), fs.ErrNotExist)

	name = filepath.Join(t.TempDir(), "file")
	first := must(Create(name))
	defer first.Abort()
	a := must(first.Another(name, true))
	defer a.Abort()
	require.NoError(t, a.Finish())
	_, err = a.WriteAt([]byte("late"), 0)
	require.ErrorAs(t, err, &path)
	require.Equal(t, name, path.Path)
	require.ErrorIs(t, err, os.ErrClosed)
	for _, err := range []error{a.Reserve(1), a.Finish()} {
		require.ErrorAs(t, err, &path)
		require.Equal(t, name, path.Path)
	}
}

// TestOnlyRegularFiles: directories and devices are refused, and so are files above a limit.
func TestOnlyRegularFiles(t *testing.T) {
	dir := t.TempDir()
	_, err := Create(dir)
	require.ErrorContains(t, err, "is a directory")
	_, _, err = OpenRegular(dir)
	require.ErrorContains(t, err, "is a directory")
	_, _, err = OpenRegular(filepath.Join(dir, "missing"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	if runtime.GOOS == "linux" {
		_, _, err = OpenRegular("/dev/zero")
		require.ErrorContains(t, err, "is a device")
	}
	name := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(name, []byte("data"), 0o666))
	f, size, err := OpenRegular(name)
	require.NoError(t, err)
	require.EqualValues(t, 4, size)
	require.NoError(t, f.Close())
	data := must(ReadRegular(name, 4))
	require.Equal(t, "data", string(data))
	require.ErrorContains(t, errorOf(ReadRegular(name, 3)), name+": it has more than 3 bytes")
	require.ErrorContains(t, errorOf(ReadRegular(dir, 3)), "open "+dir+": is a directory")
	require.ErrorIs(t, errorOf(ReadRegular(filepath.Join(dir, "missing"), 3)), fs.ErrNotExist)
}

// TestBrokenLinks: an error names the link that leads nowhere. A missing file behind a link that leads
// somewhere is only missing.
func TestBrokenLinks(t *testing.T) {
	testplatform.NeedSymlinks(t)
	dir := t.TempDir()
	link, good := filepath.Join(dir, "link"), filepath.Join(dir, "good")
	require.NoError(t, os.Symlink("absent\n", link))
	require.NoError(t, os.Symlink(dir, good))
	for name, at := range map[string]string{link: "it", filepath.Join(link, "a", "b"): link} {
		for _, err := range []error{errorOf(FS{}.Open(name)), errorOf(FS{}.Stat(name)), errorOf(FS{}.ReadDir(name)), errorOf(ReadRegular(name, 3))} {
			require.ErrorIs(t, err, fs.ErrNotExist)
			require.ErrorContains(t, err, name+": "+at+` is a link to "absent\n", which does not exist`)
		}
	}
	for _, name := range []string{filepath.Join(dir, "missing"), filepath.Join(good, "missing"), "missing"} {
		err := errorOf(FS{}.Open(name))
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.NotContains(t, err.Error(), "link")
	}
}

// TestPipeIsNotWaitedFor: opening does not wait for the writer of a named pipe, even if the pipe
// takes the place of a file after its kind was checked.
func TestPipeIsNotWaitedFor(t *testing.T) {
	name := filepath.Join(t.TempDir(), "pipe")
	testplatform.MakePipe(t, name)
	_, _, err := OpenRegular(name)
	require.ErrorContains(t, err, "is a named pipe")
	_, _, err = openNow(name)
	require.ErrorContains(t, err, "is a named pipe")
	dir := os.DirFS(filepath.Dir(filepath.Dir(name)))
	if _, ok := dir.(linkReader); !ok {
		return // before Go 1.25
	}
	below, names := filepath.Base(filepath.Dir(name)), []string{"pipe"}
	if testplatform.HasSymlinks(t) {
		require.NoError(t, os.Symlink("pipe", filepath.Join(filepath.Dir(name), "link")))
		require.NoError(t, os.Symlink("./link", filepath.Join(filepath.Dir(name), "second")))
		names = append(names, "link", "second")
	}
	for _, in := range []fs.FS{os.DirFS(filepath.Dir(name)), must(fs.Sub(dir, below))} { // the file system of fs.Sub has no Stat
		for _, name := range names {
			_, _, err := OpenFS(in, name)
			require.ErrorContains(t, err, "is a named pipe")
			isDir, err := Tree{FS: in, Join: path.Join}.IsDir(name)
			require.NoError(t, err)
			require.False(t, isDir)
			require.ErrorContains(t, errorOf(Tree{FS: in, Join: path.Join}.ReadRegular(name, 3)), "is a named pipe")
		}
	}
}

// TestLinkOutOfSub: nothing opens a link that leads out of the file system of fs.Sub, whose target may be a named
// pipe. That file system cannot tell the kind of the target without opening it. Blobs of a hub's cache are opened.
func TestLinkOutOfSub(t *testing.T) {
	testplatform.NeedSymlinks(t)
	dir := t.TempDir()
	testplatform.MakePipe(t, filepath.Join(dir, "pipe"))
	if _, ok := os.DirFS(dir).(linkReader); !ok {
		return // before Go 1.25
	}
	blob := "blobs/" + strings.Repeat("0a", 32)
	for _, name := range []string{"snapshots/1/inner", "blobs", "out"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.FromSlash(name)), 0o777))
	}
	for _, name := range []string{"file", "out/file", blob, "snapshots/1/file"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), []byte("data"), 0o666))
	}
	in := must(fs.Sub(os.DirFS(dir), "snapshots/1"))
	link := func(links map[string]string) {
		for name, to := range links {
			require.NoError(t, os.Symlink(to, filepath.Join(dir, "snapshots", "1", filepath.FromSlash(name))))
		}
	}
	out := map[string]string{
		"pipe": "../../pipe", "second": "pipe", "inner/third": "../second", "to-file": "../../file", "absolute": filepath.Join(dir, "pipe"), "loop": "loop",
		"folder": "../../out", "through": "folder/file",
	}
	link(out)
	for name := range out {
		for _, err := range []error{thirdOf(OpenFS(in, name)), errorOf(Tree{FS: in, Join: path.Join}.IsDir(name)), errorOf(Tree{FS: in, Join: path.Join}.ReadRegular(name, 9))} {
			require.ErrorContains(t, err, name+": is a link that leads out of the directory, to ", name)
		}
	}
	link(map[string]string{"blob": "../../" + blob, "inside": "file", "inner/up": "../inside", "folder2": "inner"})
	for _, name := range []string{"blob", "inside", "inner/up", "folder2/up", "file"} {
		data := must(Tree{FS: in, Join: path.Join}.ReadRegular(name, 9))
		require.Equal(t, "data", string(data), name)
	}
	require.ErrorIs(t, thirdOf(OpenFS(in, "missing")), fs.ErrNotExist)
}

func thirdOf[A, B any](_ A, _ B, err error) error { return err }

// TestFoldersSync flushes a folder, if the system supports that.
func TestFoldersSync(t *testing.T) {
	dir := must(OpenDir(t.TempDir()))
	require.NoError(t, dir.Sync())
	require.NoError(t, dir.Close())
	dir, err := OpenDir(filepath.Join(t.TempDir(), "missing"))
	if err == nil {
		require.Equal(t, noFolder{}, dir.Folder, "this system does not flush folders")
		return
	}
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// TestReplacedFilesKeepTheirMode: a file that replaces another one has its mode from the moment at
// which it is created.
func TestReplacedFilesKeepTheirMode(t *testing.T) {
	testplatform.NeedModes(t)
	for _, mode := range []fs.FileMode{0o600, 0o640, 0o644, 0o666, 0o400} {
		name := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(name, nil, 0o600))
		require.NoError(t, os.Chmod(name, mode))
		a := must(Create(name))
		info := must(a.file.Stat())
		require.Equal(t, mode, info.Mode().Perm())
		require.NoError(t, a.Finish())
		require.NoError(t, a.Commit())
		info = must(os.Stat(name))
		require.Equal(t, mode, info.Mode().Perm())
	}
}

// A looseSystem gives files without a name a fixed mode, whatever the umask is.
type looseSystem struct {
	System
	mode fs.FileMode
}

func (s looseSystem) CreateUnnamed(dir string, mode fs.FileMode) (File, error) {
	f, err := s.System.CreateUnnamed(dir, mode)
	if err == nil {
		err = f.Chmod(s.mode)
	}
	return f, err
}

// TestWithoutUmask: a file that everybody may write to gets a temporary name from the start.
func TestWithoutUmask(t *testing.T) {
	dir := t.TempDir()
	if !testplatform.HasUnnamedFiles(t, dir) {
		t.Skip("all files have names")
	}
	for mode, named := range map[fs.FileMode]bool{0o644: false, 0o660: false, 0o602: true, 0o666: true} {
		restore := Wrap(func(s System) System { return looseSystem{s, mode} })
		a := must(Create(filepath.Join(dir, "file")))
		restore()
		require.Equal(t, named, a.temp != "", mode)
		if named {
			requireOnly(t, dir, filepath.Base(a.temp))
		}
		a.Abort()
		requireOnly(t, dir)
	}
}

// TestTakeBack: TakeBack removes a file that Rename has named, and no other file with that name.
func TestTakeBack(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	a := must(Create(name))
	require.NoError(t, a.Finish())
	require.NoError(t, a.Rename())
	a.TakeBack()
	requireOnly(t, dir)

	require.NoError(t, os.WriteFile(name, nil, 0o666))
	a.TakeBack()
	a = must(Create(name))
	a.Abort()
	a.TakeBack()
	requireOnly(t, dir, "file")
}

// TestRemoveTagged removes the temporary files with a tag, and no other files.
func TestRemoveTagged(t *testing.T) {
	dir := t.TempDir()
	var left []*Atomic
	for _, tag := range []string{"", "a-", "b-", "a-"} {
		first := must(Settings{Tag: tag}.Create(filepath.Join(dir, "file")))
		a := must(first.Another(filepath.Join(dir, "file"), true))
		first.Abort()
		require.NoError(t, a.Finish())
		left = append(left, a)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, TempPrefix+"a-file"), nil, 0o666))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, TempPrefix+"a-folder.tmp", "x"), 0o777)) // cannot be removed
	require.NoError(t, RemoveTagged(dir, "a-"))
	requireOnly(t, dir, filepath.Base(left[0].temp), filepath.Base(left[2].temp), TempPrefix+"a-file", TempPrefix+"a-folder.tmp")
	require.ErrorIs(t, RemoveTagged(filepath.Join(dir, "missing"), "a-"), fs.ErrNotExist)
}

// TestMkdirAll creates folders whose names are relative, absolute or nested, or exist already.
func TestMkdirAll(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"a", "b/c/d", "b/c/d/", "b/e", ".", filepath.Join(t.TempDir(), "x", "y")} {
		for range 2 { // the second call finds the folder
			require.NoError(t, MkdirAll(filepath.FromSlash(name)))
			require.DirExists(t, name)
		}
	}
	require.NoError(t, os.WriteFile("file", nil, 0o666))
	for _, name := range []string{"file", "file/a", "file/a/b"} {
		var path *fs.PathError
		require.ErrorAs(t, MkdirAll(filepath.FromSlash(name)), &path)
		require.Contains(t, path.Path, "file")
	}
}

// TestCreateFolders returns the folders that were created, which RemoveFolders removes if they are empty.
func TestCreateFolders(t *testing.T) {
	dir := t.TempDir()
	a, b, c := filepath.Join(dir, "a"), filepath.Join(dir, "a", "b"), filepath.Join(dir, "a", "b", "c")
	require.Equal(t, []string{a}, must(CreateFolders(a)))
	created := must(CreateFolders(c + string(filepath.Separator)))
	require.Equal(t, []string{b, c}, created)
	require.Empty(t, must(CreateFolders(c)))
	require.NoError(t, os.WriteFile(filepath.Join(b, "file"), nil, 0o666))
	RemoveFolders(created)
	require.NoDirExists(t, c)
	require.DirExists(t, b)
	require.NoError(t, os.Remove(filepath.Join(b, "file")))
	RemoveFolders(created)
	requireOnly(t, dir, "a")
	defer Wrap(func(s System) System { return withoutFolder{s, c} })()
	_, err := CreateFolders(c)
	require.ErrorIs(t, err, fs.ErrPermission)
	requireOnly(t, a)
}

// A withoutFolder refuses to create one folder.
type withoutFolder struct {
	System
	name string
}

func (s withoutFolder) Mkdir(name string, mode fs.FileMode) error {
	if name == s.name {
		return fs.ErrPermission
	}
	return s.System.Mkdir(name, mode)
}

// TestMkdirAllThere: if a folder exists already, its parent is flushed, even if the name of the
// folder is a link or ends in dots. A parent that may not be read is not flushed.
func TestMkdirAllThere(t *testing.T) {
	dir := must(filepath.EvalSymlinks(t.TempDir()))
	t.Chdir(dir)
	require.NoError(t, os.MkdirAll(filepath.Join("a", "b"), 0o777))
	parents := map[string]string{"a": dir, filepath.Join("a", "b"): filepath.Join(dir, "a"), ".": filepath.Dir(dir)}
	lexical := runtime.GOOS == "wasip1" || runtime.GOOS == "windows" // on these systems, link/.. is the folder that contains the link
	if !lexical && os.Symlink(filepath.Join("a", "b"), "link") == nil {
		parents["link"] = filepath.Join(dir, "a")
	}
	for name, parent := range parents {
		var opened []string
		restore := Wrap(func(s System) System { return openings{s, &opened} })
		require.NoError(t, MkdirAll(name))
		restore()
		require.Len(t, opened, 1, name)
		want, got := must(os.Stat(parent)), must(os.Stat(opened[0]))
		require.True(t, os.SameFile(want, got), "%s is flushed for %s", opened[0], name)
	}
	defer Wrap(func(s System) System { return refusingSystem{s} })()
	require.NoError(t, MkdirAll("a"))
}

// An openings records which folders are opened.
type openings struct {
	System
	names *[]string
}

func (s openings) OpenDir(name string) (Folder, error) {
	*s.names = append(*s.names, name)
	return s.System.OpenDir(name)
}

// A refusingSystem cannot open folders.
type refusingSystem struct{ System }

func (refusingSystem) OpenDir(string) (Folder, error) { return nil, fs.ErrPermission }

// TestMkdirAllUnflushed: a folder whose name cannot be flushed is removed again.
func TestMkdirAllUnflushed(t *testing.T) {
	dir := t.TempDir()
	defer Wrap(func(s System) System { return refusingSystem{s} })()
	require.ErrorIs(t, MkdirAll(filepath.Join(dir, "a", "b")), fs.ErrPermission)
	requireOnly(t, dir)
}
