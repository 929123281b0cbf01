package main

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A lostOutput fails at the first write.
type lostOutput struct{}

var errLost = errors.New("output lost")

func (lostOutput) Write([]byte) (int, error) { return 0, errLost }

// TestOutputOfFindings: check ends at the first finding that cannot be written, with that error. Its
// output has more findings than the buffer holds.
func TestOutputOfFindings(t *testing.T) {
	t.Chdir(t.TempDir())
	var entries []string
	for i := range 100 {
		entries = append(entries, fmt.Sprintf(`"t%d": "%s%d.safetensors"`, i, strings.Repeat("s", 100), i))
	}
	write(t, filepath.Join("model", "model.safetensors.index.json"), `{"weight_map": {`+strings.Join(entries, ", ")+"}}")
	for _, flags := range [][]string{nil, {"--json"}} {
		var errs bytes.Buffer
		code := run(append([]string{"check", "model"}, flags...), new(bytes.Reader), lostOutput{}, &errs)
		require.Equal(t, 1, code)
		require.Equal(t, "safetensors: output lost\n", errs.String(), "%v", flags)
	}
}
