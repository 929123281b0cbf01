package checkpoint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/internal/shapetext"
)

// mlxAdapterFile is the adapter that mlx-lm writes beside an adapter_config.json of its own form.
const mlxAdapterFile = "adapters.safetensors"

// An adapterConfig holds the fields of an adapter_config.json that concern the tensors.
type adapterConfig struct {
	Type        string         `json:"peft_type"`
	Rank        any            `json:"r"`
	RankPattern map[string]any `json:"rank_pattern"`
	Targets     any            `json:"target_modules"`
	Parameters  any            `json:"target_parameters"`
	DoRA        bool           `json:"use_dora"`
	Saved       any            `json:"modules_to_save"`
	Layers      any            `json:"layers_to_transform"`
	Excluded    any            `json:"exclude_modules"`
	Replication any            `json:"layer_replication"`
}

// A family describes the tensors that a method of peft stores for each module of an adapter.
type family struct {
	method string // value of peft_type
	parts  []part
}

// A part describes one of the tensors that a method of peft stores for each module.
type part struct {
	name string // text that follows the name of the module
	rank int    // index of the dimension whose length is the rank, or -1
}

var families = []family{
	{"ADALORA", []part{{".lora_E", -1}, {".lora_A", -1}, {".lora_B", -1}}},
	{"LORA", []part{{".lora_A", 0}, {".lora_B", 1}}},
	{"LORA", []part{{".lora_embedding_A", 0}, {".lora_embedding_B", 1}}},
	{"LOHA", []part{{".hada_w1_a", 1}, {".hada_w1_b", 0}, {".hada_w2_a", 1}, {".hada_w2_b", 0}}},
	{"LOKR", []part{{".lokr_w1", -1}}},
	{"VERA", []part{{".vera_lambda_b", -1}, {".vera_lambda_d", 0}}},
	{"IA3", []part{{".ia3_l", -1}}},
}

// judgeAdapter compares an adapter of peft with its config.
func (d *directory) judgeAdapter() error {
	var config adapterConfig
	found, err := d.readText(adapterConfigFile, func(text []byte) error { return parseJSON(text, &config) })
	if err != nil {
		return err
	}
	if !found {
		d.judgeUnconfigured()
		return nil
	}
	adapter, model := d.adapters()
	switch {
	case adapter == nil && config.Type == "" && d.has(mlxAdapterFile): // only mlx-lm opens it
		return nil
	case adapter == nil:
		d.note(Missing, "", fmt.Sprintf("%s is missing, which %s describes", quoted(d.at("adapter_model.safetensors")), quoted(d.at(adapterConfigFile))), d.at("adapter_model.safetensors"), d.at(adapterConfigFile))
		return nil
	case adapter.single == "" && len(adapter.where) > 0:
		file, shard := d.at("adapter_model.safetensors"), d.fileOf(adapter, "")
		d.note(Missing, "", fmt.Sprintf("%s is missing: peft opens an adapter in one file, and %s is a shard", quoted(file), quoted(shard)), file, shard)
		return nil
	case model != nil && len(model.where) > 0 && len(adapter.where) > 0:
		first, second := d.fileOf(model, ""), d.fileOf(adapter, "")
		d.note(Ambiguous, "", fmt.Sprintf("an adapter, %s with %s, is beside the model %s: some readers put it on the model, others leave it out", quoted(second), quoted(d.at(adapterConfigFile)), quoted(first)), first, second, d.at(adapterConfigFile))
	}
	if d.incomplete() || len(adapter.where) == 0 {
		return nil
	}
	of := familiesOf(adapter)
	switch {
	case config.Type == "":
		d.noteAdapter(adapter, "", "no peft_type, without which no program knows what the tensors are")
	case isFamily(config.Type) && !slices.ContainsFunc(of, func(f family) bool { return f.method == config.Type }) && config.Saved == nil:
		text := "none of the tensors is of it"
		if len(of) > 0 {
			text = "the tensors are those of " + of[0].method
		}
		d.noteAdapter(adapter, "", fmt.Sprintf("peft_type %s, but %s", quoted(config.Type), text))
	default:
		d.judgeParts(adapter, &config, of)
	}
	return nil
}

// adapters returns the adapter of a directory and the model next to it. Either is nil if it does not exist.
func (d *directory) adapters() (adapter, model *set) {
	for _, s := range d.sets {
		switch {
		case s.stem == "adapter_model" && (adapter == nil || adapter.torch):
			adapter = s
		case (s.stem == "model" || s.stem == "pytorch_model") && (model == nil || model.torch):
			model = s
		}
	}
	return adapter, model
}

// judgeUnconfigured notes an adapter without its config. It recognizes adapters by the names that peft gives to
// tensors.
func (d *directory) judgeUnconfigured() {
	adapter, _ := d.adapters()
	if adapter == nil || d.has(adapterConfigFile) {
		return
	}
	for _, name := range sortedNames(adapter.where) {
		if strings.HasPrefix(name, "base_model.model.") {
			d.note(Missing, "", fmt.Sprintf("%s is missing, without which no program puts the adapter %s on a model", quoted(d.at(adapterConfigFile)), quoted(adapter.where[name])), d.at(adapterConfigFile), adapter.where[name])
			return
		}
	}
}

func (d *directory) noteAdapter(s *set, tensor, text string) {
	d.note(Config, tensor, fmt.Sprintf("%s says %s", quoted(d.at(adapterConfigFile)), text), d.fileOf(s, tensor), d.at(adapterConfigFile))
}

func isFamily(method string) bool {
	return slices.ContainsFunc(families, func(f family) bool { return f.method == method })
}

// familiesOf returns the families whose parts an adapter has. AdaLoRA has the parts of LoRA and one more, which
// distinguishes the two.
func familiesOf(s *set) (of []family) {
	names := sortedNames(s.where)
	for _, f := range families {
		parts := f.parts
		switch {
		case f.method == "ADALORA":
			parts = parts[:1]
		case f.method == "LORA" && len(of) > 0 && of[0].method == "ADALORA":
			continue
		}
		if slices.ContainsFunc(names, func(name string) bool {
			return slices.ContainsFunc(parts, func(p part) bool { _, _, is := cutPart(name, p.name); return is })
		}) {
			of = append(of, f)
		}
	}
	return of
}

// cutPart splits the name of a tensor into the module before the name of a part, and the text after it, such as
// ".weight".
func cutPart(name, part string) (module, after string, is bool) {
	i := strings.LastIndex(name, part)
	if i < 0 || len(name) > i+len(part) && name[i+len(part)] != '.' {
		return "", "", false
	}
	return name[:i], name[i+len(part):], true
}

// judgeParts compares the modules of an adapter with each other and with the config. It notes at most one finding. It
// looks at modules_to_save only if it finds nothing else.
func (d *directory) judgeParts(s *set, config *adapterConfig, of []family) {
	names := sortedNames(s.where)
	const prefix = "base_model.model."
	if len(of) > 0 && !slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, prefix) }) {
		d.noteAdapter(s, names[0], fmt.Sprintf("peft_type %s, but no tensor has a name that begins with %q: peft finds none of them", quoted(config.Type), prefix))
		return
	}
	ranks, targets := config.ranks(), config.targets()
	for _, f := range of {
		for _, name := range names {
			for _, p := range f.parts {
				module, after, is := cutPart(name, p.name)
				if is && (d.lacksPart(s, f, name, module, after) || d.otherDoRA(s, config, p, name, module) || config.Parameters == nil && (d.otherRank(s, f, p, name, ranks) || d.untargeted(s, name, module, targets))) {
					return
				}
			}
		}
	}
	if lost := lostModule(s, config, of); lost != "" {
		d.note(Missing, lost, fmt.Sprintf("%s has no tensor of the module %s, but of this module in all other layers: programs leave it as it was", quoted(d.fileOf(s, "")), quoted(lost)), d.fileOf(s, ""))
		return
	}
	d.judgeSaved(s, config)
}

// maxSaved is the largest number of modules_to_save that judgeSaved judges. Without this limit, an untrusted config with
// a million names would take hours.
const maxSaved = 100

// judgeSaved notes the modules_to_save of which an adapter has no tensor: peft leaves them as the base model has them.
// For classifiers, peft itself adds both names of labelHeads to the list, although a model has only one such module.
func (d *directory) judgeSaved(s *set, config *adapterConfig) {
	labelHeads := []string{"classifier", "score"}
	var lost []string
	saved, labels := texts(config.Saved), false
	if len(saved) > maxSaved {
		return
	}
	for _, module := range saved {
		stored := false
		for name := range s.where {
			stored = stored || strings.Contains(name, module+".")
		}
		if !stored && !slices.Contains(lost, module) {
			lost = append(lost, module)
		}
		labels = labels || stored && slices.Contains(labelHeads, module)
	}
	if labels {
		lost = slices.DeleteFunc(lost, func(module string) bool { return slices.Contains(labelHeads, module) })
	}
	if len(lost) > 0 {
		d.note(Missing, "", fmt.Sprintf("%s has no tensor of the modules %s, which the modules_to_save of %s name", quoted(d.fileOf(s, "")), quotedList(lost), quoted(d.at(adapterConfigFile))), d.fileOf(s, ""), d.at(adapterConfigFile))
	}
}

// lostModule returns the module of one layer that an adapter does not change although it changes the modules of this
// name in all other layers, or "". Configs that select layers or modules by other means than names are not judged.
func lostModule(s *set, config *adapterConfig, of []family) string {
	if config.targets() == nil || config.Layers != nil || config.Excluded != nil || config.Replication != nil || config.Parameters != nil {
		return ""
	}
	names := sortedNames(s.where)
	if slices.ContainsFunc(names, func(name string) bool { return len(name) > maxName || strings.Count(name, ".") >= maxParts }) {
		return ""
	}
	var modules []string
	for _, name := range names {
		for _, f := range of {
			for _, p := range f.parts {
				if module, _, is := cutPart(name, p.name); is {
					modules = append(modules, module)
				}
			}
		}
	}
	slices.Sort(modules)
	modules = slices.Compact(modules)
	in := instancesOf(modules)
	if in == nil {
		return ""
	}
	return in.oddOne(modules, nil)
}

// targets returns the set of names of the modules that an adapter changes, or nil if the config has no list of them,
// or selects all linear modules.
func (c *adapterConfig) targets() map[string]bool {
	targets := make(map[string]bool)
	for _, name := range texts(c.Targets) {
		targets[name] = true
	}
	if len(targets) == 0 || targets["all-linear"] {
		return nil
	}
	return targets
}

// ranks returns the ranks that the config allows, or nil if it specifies none.
func (c *adapterConfig) ranks() (ranks []int) {
	if rank, ok := number(c.Rank); ok {
		ranks = append(ranks, rank)
	}
	for _, v := range c.RankPattern {
		if rank, ok := number(v); ok {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// texts returns the strings in a list of a config.
func texts(list any) (texts []string) {
	values, _ := list.([]any)
	for _, v := range values {
		if text, ok := v.(string); ok {
			texts = append(texts, text)
		}
	}
	return texts
}

// lacksPart notes a part that a module lacks although it has another part. It reports whether it noted a finding. It
// ignores biases, because only one part of LoRA has one.
func (d *directory) lacksPart(s *set, f family, name, module, after string) bool {
	if after == ".bias" {
		return false
	}
	for _, p := range f.parts {
		if other := module + p.name + after; s.where[other] == "" && s.where[module+p.name] == "" {
			d.note(Missing, other, fmt.Sprintf("the tensor %s is missing beside %s in %s: programs set it at random or to zeros", quoted(other), quoted(name), quoted(s.where[name])), s.where[name])
			return true
		}
	}
	return false
}

// otherDoRA notes a module with a magnitude vector if the config does not use DoRA, and a module without one if the
// config does. It reports whether it noted a finding.
func (d *directory) otherDoRA(s *set, config *adapterConfig, p part, name, module string) bool {
	const magnitude = ".lora_magnitude_vector"
	if p.name != ".lora_A" || config.Type != "LORA" {
		return false
	}
	have := s.where[module+magnitude] != "" || s.where[module+magnitude+".weight"] != ""
	switch {
	case config.DoRA && !have:
		d.note(Missing, module+magnitude, fmt.Sprintf("the tensor %s is missing beside %s in %s, and %s says use_dora", quoted(module+magnitude), quoted(name), quoted(s.where[name]), quoted(d.at(adapterConfigFile))), s.where[name], d.at(adapterConfigFile))
		return true
	case have && !config.DoRA:
		d.noteAdapter(s, name, fmt.Sprintf("nothing of use_dora, but %s has the tensor %s: peft leaves it out", quoted(s.where[name]), quoted(module+magnitude)))
		return true
	}
	return false
}

// otherRank notes a part whose rank differs from all ranks of the config, or from the rank of another part of the
// same module. It reports whether it noted a finding.
func (d *directory) otherRank(s *set, f family, p part, name string, ranks []int) bool {
	i, _ := d.info(s, name)
	if p.rank < 0 || len(i.shape) <= p.rank {
		return false
	}
	rank := i.shape[p.rank]
	if len(ranks) > 0 && !slices.Contains(ranks, rank) {
		d.noteAdapter(s, name, fmt.Sprintf("r = %d, but the tensor %s of %s has the shape %s", ranks[0], quoted(name), quoted(s.where[name]), shapetext.Of(i.shape)))
		return true
	}
	module, after, _ := cutPart(name, p.name)
	for _, other := range f.parts {
		o, found := d.info(s, module+other.name+after)
		if found && other.rank >= 0 && other.rank < len(o.shape) && o.shape[other.rank] != rank {
			d.noteAdapter(s, name, fmt.Sprintf("that all parts of a module have one rank, but %s has the shape %s and %s has %s", quoted(name), shapetext.Of(i.shape), quoted(module+other.name+after), shapetext.Of(o.shape)))
			return true
		}
	}
	return false
}

// untargeted notes a module that the targets of the config, if it has any, do not select. A target selects the
// module of its name, and the modules whose names end in a dot and the target. It reports whether it noted a
// finding. A name with more than maxParts parts is not compared with targets.
func (d *directory) untargeted(s *set, name, module string, targets map[string]bool) bool {
	if targets == nil || strings.Count(module, ".") > maxParts {
		return false
	}
	for rest, more := module, true; more; _, rest, more = strings.Cut(rest, ".") {
		if targets[rest] {
			return false
		}
	}
	d.note(Config, name, fmt.Sprintf("the target_modules of %s do not name the module of the tensor %s in %s: peft leaves it out", quoted(d.at(adapterConfigFile)), quoted(name), quoted(s.where[name])), s.where[name], d.at(adapterConfigFile))
	return true
}
