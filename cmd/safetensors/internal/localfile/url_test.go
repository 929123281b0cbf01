package localfile

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPath(t *testing.T) {
	dir := t.TempDir()
	url := "file://" + filepath.ToSlash(dir)
	for name, want := range map[string]string{
		url + "/model": filepath.Join(dir, "model"), url + "/a%20b%3F": filepath.Join(dir, "a b?"),
		"model": "model", "s3://models/x?a=b": "s3://models/x?a=b", "-": "-", "": "",
	} {
		path, err := Path(name)
		require.NoError(t, err, name)
		require.Equal(t, want, path)
	}
	for name, want := range map[string]string{
		"file://host/x": "another host", "file:///x?create_dir=true": "no query", "file:///x#y": "no query",
		"file:///": "names no file", "file://": "names no file", "file://%zz": "not a URL",
	} {
		_, err := Path(name)
		require.ErrorContains(t, err, want)
	}
}
