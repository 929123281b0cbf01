package term

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWord quotes words for shells. If there is a bash, it reads each word as the text itself.
func TestWord(t *testing.T) {
	bash, absent := exec.LookPath("bash")
	for _, c := range []struct{ text, posix, windows string }{
		{"model.layers.0", "model.layers.0", "model.layers.0"},
		{"s3://models/a-b_c,d=e@main", "s3://models/a-b_c,d=e@main", "s3://models/a-b_c,d=e@main"},
		{"modèle/层", "modèle/层", "modèle/层"},
		{"", "''", `""`},
		{"my model", "'my model'", `"my model"`},
		{`C:\models`, `'C:\models'`, `C:\models`},
		{`C:\my models\`, `'C:\my models\'`, `"C:\my models\\"`},
		{`a "b\" c`, `'a "b\" c'`, `"a \"b\\\" c"`},
		{"x[0].y", "'x[0].y'", `"x[0].y"`},
		{"$HOME*", "'$HOME*'", `"$HOME*"`},
		{"it's", `'it'\''s'`, `"it's"`},
		{"~/x", "'~/x'", `"~/x"`},
		{"a\nb'\\", `$'a\nb\'\\'`, `"a\nb'\\"`},
		{"a\xff\u202e", `$'a\xff\u202e'`, `"a\xff\u202e"`},
	} {
		require.Equal(t, c.posix, word(c.text, false))
		require.Equal(t, c.windows, word(c.text, true))
		if absent == nil {
			cmd := exec.Command(bash, "-c", "printf %s "+c.posix)
			cmd.Env = []string{"LC_ALL=C.UTF-8"}
			out, err := cmd.Output()
			require.NoError(t, err)
			require.Equal(t, c.text, string(out))
		}
	}
	require.Equal(t, []string{"-", "./-x", Word("./-x y")}, []string{FileWord("-"), FileWord("-x"), FileWord("-x y")})
}
