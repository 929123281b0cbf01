package source

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFolder(t *testing.T) {
	model, _ := writeModel(t)
	dir := filepath.Dir(model)
	for name, size := range map[string]int64{"config.json": 2, "tokenizer.model": 3, "pytorch_model.bin": 4, ".gitattributes": 5, "large.txt": maxSideFile + 1} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o666))
		require.NoError(t, os.Truncate(filepath.Join(dir, name), size))
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder"), 0o777))
	o := &Opener{Context: context.Background()}

	c, err := o.Open(dir)
	require.NoError(t, err)
	defer c.Close()
	names, err := c.Folder.SideFiles()
	require.NoError(t, err)
	require.Equal(t, []string{"config.json", "tokenizer.model"}, names)
	data, err := c.Folder.ReadFile("config.json")
	require.NoError(t, err)
	require.Len(t, data, 2)
	_, err = c.Folder.ReadFile("none.json")
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = c.Folder.ReadFile("large.txt")
	require.ErrorContains(t, err, "has more than 67108864 bytes")

	one, err := o.Open(model)
	require.NoError(t, err)
	defer one.Close()
	data, err = one.Folder.ReadFile("config.json")
	require.NoError(t, err)
	require.Len(t, data, 2)
	_, err = one.Folder.SideFiles()
	require.ErrorContains(t, err, "is not a folder")

	var none *Folder
	_, err = none.ReadFile("config.json")
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = none.SideFiles()
	require.ErrorContains(t, err, "is not a folder")
}

// TestFolderOfARepository: what is read next to weights, perhaps hours later, is of the commit that
// was listed.
func TestFolderOfARepository(t *testing.T) {
	model, _ := writeModel(t)
	weights, err := os.ReadFile(model)
	require.NoError(t, err)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case strings.HasSuffix(path, "/unet/model.safetensors"):
			http.ServeContent(w, r, "", time.Time{}, strings.NewReader(string(weights)))
		case path == "/api/models/owner/name/revision/main":
			fmt.Fprintf(w, `{"sha":"%040d","siblings":[{"rfilename":"config.json","size":1},{"rfilename":"unet/config.json","size":2},
				{"rfilename":"unet/model.safetensors","size":4000000},{"rfilename":"unet/vocabulary.txt","size":%d}]}`, 1, maxSideFile+1)
		case path == fmt.Sprintf("/owner/name/resolve/%040d/unet/config.json", 1):
			fmt.Fprint(w, "{}")
		case path == "/owner/name/resolve/main/unet/config.json":
			fmt.Fprint(w, "{ }") // of a later commit
		default:
			http.NotFound(w, r)
		}
	}))
	defer s.Close()
	t.Setenv("HF_ENDPOINT", s.URL)
	t.Setenv("HF_HUB_CACHE", t.TempDir())
	c, err := (&Opener{Context: context.Background()}).Open("hf://owner/name/unet")
	require.NoError(t, err)
	defer c.Close()
	names, err := c.Folder.SideFiles()
	require.NoError(t, err)
	require.Equal(t, []string{"config.json"}, names)
	data, err := c.Folder.ReadFile("config.json")
	require.NoError(t, err)
	require.Equal(t, "{}", string(data))
}
