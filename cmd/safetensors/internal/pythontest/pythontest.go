// Package pythontest is for tests against Python packages that define formats. It runs scripts, and
// compares tensors with those of a safetensors file.
package pythontest

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// Run runs a Python script. variable is the name of an environment variable, such as
// SAFETENSORS_TORCH, that contains the absolute path of the interpreter. modules are the modules
// that the script needs, separated by commas. If they cannot be imported, Run skips the test. It
// fails the test instead if the variable with REQUIRE_ in its name, such as
// SAFETENSORS_REQUIRE_TORCH, is 1.
func Run(t *testing.T, variable, modules string, args ...string) {
	t.Helper()
	python := os.Getenv(variable)
	if python == "" {
		python = "python3"
	}
	out, err := exec.Command(python, "-c", "import "+modules).CombinedOutput()
	if err != nil {
		message := fmt.Sprintf("%s: %v (%s names another interpreter)\n%s", python, err, variable, out)
		if os.Getenv(strings.Replace(variable, "SAFETENSORS_", "SAFETENSORS_REQUIRE_", 1)) == "1" {
			require.FailNow(t, message)
		}
		t.Skip(message)
	}
	// The flag -B prevents a __pycache__ next to the scripts.
	out, err = exec.Command(python, append([]string{"-B"}, args...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// RequireSame requires that tensors and metadata equal those of a safetensors file: in names,
// dtypes, shapes and bytes.
func RequireSame(t *testing.T, file string, tensors map[string]safetensors.Tensor, metadata map[string]string) {
	t.Helper()
	f, err := safetensors.Load(file)
	require.NoError(t, err)
	var want, got bytes.Buffer
	require.NoError(t, safetensors.Write(&want, maps.Collect(f.Tensors()), f.Metadata()))
	require.NoError(t, safetensors.Write(&got, tensors, metadata))
	require.Equal(t, want.String(), got.String())
}
