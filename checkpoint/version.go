package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/prefix"
)

// Version returns a text that changes when a file that Open would open is replaced, so that a server knows
// when to reload. The text depends on the names, sizes and times of the weights, the indexes and the configs in
// a directory, or of a single file. Where the file system has ETags, sums or file numbers, it depends on
// those, too. If an index names shards in other directories, these count as well. Version does not read
// weights.
//
// A directory without a model of its own, such as a pipeline, may have models in directories below. Then the text depends on
// the file that lists them, and on the files of all models that [Models] returns. If there are none, the error wraps
// [fs.ErrNotExist].
//
// If a file is replaced twice within the resolution of the file system's clock, by files of the same size,
// the version may stay the same, unless the system numbers its files. If name does not exist, the error
// wraps [fs.ErrNotExist].
func Version(fsys fs.FS, name string) (string, error) {
	in, err := osfile.TreeOf(fsys, name)
	if err != nil {
		return "", prefix.Add(err)
	}
	v := version{in: in}
	err = v.add(name)
	if err == nil && len(v.lines) == 0 {
		err = v.below(name)
	}
	if err != nil {
		return "", prefix.Add(prefix.OpenError(name, err))
	}
	sum := sha256.Sum256(v.lines)
	return hex.EncodeToString(sum[:16]), nil
}

// A version collects a line for each file.
type version struct {
	in    osfile.Tree
	lines []byte
}

func (v *version) add(name string) error {
	info, err := osfile.StatFS(v.in.FS, name)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		v.file(name, info)
		return nil
	}
	l, err := list(v.in, name)
	if err != nil {
		return err
	}
	for _, file := range l.names {
		if !isWeights(file) && file != configFile && file != adapterConfigFile && file != itemMetadata {
			continue
		}
		at := v.in.Join(name, file)
		if err := v.stat(at); err != nil {
			return err
		}
		if isSafetensorsIndex(file) || isTorchIndex(file) {
			if err := v.shardsBelow(at); err != nil {
				return err
			}
		}
	}
	return nil
}

// below adds the models in the directories below a directory, and the files that list them.
func (v *version) below(dir string) error {
	models, err := modelsIn(v.in, dir)
	if err != nil {
		return err
	}
	for _, file := range []string{pipelineFile, modulesFile} {
		if err := v.stat(v.in.Join(dir, file)); err != nil {
			return err
		}
	}
	for _, model := range models {
		if err := v.add(v.in.Join(dir, model)); err != nil {
			return err
		}
	}
	return nil
}

// stat adds the line that describes a file to the version. If the file was removed after the directory was listed, or
// is a broken link, the line records that it is absent.
func (v *version) stat(name string) error {
	info, err := osfile.StatFS(v.in.FS, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		v.lines = fmt.Appendf(v.lines, "%q absent\n", name)
	case err != nil:
		return err
	default:
		v.file(name, info)
	}
	return nil
}

func (v *version) file(name string, info fs.FileInfo) {
	v.lines = fmt.Appendf(v.lines, "%q %d %s %s\n", name, info.Size(), info.ModTime().UTC().Format(time.RFC3339Nano), tagOf(info))
}

// shardsBelow adds the shards that an index names in other directories. It ignores an index that is not valid.
func (v *version) shardsBelow(index string) error {
	f, _, err := osfile.OpenFS(v.in.FS, index)
	var x *safetensors.Index
	if err == nil {
		defer f.Close()
		x, err = safetensors.ReadIndex(f)
	}
	switch {
	case err != nil && isVerdict(err):
		return nil
	case err != nil:
		return err
	}
	for _, shard := range slices.Compact(slices.Sorted(maps.Values(x.Shards))) {
		if strings.Contains(shard, "/") {
			if err := v.stat(v.in.Join(index, "..", shard)); err != nil {
				return err
			}
		}
	}
	return nil
}

// tagOf returns the ETag of an object, the sum that a hub lists for a file, or the number of a file on Unix. It
// returns "" if there is none of these.
func tagOf(info fs.FileInfo) string {
	if header, ok := info.Sys().(interface{ Get(name string) string }); ok { // http.Header
		return header.Get("ETag")
	}
	about := reflect.Indirect(reflect.ValueOf(info.Sys()))
	if about.Kind() != reflect.Struct {
		return ""
	}
	for _, name := range []string{"BlobID", "Ino"} { // fields of hub.FileInfo and syscall.Stat_t
		if field := about.FieldByName(name); field.IsValid() {
			return fmt.Sprint(field.Interface())
		}
	}
	return ""
}
