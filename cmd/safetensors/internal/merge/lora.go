package merge

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/blocks"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pattern"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/lazyregexp"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
)

// LoRA returns a base into which an adapter of the Python package peft is merged: W + scale·B·A (Hu
// et al., arXiv:2106.09685), where scale is alpha/r, or alpha/√r with rsLoRA (Kalajdzievski,
// arXiv:2312.03732). Biases of B are multiplied by scale and added. Whole tensors in the adapter,
// such as modules to save and biases, replace those of the base, and the rows of trainable tokens
// replace rows. config is the content of
// adapter_config.json.
func LoRA(base, adapter checkpoint, config []byte) (*Adapted, error) {
	return Tying(nil).LoRA(base, adapter, config)
}

// LoRA is like the func LoRA. The base has each tensor once. An adapter may name a tensor by one of its other names: its
// updates change the tensor, as in peft. A whole tensor that replaces it under one name only is an UntyingError.
func (t Tying) LoRA(base, adapter checkpoint, config []byte) (*Adapted, error) {
	c, err := parseConfig(config)
	if err != nil {
		return nil, fmt.Errorf("adapter_config.json: %w", err)
	}
	if err := checkSize(base); err != nil {
		return nil, err
	}
	r := &Adapted{Tensors: maps.Clone(base), Rows: make(map[string][2]int)}
	rest, err := c.withoutCopies(base, adapter)
	if err == nil {
		rest, err = c.addParameters(r, rest)
	}
	if err != nil {
		return nil, err
	}
	if err := c.addModules(r, rest, t); err != nil {
		return nil, err
	}
	r.Untied, err = c.untied(base, adapter, r.Tensors)
	return r, err
}

// dialects are the kinds of adapters that peft does not write. They are recognized by the names of
// their tensors.
var dialects = []struct {
	name  func() *regexp.Regexp
	known string
}{
	{lazyregexp.New(`\.lora_(down|up)(\.weight)?$|^lora_(unet|te\d?|transformer|prior)_`), "kohya: lora_down, alpha"},
	{lazyregexp.New(`\.(hada|lokr|oft|glora|dylora)_`), "LyCORIS: LoHa, LoKr and others"},
	{lazyregexp.New(`lora(_linear_layer)?\.(down|up)\.weight$|^(unet|transformer|text_encoder(_\d)?|prior|diffusion_model)\..*\.lora_[AB]\.weight$`), "diffusers: unet, transformer, text_encoder"},
}

// Dialect returns the kind of an adapter whose tensors have these names, or "" if peft may have
// written it.
func Dialect(names []string) string {
	for _, d := range dialects {
		if slices.ContainsFunc(names, d.name().MatchString) {
			return d.known
		}
	}
	return ""
}

// adapterName matches the names of the factors A and B of an adapter.
var adapterName = lazyregexp.New(`\.lora_(A|B|embedding_A|embedding_B)(\.|$)`)

// IsAdapter reports whether tensors with these names belong to an adapter, and not to a model.
func IsAdapter(names []string) bool {
	return Dialect(names) != "" || slices.ContainsFunc(names, adapterName().MatchString)
}

// An Adapted is a model into which an adapter is merged.
type Adapted struct {
	Tensors checkpoint
	Changed int // number of tensors that the adapter changes

	Computed []string // names of the tensors to which the adapter adds updates

	// Rows has the number of rows before and after, by name, for each tensor that the adapter
	// replaces with one that has more or fewer rows: the embeddings of another vocabulary.
	Rows map[string][2]int

	// Untied is the name of the embeddings, or "", if the adapter replaces them as a module to save, and
	// neither the adapter nor the base has a head. peft leaves a head that is tied to them as it was.
	Untied string
}

// addModules adds the updates of an adapter to the modules of the base. It replaces the tensors of
// the base with the whole tensors of the adapter. A tensor of the base may have other names in tied.
func (c *config) addModules(r *Adapted, adapter checkpoint, tied Tying) (err error) {
	all := r.Tensors
	changed := make(map[string]part)                         // maps the name of a tensor of the base to the part that changes it
	for _, name := range slices.Sorted(maps.Keys(adapter)) { // in this order, a tensor that replaces one of the base comes before the updates of the same one
		p := partOf(name)
		if to := tied.Name(p.target); to != p.target {
			if p.whole() && !c.Tying {
				return &UntyingError{p.target, to}
			}
			p.target, p.tied = to, fmt.Sprintf("; %q is another name of it", p.target)
		}
		t, w, other := adapter[name], all[p.target], adapter[p.other]
		before, twice := changed[p.target]
		switch {
		case w.DType() == 0:
			return c.missing(all, p)
		case p.letter != 0 && !t.DType().IsFloat():
			return fmt.Errorf("adapter tensor %q is %v, expected floats", name, t)
		case p.letter != 0 && (w.DType() == safetensors.F64 || !isNumber(w.DType())):
			return fmt.Errorf("adapter tensor %q: the base has %v; an adapter is added to F32, F16 and BF16", name, w)
		case twice && p.letter != 'B' && (p.letter == 0 || before.letter != 0):
			return fmt.Errorf("adapter tensors %q and %q are both for %q%s", before.name, name, p.target, cmp.Or(before.tied, p.tied))
		case p.other != "" && other.DType() == 0:
			return fmt.Errorf("adapter tensor %q comes without %q", name, p.other)
		}
		switch p.letter {
		case 'A':
			r.Computed = append(r.Computed, p.target)
			all[p.target], err = c.add(w, other, t, p)
		case 'B': // the A of this B has added both
			continue
		case 'b':
			r.Computed = append(r.Computed, p.target)
			all[p.target], err = c.addBias(w, t, other, p.module)
		case 't':
			all[p.target], err = c.replaceRows(w, t, p.module)
		default:
			if otherRows(w, t) {
				r.Rows[p.target] = [2]int{w.Shape()[0], t.Shape()[0]}
				all[p.target], err = t.Convert(w.DType())
			} else {
				all[p.target], err = replace(w, t)
			}
		}
		if err != nil {
			return fmt.Errorf("adapter tensor %q: %w", name, err)
		}
		changed[p.target] = p
		r.Changed++
	}
	return nil
}

// missing returns the error for a part whose target the base lacks.
func (c *config) missing(base checkpoint, p part) error {
	err := &MissingError{Name: p.target}
	hint := cmp.Or(tiedHint(base, p.target), fewerLayers(base, p.target), storedAs(base, p.target), near(base, p.target))
	if hint == "" && p.whole() {
		err.Saved = c.savedModule(p.target)
	}
	err.text = fmt.Sprintf("adapter tensor %q: the base has no tensor %q%s", p.name, p.target, hint)
	return err
}

// A part describes the purpose of a tensor in an adapter.
type part struct {
	name, module string
	target       string // name of the tensor of the base that it changes
	letter       byte   // 'A' or 'B' for a factor of an update, 'b' for the bias of B, 't' for rows that replace some of target, 0 for a tensor that replaces target
	other        string // name of the other tensor that a factor or the bias needs
	tied         string // the end of an error about target if name contains another name of it, or ""
}

// whole reports whether the part is a module to save, or another tensor that is not that of a module with an update.
func (p part) whole() bool { return p.letter == 0 && p.module == "" }

// kinds maps the ends of names to the parts that they indicate.
var kinds = []struct {
	end, target, other string
	letter             byte
}{
	{".lora_A.weight", ".weight", ".lora_B.weight", 'A'},
	{".lora_B.weight", ".weight", ".lora_A.weight", 'B'},
	{".lora_embedding_A", ".weight", ".lora_embedding_B", 'A'},
	{".lora_embedding_B", ".weight", ".lora_embedding_A", 'B'},
	{".lora_B.bias", ".bias", ".lora_B.weight", 'b'},
	{".token_adapter.trainable_tokens_delta", ".weight", "", 't'},
	{".token_adapter.base_layer.weight", ".weight", "", 0},
	{".base_layer.weight", ".weight", "", 0}, // the weight of a module that has an adapter
	{".base_layer.bias", ".bias", "", 0},
}

func partOf(name string) part {
	target := strings.TrimPrefix(name, "base_model.model.")
	for _, k := range kinds {
		if module, ok := strings.CutSuffix(target, k.end); ok {
			other := k.other
			if other != "" {
				other = strings.TrimSuffix(name, k.end) + other
			}
			return part{name: name, module: module, target: module + k.target, letter: k.letter, other: other}
		}
	}
	return part{name: name, target: target}
}

// otherRows reports whether whole, a whole tensor of an adapter, has another number of rows than w,
// the tensor of the base, and otherwise the same shape.
func otherRows(w, whole safetensors.Tensor) bool {
	a, b := w.Shape(), whole.Shape()
	return len(a) > 0 && len(a) == len(b) && b[0] != a[0] && b[0] > 0 && slices.Equal(a[1:], b[1:]) && isNumber(w.DType()) && whole.DType().IsFloat()
}

// storedNames maps parts of the names of modules in transformers 5 to those of the tensors that transformers stores for them:
// routers of Mixtral and of Phi-3.5-MoE.
var storedNames = map[string]string{".mlp.gate.": ".block_sparse_moe.gate.", ".mlp.router.": ".block_sparse_moe.gate."}

// storedAs returns a hint for an adapter of a module that the base stores under another name: the --rename that makes the
// adapter fit the base. It returns "" if there is no such module.
func storedAs(base checkpoint, target string) string {
	for module, stored := range storedNames {
		name := strings.Replace(target, module, stored, 1)
		if _, found := base[name]; found && name != target {
			return renameAdvice(name, pattern.Replacing(regexp.QuoteMeta(module), stored))
		}
	}
	return ""
}

// renameAdvice returns a hint with the tensor of the base that an adapter means, and the --rename that makes the adapter fit.
func renameAdvice(name, rename string) string {
	return fmt.Sprintf(", but %q: cp ADAPTER FOLDER --with-files --rename %s makes an adapter for it", name, term.Word(rename))
}

// fewerLayers returns a hint for an adapter that was made for a model with more layers than the base has, or "". The base has
// a tensor with the name target, except for a smaller number in it.
func fewerLayers(base checkpoint, target string) string {
	parts, last := strings.Split(target, "."), -1
	layer, at := layerOf(target)
	for name := range base {
		other, i := layerOf(name)
		if have := strings.Split(name, "."); at >= 0 && i == at && slices.Equal(have[:i], parts[:i]) && slices.Equal(have[i+1:], parts[i+1:]) {
			last = max(last, other)
		}
	}
	if last < 0 || last >= layer {
		return ""
	}
	return fmt.Sprintf(": its last layer is %d, and the adapter is for a model with more layers", last)
}

// layerOf returns the first number between the dots of a name, which is that of the layer, and its place among the parts
// that dots separate. The place is negative if there is none.
func layerOf(name string) (layer, at int) {
	for i, part := range strings.Split(name, ".") {
		if n, err := strconv.Atoi(part); err == nil {
			return n, i
		}
	}
	return 0, -1
}

// near returns a hint for an adapter that was made for a model with other prefixes: the tensor of
// the base that target probably means, and the --rename that makes the adapter fit the base. All numbers in both names are
// equal: a tensor of another layer is another weight.
func near(base checkpoint, target string) string {
	want := strings.Split(target, ".")
	best, common := "", 2 // common is the number of equal components at the end of both names
	for _, name := range slices.Sorted(maps.Keys(base)) {
		have, n := strings.Split(name, "."), 0
		if !slices.Equal(numbersIn(have), numbersIn(want)) {
			continue
		}
		for n < len(want) && n < len(have) && have[len(have)-1-n] == want[len(want)-1-n] {
			n++
		}
		if n > common || best != "" && n == common && len(name) < len(best) {
			best, common = name, n
		}
	}
	const most = 3 // largest number of components of a prefix
	there := strings.Split(best, ".")
	if best == "" || len(want)-common > most || len(there)-common > most {
		return ""
	}
	prefix := func(parts []string) string {
		return strings.Join(append([]string{"base_model", "model"}, parts...), ".") + "."
	}
	rename := pattern.Replacing("^"+regexp.QuoteMeta(prefix(want[:len(want)-common])), prefix(there[:len(there)-common]))
	return renameAdvice(best, rename)
}

// numbersIn returns the parts of a name that are numbers.
func numbersIn(parts []string) []string {
	return slices.DeleteFunc(slices.Clone(parts), func(part string) bool {
		_, err := strconv.Atoi(part)
		return err != nil
	})
}

// replace returns a whole tensor of an adapter, converted to the dtype of the base.
func replace(w, whole safetensors.Tensor) (safetensors.Tensor, error) {
	if !slices.Equal(w.Shape(), whole.Shape()) {
		return w, fmt.Errorf("it is %v, that of the base is %v", whole, w)
	}
	if whole.DType() == w.DType() { // also for integers, which Convert refuses
		return whole, nil
	}
	return whole.Convert(w.DType())
}

// add returns w + scale·b·a, or w + scale·(b·a)ᵀ if weights are stored as [in, out].
func (c *config) add(w, b, a safetensors.Tensor, p part) (safetensors.Tensor, error) {
	s := slices.Concat(w.Shape(), b.Shape(), a.Shape()) // out, in, out, r, r, in
	if len(w.Shape()) != 2 || len(b.Shape()) != 2 || len(s) != 6 {
		return w, fmt.Errorf("the base has %v, lora_B is %v, lora_A is %v: expected matrices", w, b, a)
	}
	transposed := strings.HasSuffix(p.name, ".lora_embedding_A") || c.FanInFanOut
	out, in := s[0], s[1]
	if transposed {
		out, in = in, out
	}
	if s[2] != out || s[3] != s[4] || s[5] != in || s[3] == 0 {
		return w, fmt.Errorf("the base has %v, lora_B is %v, lora_A is %v: their shapes do not fit", w, b, a)
	}
	if want := valueOf(c.ranks, p.module, c.Rank); want != nil && *want != float64(s[3]) {
		return w, fmt.Errorf("its rank is %d, adapter_config.json specifies %g", s[3], *want)
	}
	if !transposed {
		return product(w, b, a, c.scale(p.module, s[3]))
	}
	left, right, err := transposedProduct(b, a)
	if err != nil {
		return w, err
	}
	return product(w, left, right, c.scale(p.module, s[3]))
}

// addBias returns w + scale·bias. b is the matrix to which the bias belongs.
func (c *config) addBias(w, bias, b safetensors.Tensor, module string) (safetensors.Tensor, error) {
	shape := b.Shape()
	switch {
	case len(shape) != 2 || shape[1] == 0:
		return w, fmt.Errorf("lora_B is %v, expected a matrix", b)
	case len(w.Shape()) != 1 || !slices.Equal(w.Shape(), bias.Shape()):
		return w, fmt.Errorf("the base has %v, the bias is %v: their shapes do not fit", w, bias)
	}
	factors := []float64{1, float64(c.scale(module, shape[1]))}
	return combine([]safetensors.Tensor{w, bias}, always(factors), false)
}

// product returns w + scale·left·right.
func product(w, left, right safetensors.Tensor, scale float32) (safetensors.Tensor, error) {
	return blocks.Join(w.Shape(), func(block []safetensors.Range, shape []int) (safetensors.Tensor, error) {
		ofRows := block[:min(len(block), 1)]
		ofColumns := append([]safetensors.Range{safetensors.All()}, block[len(ofRows):]...)
		return safetensors.NewTensorFunc(w.DType(), shape, func(sum []float32) error {
			if _, err := numbers(sum[:0], w, block...); err != nil {
				return err
			}
			l, err := numbers[float32](nil, left, ofRows...)
			if err != nil {
				return err
			}
			r, err := numbers[float32](nil, right, ofColumns...)
			if err != nil || len(sum) == 0 {
				return err
			}
			rows, columns, rank := shape[0], shape[1], left.Shape()[1]
			gonum.Implementation{}.Sgemm(blas.NoTrans, blas.NoTrans, rows, columns, rank, scale, l, rank, r, columns, 1, sum, columns)
			return nil
		})
	})
}

// A MissingError reports that the base lacks the tensor Name, which an adapter changes. Saved is the module to save that has
// the tensor, if the base probably has no such module, and otherwise "".
type MissingError struct {
	Name, Saved string
	text        string
}

func (e *MissingError) Error() string { return e.text }
