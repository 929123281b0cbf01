package dest

import (
	"context"
	"io"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/bucket"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/localfile"
	"github.com/gosafetensors/safetensors/internal/osfile"
)

// KeepsName reports whether the name of a destination means a folder into which a file is copied
// under its own name: it ends in a slash, or is one of the folders . and ..
func KeepsName(name string) bool {
	if bucket.IsURL(name) {
		name, _, _ = strings.Cut(name, "?")
	}
	name = filepath.ToSlash(name)
	return strings.HasSuffix(name, "/") || path.Base(name) == "." || path.Base(name) == ".."
}

// Within returns the destination for a file that is copied into a folder. The file keeps its name,
// as with cp of Unix, with two exceptions: if it is in another format, its ending becomes
// .safetensors, and pytorch_model becomes model.
func Within(ctx context.Context, folder, file string, stdout io.Writer) (Destination, error) {
	file = path.Base(file)
	if format.ByName(file) != format.Safetensors {
		file = strings.TrimSuffix(file, path.Ext(file)) + ".safetensors"
	}
	if file == "pytorch_"+format.ModelFile {
		file = format.ModelFile
	}
	folder, err := localfile.Path(folder)
	if err != nil {
		return nil, usage("%v", err)
	}
	if !bucket.IsURL(folder) {
		return made{single{name: filepath.Join(folder, file), format: format.Safetensors}}, nil
	}
	bare, query, has := strings.Cut(folder, "?") // the query has options of the store
	name := strings.TrimRight(bare, "/") + "/" + url.PathEscape(file)
	if has {
		name += "?" + query
	}
	return Parse(ctx, name, stdout, 0)
}

// A made is a file in a folder that Write creates if it is absent.
type made struct{ single }

func (m made) Free() error {
	_, err := os.Lstat(m.name)
	return checkReplaceable(m.name, err)
}

func (m made) Copy(s Shard, last func() error) error {
	if err := osfile.MkdirAll(filepath.Dir(m.name)); err != nil {
		return err
	}
	return m.single.Copy(s, last)
}

func (m made) Write(tensors map[string]safetensors.Tensor, metadata map[string]string, last func() error) error {
	if err := osfile.MkdirAll(filepath.Dir(m.name)); err != nil {
		return err
	}
	return m.single.Write(tensors, metadata, last)
}
