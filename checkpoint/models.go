package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/prefix"
)

// Models returns the directories of the models in a directory, slash-separated and relative to
// it. For a plain model that is ".". For a pipeline of diffusers, these are the components with weights
// that model_index.json lists. For sentence-transformers, these are "." and the other modules with weights that
// modules.json lists, or the router_config.json of a Router. "." comes first, the others in the order of their names. Models reads
// these lists and lists the directories. It does not open weights.
//
// If there is no model, the error wraps [fs.ErrNotExist]. Models leaves out a component that is missing:
// [Check] reports it.
func Models(fsys fs.FS, name string) ([]string, error) {
	in, err := osfile.TreeOf(fsys, name)
	if err != nil {
		return nil, prefix.Add(err)
	}
	models, err := modelsIn(in, name)
	if err != nil {
		return nil, prefix.Add(prefix.OpenError(name, err))
	}
	return models, nil
}

func modelsIn(in osfile.Tree, dir string) ([]string, error) {
	l, err := list(in, dir)
	if err != nil {
		return nil, err
	}
	members, err := membersOf(in, dir, l)
	if err != nil {
		return nil, err
	}
	var models []string
	if l.holdsModel() && !l.has(pipelineFile) {
		models = append(models, ".")
	}
	for _, m := range members {
		if m.dir == "." || slices.Contains(models, m.dir) {
			continue
		}
		if to, is := leaves(in, dir, m.dir); is {
			return nil, prefix.OpenError(in.Join(dir, m.dir), leavesError(to))
		}
		below, err := list(in, in.Join(dir, m.dir))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, err
		case below.holdsModel():
			models = append(models, m.dir)
		}
	}
	if len(models) == 0 {
		return nil, prefix.Absent{Err: errors.New("no model in it")}
	}
	return models, nil
}

// holdsModel reports whether a directory with these names has a model that Open opens.
func (l listing) holdsModel() bool {
	return slices.ContainsFunc(kinds, func(k kind) bool { return k.is(l) })
}

// A member is a component of a pipeline or a module of sentence-transformers, which model_index.json or
// modules.json lists.
type member struct {
	dir    string // relative to the directory of the list; "." for that directory
	class  string // name of the Python class
	module string // Python module of the class in a pipeline; "" for sentence-transformers
}

// membersOf returns the members that the lists of a directory name, sorted by their directories. A plain model has
// none.
func membersOf(in osfile.Tree, dir string, l listing) (members []member, err error) {
	for name, parse := range map[string]func([]byte) ([]member, error){pipelineFile: parsePipeline, modulesFile: parseModules} {
		if !l.has(name) {
			continue
		}
		text, err := readText(in, in.Join(dir, name), maxConfig)
		if err != nil {
			return nil, err
		}
		more, err := parse(text)
		if err != nil {
			return nil, &textError{name, err}
		}
		for _, m := range more {
			routed, err := routedBy(in, dir, m)
			if err != nil {
				return nil, err
			}
			members = append(members, routed...)
		}
		members = append(members, more...)
	}
	slices.SortStableFunc(members, func(a, b member) int { return strings.Compare(a.dir, b.dir) })
	return members, nil
}

// parseModules reads a modules.json.
func parseModules(text []byte) ([]member, error) {
	var modules []struct {
		Path *string `json:"path"`
		Type string  `json:"type"`
	}
	if err := parseJSON(text, &modules); err != nil {
		return nil, err
	}
	var members []member
	for _, m := range modules {
		if m.Path == nil {
			return nil, errors.New("a module has no path")
		}
		dir := path.Clean(*m.Path)
		if !fs.ValidPath(dir) {
			return nil, fmt.Errorf("the path %s of a module leaves the directory", quoted(*m.Path))
		}
		members = append(members, member{dir: dir, class: m.Type})
	}
	return members, nil
}

// routedBy returns the modules of sentence-transformers among which a Router chooses. It returns none if m is no
// Router.
func routedBy(in osfile.Tree, dir string, m member) (members []member, err error) {
	if m.module != "" || !strings.HasSuffix(m.class, ".Router") {
		return nil, nil
	}
	name := path.Join(m.dir, routerFile)
	text, err := readText(in, in.Join(dir, name), maxConfig)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil // judging the router notes it
	case err != nil:
		return nil, err
	}
	var config struct {
		Types map[string]string `json:"types"` // the class of each directory
	}
	if err := parseJSON(text, &config); err != nil {
		return nil, &textError{name, err}
	}
	for below, class := range config.Types {
		if !fs.ValidPath(below) || below == "." {
			return nil, &textError{name, fmt.Errorf("the module %s leaves the directory", quoted(below))}
		}
		members = append(members, member{dir: path.Join(m.dir, below), class: class})
	}
	return members, nil
}

// parsePipeline reads a model_index.json, in which each component is a list of a library and a class.
func parsePipeline(text []byte) ([]member, error) {
	var fields map[string]json.RawMessage
	if err := parseJSON(text, &fields); err != nil {
		return nil, err
	}
	var members []member
	for name, value := range fields {
		var pair []*string
		if json.Unmarshal(value, &pair) != nil || len(pair) != 2 || pair[0] == nil || pair[1] == nil || strings.HasPrefix(name, "_") {
			continue // the field is a setting, or a component that the pipeline does not use
		}
		if !fs.ValidPath(name) || name == "." {
			return nil, fmt.Errorf("the component %s leaves the directory", quoted(name))
		}
		members = append(members, member{dir: name, module: *pair[0], class: *pair[1]})
	}
	return members, nil
}
