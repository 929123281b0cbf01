package dcp

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// PyTorch wrote the checkpoint in testdata/mesh on a mesh of 2×2 ranks. testdata/whole.safetensors
// holds the same tensors undivided. testdata/dcp.py makes both.
const (
	meshDir   = "testdata/mesh"
	wholeFile = "testdata/whole.safetensors"
)

// TestGolden opens the checkpoint that PyTorch wrote, in every way, and cuts it for another number
// of ranks, three.
func TestGolden(t *testing.T) {
	want := loaded(wholeFile)
	order := must(safetensors.Load(wholeFile)).Header().Tensors
	for way, open := range map[string]func() (*safetensors.File, error){
		"Open":   func() (*safetensors.File, error) { return Open(meshDir) },
		"OpenFS": func() (*safetensors.File, error) { return OpenFS(os.DirFS("testdata"), "mesh") },
		"Assemble": func() (*safetensors.File, error) {
			var files []*safetensors.File
			for _, data := range meshFiles(t) { // a map, so the files come in any order
				files = append(files, must(safetensors.Parse(data)))
			}
			return Assemble(files...)
		},
	} {
		t.Run(way, func(t *testing.T) {
			f := must(open())
			requireTensors(t, want, f)
			require.Equal(t, order, f.Header().Tensors, "as in the file of whole tensors")
			require.Equal(t, map[string]string{"format": "pt"}, f.Metadata())
			dir := t.TempDir()
			for rank := range 3 {
				of := make(pieces)
				for name, x := range f.Tensors() {
					p := must(NewPiece(x))
					if n := len(x.Shape()); n > 0 {
						p = must(p.Shard(n-1, rank, 3))
					}
					of[name] = p
				}
				require.NoError(t, WriteFile(filepath.Join(dir, FileName(rank)), of, f.Metadata()))
			}
			again := must(Open(dir))
			requireTensors(t, want, again)
			require.Equal(t, f.Metadata(), again.Metadata())
			require.NoError(t, again.Close())
			require.NoError(t, f.Close())
		})
	}
}

// meshFiles returns the files of the checkpoint by name.
func meshFiles(t testing.TB) map[string][]byte {
	files := make(map[string][]byte)
	entries := must(os.ReadDir(meshDir))
	for _, e := range entries {
		files[e.Name()] = must(os.ReadFile(filepath.Join(meshDir, e.Name())))
	}
	require.Len(t, files, 4)
	return files
}

// A spec describes a job of testdata/dcp.py: the shape of its mesh, and the placements of some
// tensors, one for each dimension of the mesh: "S0", for example, or "R". All ranks hold the whole
// of all other tensors.
type spec struct {
	Mesh       []int               `json:"mesh"`
	Placements map[string][]string `json:"placements"`
}

// file writes the spec to a new file and returns its name.
func (s spec) file(t testing.TB) string {
	t.Helper()
	text := must(json.Marshal(s))
	name := filepath.Join(t.TempDir(), "spec.json")
	require.NoError(t, os.WriteFile(name, text, 0o666))
	return name
}

// ranks returns the number of ranks of the mesh.
func (s spec) ranks() int {
	n := 1
	for _, size := range s.Mesh {
		n *= size
	}
	return n
}

// rank returns the pieces of a rank. Each dimension of the mesh divides the piece that the
// dimensions before it have left.
func (s spec) rank(whole map[string]safetensors.Tensor, rank int) pieces {
	at := make([]int, len(s.Mesh)) // the rank's place in the mesh
	for i := len(s.Mesh) - 1; i >= 0; i-- {
		at[i] = rank % s.Mesh[i]
		rank /= s.Mesh[i]
	}
	of := make(pieces)
	for name, x := range whole {
		p := must(NewPiece(x))
		for i, placement := range s.Placements[name] {
			if placement != "R" {
				p = must(p.Shard(int(placement[1]-'0'), at[i], s.Mesh[i]))
			}
		}
		of[name] = p
	}
	return of
}
