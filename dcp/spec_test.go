package dcp_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/dcp"
	"github.com/stretchr/testify/require"
)

// A spec is a job of testdata/dcp.py: the shape of the mesh, and for some tensors a
// placement for each dimension of the mesh, "S0" or "R". All ranks hold the others.
type spec struct {
	Mesh       []int               `json:"mesh"`
	Placements map[string][]string `json:"placements"`
}

func specOf(t testing.TB, name string) (s spec) {
	require.NoError(t, json.Unmarshal(must(os.ReadFile(name)), &s))
	return s
}

// file writes the spec to a new file and returns its name.
func (s spec) file(t testing.TB) string {
	t.Helper()
	text := must(json.Marshal(s))
	name := filepath.Join(t.TempDir(), "spec.json")
	require.NoError(t, os.WriteFile(name, text, 0o666))
	return name
}

// ranks returns the size of the mesh.
func (s spec) ranks() int {
	n := 1
	for _, size := range s.Mesh {
		n *= size
	}
	return n
}

// rank returns the pieces of a rank: each dimension of the mesh deals out what the
// ones before have left.
func (s spec) rank(whole map[string]safetensors.Tensor, rank int) pieces {
	at := make([]int, len(s.Mesh)) // the rank's place in the mesh
	for i := len(s.Mesh) - 1; i >= 0; i-- {
		at[i] = rank % s.Mesh[i]
		rank /= s.Mesh[i]
	}
	of := make(pieces)
	for name, x := range whole {
		p := must(dcp.NewPiece(x))
		for i, placement := range s.Placements[name] {
			if placement != "R" {
				p = must(p.Shard(int(placement[1]-'0'), at[i], s.Mesh[i]))
			}
		}
		of[name] = p
	}
	return of
}
