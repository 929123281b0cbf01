package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/internal/lazyregexp"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/variant"
)

// The names that Python packages give to files.
const (
	configFile        = "config.json"
	adapterConfigFile = "adapter_config.json"
	modulesFile       = "modules.json"              // list of the modules of sentence-transformers, in order
	moduleConfigFile  = "sentence_bert_config.json" // config of a module of sentence-transformers that is a model of transformers
	schedulerFile     = "scheduler_config.json"
	routerFile        = "router_config.json" // list of the modules of a Router of sentence-transformers
	pipelineFile      = "model_index.json"   // list of the components of a pipeline of diffusers
	itemMetadata      = "metadata.pkl"       // table of torch_checkpointing
)

// itemFile matches the files that the ranks of a job save with torchtitan's package torch_checkpointing. They do
// not specify where their tensors belong; itemMetadata does.
var itemFile = lazyregexp.New(`^.+_\d+\.safetensors$`)

var (
	safetensorsEndings = variant.Endings{".safetensors"}
	torchEndings       = variant.Endings{".bin", ".pt", ".pth", ".ckpt"}
)

const (
	maxWeights = 10_000  // largest number of files with weights in a directory
	maxConfig  = 4 << 20 // largest number of bytes in a config.json, a modules.json and so on
)

// A listing is the content of a directory.
type listing struct {
	names []string               // sorted
	modes map[string]fs.FileMode // type bits by name; for a link, those of the link itself
}

// list lists a directory. It omits temporary files of this module, and the files in which macOS keeps attributes of
// others, whose names begin with "._".
func list(in osfile.Tree, dir string) (listing, error) {
	entries, err := fs.ReadDir(in.FS, dir)
	if err != nil {
		return listing{}, err
	}
	l := listing{modes: make(map[string]fs.FileMode, len(entries))}
	weights := 0
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, osfile.TempPrefix) || strings.HasPrefix(name, "._") {
			continue
		}
		l.names = append(l.names, name)
		l.modes[name] = e.Type()
		if isWeights(name) {
			weights++
		}
	}
	if weights > maxWeights {
		return listing{}, fmt.Errorf("%d files with weights exceed the limit of %d", weights, maxWeights)
	}
	slices.Sort(l.names)
	return l, nil
}

// isWeights reports whether a file with this name contains tensors of a model, or the table of files that do.
func isWeights(name string) bool {
	return isSafetensors(name) || isTorchWeights(name) || isTorchIndex(name) || isDistcp(name) || variant.IsMetadata(name)
}

// isDistcp reports whether a file with this name has chunks of tensors that torch.distributed.checkpoint saved, which
// a .metadata describes.
func isDistcp(name string) bool { return strings.HasSuffix(name, ".distcp") }

// isSafetensors reports whether a file with this name is of safetensors, or an index of such files.
func isSafetensors(name string) bool {
	return strings.HasSuffix(name, ".safetensors") || isSafetensorsIndex(name)
}

func isSafetensorsIndex(name string) bool { return indexOf(safetensorsEndings, name) }

func isTorchIndex(name string) bool { return indexOf(torchEndings, name) }

// indexOf reports whether a file with this name is an index of files with these endings.
func indexOf(endings variant.Endings, name string) bool {
	files, indexes := endings.Among([]string{name})
	return len(files) == 0 && len(indexes) == 1
}

// isTorch reports whether a file with this name is of torch.save.
func isTorch(name string) bool {
	return slices.ContainsFunc(torchEndings, func(ending string) bool { return strings.HasSuffix(name, ending) })
}

// isTorchWeights reports whether a file with this name is of torch.save, and not the state of a training job.
func isTorchWeights(name string) bool { return isTorch(name) && !variant.IsState(name) }

func (l listing) has(name string) bool { _, found := slices.BinarySearch(l.names, name); return found }

func (l listing) any(match func(string) bool) bool { return slices.ContainsFunc(l.names, match) }

// errTooLong reports that a text exceeds its limit.
var errTooLong = errors.New("the file is longer than the limit")

// readText reads a regular file of at most limit bytes.
func readText(in osfile.Tree, name string, limit int64) ([]byte, error) {
	f, _, err := osfile.OpenFS(in.FS, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("%w of %d bytes", errTooLong, limit)
	}
	return text, err
}

// quoted quotes a name for a message, and cuts it to 200 characters.
func quoted(name string) string {
	const most = 200
	if len(name) > most {
		return fmt.Sprintf("%.*q…", most, name)
	}
	return fmt.Sprintf("%q", name)
}

// quotedList lists names for a message: the first ten, and the number of the others.
func quotedList(names []string) string { return variant.List(names, 10, quoted) }

// A textError reports a config, an index or a list of parts that cannot be used.
type textError struct {
	name string
	err  error
}

func (e *textError) Error() string { return e.name + ": " + e.err.Error() }

func (e *textError) Unwrap() error { return e.err }
