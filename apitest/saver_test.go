package apitest_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

// saves are the three ways to write with a Saver. Each returns the files with tensors that it
// has written below a directory.
var saves = map[string]func(s Saver, dir string, tensors map[string]Tensor) ([]string, error){
	"WriteFile": func(s Saver, dir string, tensors map[string]Tensor) ([]string, error) {
		name := filepath.Join(dir, "model.safetensors")
		return []string{name}, s.WriteFile(name, tensors, map[string]string{"k": "v"})
	},
	"WriteShards": func(s Saver, dir string, tensors map[string]Tensor) ([]string, error) {
		err := s.WriteShards(dir, tensors, map[string]string{"k": "v"}, 1)
		files, _ := filepath.Glob(filepath.Join(dir, "*.safetensors"))
		return files, err
	},
	"Create": func(s Saver, dir string, tensors map[string]Tensor) ([]string, error) {
		name := filepath.Join(dir, "model.safetensors")
		h := &Header{}
		for tensor, t := range tensors {
			h.Tensors = append(h.Tensors, TensorInfo{Name: tensor, DType: t.DType(), Shape: t.Shape()})
		}
		w, err := s.Create(name, h)
		if err != nil {
			return nil, err
		}
		for _, info := range h.Tensors {
			data := must(w.Tensor(info.Name))
			must(tensors[info.Name].WriteTo(data))
		}
		return []string{name}, w.Close()
	},
}

// TestSaverAligns: the data buffer starts at a multiple of Align, by spaces, and this package
// reads the tensors that were written.
func TestSaverAligns(t *testing.T) {
	for what, write := range saves {
		for _, align := range []int{0, 1, 2, 4, 8, 16, 64, 4096, 1 << 16, 1 << 20} {
			for n := range 5 { // headers of several lengths
				dir, tensors := t.TempDir(), checkpointOf(n+2)
				files, err := write(Saver{Align: align}, dir, tensors)
				require.NoError(t, err)
				require.NotEmpty(t, files)
				for _, name := range files {
					text := must(os.ReadFile(name))
					h := must(ReadHeader(bytes.NewReader(text)))
					require.Zero(t, h.DataStart%int64(max(align, 8)), "%s %d", what, align)
					text = text[:h.DataStart]
					end := len(text)
					for text[end-1] == ' ' {
						end--
					}
					require.Equal(t, "}", string(text[end-1]))
					require.Less(t, len(text)-end, max(align, 8), "no more spaces than needed")
				}
				requireCheckpoint(t, dir, tensors)
			}
		}
	}
}

// TestZeroSaver writes the very bytes that the funcs write.
func TestZeroSaver(t *testing.T) {
	dir, tensors := t.TempDir(), checkpointOf(4)
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for _, s := range []Saver{{}, {Align: 8}, {Align: 1}, {Mode: 0o666}} {
		require.NoError(t, WriteFile(a, tensors, nil))
		require.NoError(t, s.WriteFile(b, tensors, nil))
		require.Equal(t, must(os.ReadFile(a)), must(os.ReadFile(b)))
		require.Equal(t, must(os.Stat(a)).Mode(), must(os.Stat(b)).Mode())
	}
}

// TestSaverRefuses: what is no alignment, what is no permission and what makes a header too
// long, with nothing written.
func TestSaverRefuses(t *testing.T) {
	for what, write := range saves {
		for _, c := range []struct {
			s    Saver
			want string
		}{
			{Saver{Align: 3}, "safetensors: an alignment of 3 bytes is not a power of two"},
			{Saver{Align: -1}, "safetensors: an alignment of -1 bytes is not a power of two"},
			{Saver{Align: -8}, "safetensors: an alignment of -8 bytes is not a power of two"},
			{Saver{Align: 4097}, "safetensors: an alignment of 4097 bytes is not a power of two"},
			{Saver{Align: math.MinInt}, fmt.Sprintf("safetensors: an alignment of %d bytes is not a power of two", math.MinInt)},
			{Saver{Align: 1 << 27}, "safetensors: a header of 134217720 bytes exceeds the limit of 100000000"},
			{Saver{Align: 1 << 30}, "safetensors: a header of 1073741816 bytes exceeds the limit of 100000000"},
			{Saver{Mode: fs.ModeDir | 0o700}, "safetensors: the mode 020000000700 has more than permissions"},
			{Saver{Mode: fs.ModeSetuid | 0o700}, "safetensors: the mode 040000700 has more than permissions"},
			{Saver{Mode: 0o1600}, "safetensors: the mode 01600 has more than permissions"},
		} {
			dir := filepath.Join(t.TempDir(), "new")
			if what != "WriteShards" {
				require.NoError(t, os.Mkdir(dir, 0o777))
			}
			_, err := write(c.s, dir, checkpointOf(3))
			require.EqualError(t, err, c.want, what)
			if what == "WriteShards" {
				require.NoDirExists(t, dir)
				continue
			}
			require.Empty(t, listDir(dir))
		}
	}
}

// TestSaverMode: new files have the mode of the Saver before the umask. A file that replaces
// another one is no more open than that and than Mode.
func TestSaverMode(t *testing.T) {
	testplatform.NeedModes(t)
	free := func(mode fs.FileMode) fs.FileMode { // what the umask leaves of a mode
		name := filepath.Join(t.TempDir(), "probe")
		require.NoError(t, os.WriteFile(name, nil, mode))
		return must(os.Stat(name)).Mode()
	}
	for what, write := range saves {
		for _, mode := range []fs.FileMode{0, 0o600, 0o640, 0o400, 0o444, 0o466, 0o777} {
			want := free(mode)
			if mode == 0 {
				want = free(0o666)
			}
			dir := t.TempDir()
			files, err := write(Saver{Mode: mode}, dir, checkpointOf(3))
			require.NoError(t, err)
			if what == "WriteShards" {
				files = append(files, filepath.Join(dir, "model.safetensors.index.json"))
			}
			for _, name := range files {
				require.Equal(t, want, must(os.Stat(name)).Mode(), "%s %o %s", what, mode, name)
			}
			last := files[len(files)-1] // which the next save replaces
			for old, want := range map[fs.FileMode]fs.FileMode{0o644: 0o644, 0o600: 0o600, 0o666: 0o666, 0o640: 0o640} {
				require.NoError(t, os.Chmod(last, old))
				_, err := write(Saver{Mode: mode}, dir, checkpointOf(3))
				require.NoError(t, err)
				if mode != 0 {
					want &= mode
				}
				require.Equal(t, want, must(os.Stat(last)).Mode(), "%s %o over %o", what, mode, old)
			}
		}
	}
}

// TestSaverCheck: a save whose Check fails leaves the old files, and nothing else. Check is called once, while the old
// files are still there.
func TestSaverCheck(t *testing.T) {
	files := func(dir string) map[string]string {
		all := make(map[string]string)
		require.NoError(t, filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				all[name] = string(must(os.ReadFile(name)))
			}
			return err
		}))
		return all
	}
	changed := errors.New("changed")
	for what, write := range saves {
		dir, calls := t.TempDir(), 0
		must(write(Saver{}, dir, map[string]Tensor{"a": must(NewTensor(U8, []int{1}, []byte{1})), "b": must(NewTensor(U8, []int{1}, []byte{1}))}))
		before := files(dir)
		tensors := map[string]Tensor{"a": must(NewTensor(U8, []int{1}, []byte{2})), "b": must(NewTensor(U8, []int{1}, []byte{2}))}
		result := changed
		check := func() error {
			calls++
			for name, text := range before {
				if !strings.HasSuffix(name, "-lock") { // on Windows, the lock cannot be read now
					require.Equal(t, text, string(must(os.ReadFile(name))), what)
				}
			}
			return result
		}
		_, err := write(Saver{Check: check}, dir, tensors)
		require.ErrorIs(t, err, changed, what)
		require.Equal(t, 1, calls, what)
		require.Equal(t, before, files(dir), what)
		result = nil
		must(write(Saver{Check: check}, dir, tensors))
		require.Equal(t, 2, calls, what)
		require.NotEqual(t, before, files(dir), what)
	}
}
