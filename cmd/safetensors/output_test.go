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

// TestOutputOfCheck: check ends at the first verdict or finding that cannot be written, with that
// error. Its output is larger than the buffer.
func TestOutputOfCheck(t *testing.T) {
	t.Chdir(t.TempDir())
	var entries []string
	for i := range 100 {
		name := fmt.Sprintf("%s%d.safetensors", strings.Repeat("s", 100), i)
		entries = append(entries, fmt.Sprintf(`"t%d": %q`, i, name))
		write(t, filepath.Join("refused", name), "")
	}
	write(t, filepath.Join("model", "model.safetensors.index.json"), `{"weight_map": {`+strings.Join(entries, ", ")+"}}")
	for _, args := range []string{"model", "model --json", "refused", "refused --json"} {
		var errs bytes.Buffer
		code := run(append([]string{"check"}, strings.Fields(args)...), new(bytes.Reader), lostOutput{}, &errs)
		require.Equal(t, 1, code)
		require.Equal(t, "safetensors: output lost\n", errs.String(), args)
	}
}
