package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/internal/lazyregexp"
)

// members notes the missing parts of a pipeline or of a directory of sentence-transformers.
func (c *checker) members(dir string, l listing) error {
	members, err := membersOf(c.in, c.path(dir), l)
	if err != nil {
		if !isVerdict(err) {
			return err
		}
		name := modulesFile
		if l.has(pipelineFile) {
			name = pipelineFile
		}
		var text *textError
		if errors.As(err, &text) {
			name, err = text.name, text.err
		}
		c.unreadable(path.Join(dir, name), err)
		return nil
	}
	c.judgeLists(dir, l)
	if err := c.judgeUnnamed(dir, l, members); err != nil {
		return err
	}
	for _, m := range members {
		if err := c.member(path.Join(dir, m.dir), m); err != nil {
			return err
		}
	}
	return nil
}

// member notes a part that is missing, or that has no weights or no config although it needs them.
func (c *checker) member(dir string, m member) error {
	weights, config := m.needs()
	if to, is := leaves(c.in, c.root, dir); is {
		c.unreadable(dir, leavesError(to))
		return nil
	}
	l, err := c.list(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if weights || config != "" {
			c.note(Missing, "", fmt.Sprintf("the directory %s is missing, which holds the %s", quoted(dir), quoted(m.class)), dir)
		}
		return nil
	case err != nil:
		return err
	}
	if weights && !l.holdsModel() {
		c.note(Missing, "", fmt.Sprintf("the directory %s of the %s has no weights", quoted(dir), quoted(m.class)), dir)
	}
	if config != "" && !l.has(config) && !(m.module == "" && l.has(adapterConfigFile)) {
		c.note(Missing, "", fmt.Sprintf("%s is missing, which describes the %s", quoted(path.Join(dir, config)), quoted(m.class)), path.Join(dir, config))
	}
	return nil
}

// needs returns whether a part of this class needs weights, and the name of the config that it needs, or "" if
// it is not known to need one.
func (m member) needs() (weights bool, config string) {
	class := m.class[strings.LastIndexByte(m.class, '.')+1:]
	is := func(endings ...string) bool {
		return slices.ContainsFunc(endings, func(e string) bool { return strings.HasSuffix(class, e) })
	}
	if m.module == "" { // m is a module of sentence-transformers
		switch {
		case is("Normalize"), is("StaticEmbedding"):
			return class == "StaticEmbedding", ""
		case is("Dense", "LayerNorm", "WeightedLayerPooling"):
			return true, configFile
		case is("LSTM"):
			return true, "lstm_config.json"
		case is("CNN"):
			return true, "cnn_config.json"
		case is("WordEmbeddings"):
			return true, "wordembedding_config.json"
		case is("Router"):
			return false, routerFile
		case is("Transformer", "CLIPModel"):
			return true, configFile // member accepts the config of an adapter instead
		case is("Pooling"):
			return false, configFile
		}
		return false, ""
	}
	switch {
	case is("Scheduler"):
		return false, schedulerFile
	case is("Tokenizer", "TokenizerFast", "Processor", "ProcessorFast", "FeatureExtractor", "Normalizer", "Guider"):
		return false, ""
	case strings.HasPrefix(class, "Onnx"), strings.HasPrefix(class, "Flax"), strings.HasPrefix(class, "OV"):
		return false, ""
	case m.module == "diffusers" || m.module == "transformers":
		return true, configFile
	}
	return is("Model", "SafetyChecker", "Watermarker"), ""
}

// moduleDir matches the names of the directories that sentence-transformers gives to modules, which
// modules.json lists.
var moduleDir = lazyregexp.New(`^\d+_(?:Pooling|Dense|CNN|LSTM|LayerNorm|WeightedLayerPooling|SpladePooling)$`)

// judgeLists notes a missing list of parts: modules.json in a directory of sentence-transformers, or
// model_index.json in that of a pipeline.
func (c *checker) judgeLists(dir string, l listing) {
	isDir := func(name string) bool { return l.modes[name].IsDir() }
	if i := slices.IndexFunc(l.names, func(name string) bool { return isDir(name) && moduleDir().MatchString(name) }); i >= 0 && !l.has(modulesFile) {
		name := path.Join(dir, modulesFile)
		c.note(Missing, "", fmt.Sprintf("%s is missing, without which sentence-transformers leaves out the module in %s", quoted(name), quoted(path.Join(dir, l.names[i]))), name, path.Join(dir, l.names[i]))
	}
	parts := 0
	for _, name := range []string{"unet", "transformer", "vae", "vqvae", "vqmodel", "text_encoder", "prior"} {
		if isDir(name) {
			parts++
		}
	}
	if isDir("scheduler") && parts > 0 && !l.has(pipelineFile) {
		name := path.Join(dir, pipelineFile)
		c.note(Missing, "", fmt.Sprintf("%s is missing, without which diffusers does not open the pipeline", quoted(name)), name)
	}
}

// judgeUnnamed notes the denoiser of a pipeline if model_index.json does not name it: diffusers does not load it. A
// component that the pipeline leaves out on purpose has a list of nulls there. Other directories that model_index.json
// does not name may belong to other programs.
func (c *checker) judgeUnnamed(dir string, l listing, members []member) error {
	if !l.has(pipelineFile) {
		return nil
	}
	denoisers := []string{"unet", "transformer"}
	if slices.ContainsFunc(members, func(m member) bool { return slices.Contains(denoisers, m.dir) }) {
		return nil
	}
	for _, name := range denoisers {
		if !l.modes[name].IsDir() {
			continue
		}
		below, err := c.list(path.Join(dir, name))
		if err != nil {
			return err
		}
		if !below.has(configFile) || !below.holdsModel() {
			continue
		}
		var fields map[string]any
		text, err := readText(c.in, c.path(path.Join(dir, pipelineFile)), maxConfig)
		if err != nil || parseJSON(text, &fields) != nil {
			return err
		}
		if pair, _ := fields[name].([]any); len(pair) != 2 {
			c.note(Config, "", fmt.Sprintf("%s does not name a library and a class for %s, which has weights: diffusers does not load it", quoted(path.Join(dir, pipelineFile)), quoted(path.Join(dir, name))), path.Join(dir, pipelineFile), path.Join(dir, name))
		}
	}
	return nil
}
