package quant

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// must returns v. It panics if err is not nil, so use it only for calls that cannot fail in the
// test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// IdentifiedBy returns, for each layout, whether tensors with these names and dtypes include the two
// parts that identify the layout. It is exported for tests of package quant_test.
func IdentifiedBy(tensors map[string]safetensors.Tensor) map[string]bool {
	found := make(map[string]bool, len(layouts))
	for i, l := range layouts {
		title := fmt.Sprintf("row %d of layouts, %s: *%s with *%s", i, l.name, l.parts[0].suffix, l.parts[1].suffix)
		found[title] = false
		for name, t := range tensors {
			if stem, ok := l.parts[0].stem(name); ok && l.parts[0].has(t) {
				found[title] = found[title] || l.parts[1].has(tensors[stem+l.parts[1].suffix])
			}
		}
	}
	return found
}

// Methods returns the values of quant_method that a config may have.
func Methods() []string { return slices.Sorted(maps.Keys(methods)) }

// TestPatterns: names, globs and expressions of configs select the modules that Python selects.
func TestPatterns(t *testing.T) {
	ignoring := func(list ...string) (*config, error) {
		return parseConfig(must(json.Marshal(map[string]any{"quantization_config": map[string]any{"quant_method": fp8, "ignore": list}})))
	}
	for _, c := range []struct {
		pattern      string
		match, cover []string // names of modules
	}{
		{"lm_head", []string{"lm_head"}, []string{"lm_head", "lm_head.x", "language.lm_head"}},
		{"model.visual", []string{"model.visual"}, []string{"model.visual", "model.visual.proj", "x.model.visual.proj"}},
		{"visual.*", []string{"visual.a", "visual.", "visual.a.b"}, []string{"visual.a"}},
		{"*.gate", []string{"a.gate", "a.b.gate"}, []string{"a.gate"}},
		{"re:.*gate$", []string{"a.gate", "gate", "a.agate", "agate"}, []string{"gate"}},
		{"re:model", []string{"model", "model.visual", "model.visuals", "models"}, nil},
		{"re:(?!a)x", nil, nil}, // only Python understands it
		{"re:(", nil, nil},
		{"a[b", []string{"a[b"}, []string{"a[b.c"}},
		{"", []string{""}, []string{"", "a..b"}},
	} {
		left := int64(maxSteps)
		p := must(ignoring(c.pattern))
		all := []string{"lm_head", "lm_headx", "model.visual", "a.gate", "a.gate.b", "agate", "xmodel", "models", "x", "model.visuals", "amodel.visual"}
		for _, module := range slices.Concat(all, c.match) {
			require.Equal(t, slices.Contains(c.match, module), p.ignored.find(module, &left) != nil, "%q matches %q", c.pattern, module)
		}
		for _, module := range slices.Concat(c.match, c.cover) {
			require.True(t, p.ignores(module), "%q covers %q", c.pattern, module)
		}
	}
	long := slices.Repeat([]string{"re:" + strings.Repeat("a", maxExpression)}, maxExpressions/maxExpression/2)
	must(ignoring(long...))
	_, err := ignoring(slices.Concat(long, []string{"b*"}, long)...)
	require.EqualError(t, err, "the quantization_config: its patterns, with repeats written out, take more than 131072 bytes")
	_, err = ignoring("re:" + strings.Repeat("a", maxExpression+1))
	require.EqualError(t, err, `the quantization_config: pattern "re:`+strings.Repeat("a", 197)+`...": 4097 bytes exceed the limit of 4096`)
	for _, folds := range []string{"re:(?i)x", "re:a(?si:[B-\U0002FFFF])", "re:(?mi)"} {
		_, err = ignoring(folds)
		require.ErrorIs(t, err, errors.ErrUnsupported, folds)
	}
	must(ignoring(`re:(?:i)`, `re:(?P<i>x)`, `re:(?s)i`))
}

// TestCover compares config.ignores with a search for the pattern between dots.
func TestCover(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	path := func(most int) string {
		parts := make([]string, 1+r.IntN(most))
		for i := range parts {
			parts[i] = string("ab"[r.IntN(2)])
		}
		return strings.Join(parts, ".")
	}
	for range 5000 {
		pattern, module := path(4), path(32)
		c := &config{ignored: choice{names: map[string]*settings{pattern: {}}}}
		require.Equal(t, strings.Contains("."+module+".", "."+pattern+"."), c.ignores(module), "%q, %q", pattern, module)
	}
	c := &config{ignored: choice{names: map[string]*settings{"a": {}}}}
	for before, want := range map[int]bool{31: true, 32: false, 1 << 20: false} {
		require.Equal(t, want, c.ignores(strings.Repeat("b.", before)+"a"), "component %d of a path", before+1)
	}
}

// TestSize: an expression counts as often as it is repeated, and at least once.
func TestSize(t *testing.T) {
	for expr, want := range map[string]int64{"a": 2, "a*": 3, "a{1}": 3, "a{0,}": 3, "a{2,}": 6, "a{2,5}": 15, "(?:a{2}){3}": 21} {
		require.Equal(t, want, size(must(syntax.Parse(expr, syntax.Perl))), expr)
	}
}

// TestMethods finds the method of sections without a quant_method.
func TestMethods(t *testing.T) {
	for text, want := range map[string]string{
		`{"quantization":{"quant_algo":"W4A16_NVFP4"}}`:                                     modelOpt,
		`{"quantization":{"quant_algo":null,"kv_cache_quant_algo":"FP8","group_size":128}}`: "",
		`{"quantization":{"quant_algo":null,"quant_method":"modelopt"}}`:                    modelOpt,
		`{"quantization":{"load_in_4bit":true,"load_in_8bit":false}}`:                       bitsAndBytes,
		`{"quantization":{"load_in_4bit":false,"load_in_8bit":true}}`:                       bitsAndBytes,
		`{"quantization":{"bits":4,"group_size":64}}`:                                       mlx,
		`{"quantization":null}`: "",
		`{"compression_config":{"quant_method":"compressed-tensors","config_groups":{}}}`: compressed,
		`{"text_config":{"compression_config":{"quant_method":"compressed-tensors"}}}`:    compressed,
		`{"compression_config":{"ratio":4},"quantization_config":{"quant_method":"fp8"}}`: fp8,
		`{"compression_config":{"ratio":4},"quantization":{"quant_algo":"FP8"}}`:          modelOpt,
		`{"decoder":{"quantization_config":{"quant_method":"fp8"}}}`:                      fp8,
		`{"compression_config":{"ratio":4}}`:                                              "",
		`{"layers":12}`:                                                                   "", // these layers are not the metadata of ComfyUI
		`{"format_version":"1.0"}`:                                                        "",
	} {
		require.Equal(t, want, must(parseConfig([]byte(text))).method, text)
	}
	_, err := parseConfig([]byte(`{"compression_config":{"quant_method":"x"},"quantization_config":{"bits":4,"group_size":64}}`))
	require.EqualError(t, err, `the config: compression_config: quant_method "x" is not used: unsupported operation`)
	both := must(parseConfig([]byte(`{"quantization":{"bits":4,"group_size":64},"quantization_config":{"bits":8,"group_size":32}}`)))
	require.Equal(t, 4, both.bits) // MLX reads the key quantization
}

// TestFormats: checkpoint_format or format specifies how GPTQ stores zero points.
func TestFormats(t *testing.T) {
	for section, plusOne := range map[string]bool{
		``:                               true,
		`,"format":"gptq"`:               true,
		`,"format":"gptq_v2"`:            false,
		`,"checkpoint_format":"GPTQ_V2"`: false,
		`,"checkpoint_format":"gptq_v2","format":"GPTQ_v2"`: false,
	} {
		require.Equal(t, plusOne, must(parseConfig([]byte(`{"quantization_config":{"quant_method":"gptq"`+section+`}}`))).plusOne, section)
	}
}

// TestBlockStructure reads block_structure in the spelling of each version of compressed-tensors.
func TestBlockStructure(t *testing.T) {
	for text, want := range map[string]block{`[128,64]`: {128, 64}, `"128x64"`: {128, 64}, `null`: nil} {
		require.Equal(t, want, newSection("", []byte(`{"weights":{"block_structure":`+text+`}}`)).weights().block, text)
	}
	for _, text := range []string{`"128"x`, `"128xb"`, `"x"`, `{}`, `"[1]"x`, `"1,2]"`, `""`, `[1]`, `[0,1]`} {
		require.Error(t, json.Unmarshal([]byte(text), new(block)), text)
	}
}

// TestAutoRoundModules: the keys with settings of AutoRound are names of modules, or texts and
// expressions that are searched in the names.
func TestAutoRoundModules(t *testing.T) {
	c := must(parseConfig([]byte(`{"quantization_config":{"quant_method":"auto-round","packing_format":"auto_round","bits":4,"group_size":32,"extra_config":{
		"up":{},"a.up":{"bits":2},"plain.up":{"bits":3},".*down$":{"bits":3},"up_":{"bits":8},"experts":{"bits":8}}}}`)))
	want := map[string]int{"a.up": 2, "x.a.up": 4, "a.up_proj": 8, "experts.1.down": 3, "experts.1.down2": 8, "plain.up": 3, "x.plain.up": 4}
	tensors := map[string]safetensors.Tensor{}
	for module := range want {
		for suffix, d := range map[string]safetensors.DType{".qweight": safetensors.I32, ".qzeros": safetensors.I32, ".scales": safetensors.F16} {
			if module == "plain.up" { // a module that is not quantised
				suffix, d = ".weight", safetensors.F16
			}
			tensors[module+suffix], _ = safetensors.NewTensor(d, []int{0, 0}, []byte{})
		}
	}
	modules, _, err := findModules(tensors, c)
	require.NoError(t, err)
	require.Len(t, modules, len(want)-1)
	for _, m := range modules {
		require.Equal(t, want[m.path()], m.settings.bits, m.path())
	}
	c.steps = 20
	_, _, err = findModules(tensors, c)
	require.ErrorIs(t, err, errSteps)
}

// TestGroups finds the group of compressed-tensors that a module belongs to.
func TestGroups(t *testing.T) {
	type want map[string]int // number of bits by module; 0 stands for an error
	for _, c := range []struct {
		groups string
		want   want
	}{
		{`"a":{"targets":["lm_head"],"weights":{"num_bits":8}},"b":{"targets":["Linear"],"weights":{"num_bits":4}}`, want{"lm_head": 8, "x.proj": 4}},
		{`"a":{"targets":["re:.*up$"],"weights":{"num_bits":8}},"b":{"targets":["re:(?!.*up).*"],"weights":{"num_bits":4}}`, want{"x.up": -1, "x.down": -1}},
		{`"a":{"targets":["re:(?!.*up).*"],"weights":{"num_bits":4}}`, want{"x.up": 4, "x.down": 4}},
		{`"a":{"format":"dense","targets":["Linear"],"weights":{"num_bits":8}},"b":{"targets":["re:.*up$"],"weights":{"num_bits":4}}`, want{"x.up": 4, "x.down": 4}},
		{`"a":{"targets":["Linear"],"weights":null},"b":null`, want{"x": 0}},
		{`"a":{"format":"int-quantized","targets":["Linear"],"weights":{"num_bits":8}}`, want{"x": 0}},
		{`"a":{"targets":["Linear"],"weights":{"num_bits":2}},"b":{"targets":["re:.*up$","Embedding"],"weights":{"num_bits":3}},"c":{"targets":["re:.*x.*"],"weights":{"num_bits":4}},"d":{"targets":["re:.*mid$","x.up"],"weights":{"num_bits":8}}`,
			want{"x.up": 8, "y.up": 3, "x.y.up": 3, "x.down": 4, "x.mid": 8, "down": 2}}, // the results of match_targets of compressed-tensors 0.20.0
		{`"a":{"targets":["re:.*"],"weights":{"num_bits":2}},"b":{"targets":["re:.*"],"weights":{"num_bits":2}}`, want{"x": 2}},
		{`"a":{"targets":["Linear"],"weights":{"num_bits":2}},"b":{"format":"int-quantized","targets":["Linear"],"weights":{"num_bits":8}}`, want{"x": 2}},
	} {
		config := must(parseConfig([]byte(`{"quantization_config":{"quant_method":"compressed-tensors","format":"pack-quantized","config_groups":{` + c.groups + `}}}`)))
		for module, bits := range c.want {
			w, err := config.settingsFor(module, "pack-quantized")
			if bits < 0 {
				require.ErrorIs(t, err, errPython)
				continue
			}
			if bits == 0 {
				require.EqualError(t, err, "no group of the quantization_config has format pack-quantized and targets it", "%s %s", c.groups, module)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, bits, w.bits, "%s %s", c.groups, module)
		}
	}
}

// TestExpression compares the matches of an expression with those of package regexp.
func TestExpression(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	parts := []string{"a", "b", ".", "é", "\n", "[^a]", "[a-c]", "\\d", "\\b", "\\B", "^", "$", "(?m:^)", "(?m:$)", "(?s:.)", "*", "+", "?", "*?", "{2}", "{0,3}", "|", "(", ")", "(?:", ")"}
	some := func(parts []string, n int) string {
		var b strings.Builder
		for range r.IntN(n) {
			b.WriteString(parts[r.IntN(len(parts))])
		}
		return b.String()
	}
	valid, matches := 0, 0
	for range 20_000 {
		text := some(parts, 9)
		e := new(config).compile(nil, text, text, nil)
		if e.program == nil {
			continue
		}
		valid++
		slow := regexp.MustCompile("^(?:" + text + ")")
		for range 5 {
			name := some([]string{"a", "b", "A", "1", ".", "é", "\n", "\xff", "\x00"}, 6)
			left := int64(maxSteps)
			ok := e.match(name, &left)
			require.Equal(t, slow.MatchString(name), ok, "%q, %q", text, name)
			if ok {
				matches++
			}
		}
	}
	require.Greater(t, valid, 5000)
	require.Greater(t, matches, 5000)
}

// TestSteps counts the steps of matches. More steps than the budget are an error.
func TestSteps(t *testing.T) {
	const hostile = "re:(.?){200}$"
	c := must(parseConfig([]byte(`{"quantization_config":{"quant_method":"compressed-tensors","config_groups":{"a":{"targets":["` + hostile + `"],"weights":{"num_bits":4}},"b":{"targets":["x"],"weights":{"num_bits":8}}}}}`)))
	name := strings.Repeat("a", 400)
	_, err := c.settingsFor(name, "pack-quantized")
	require.EqualError(t, err, "no group of the quantization_config has format pack-quantized and targets it")
	taken := maxSteps - c.steps
	require.Greater(t, taken, int64(200*200), "hundreds of threads, for hundreds of bytes")
	c.steps = taken + taken/2
	_, err = c.settingsFor(name, "pack-quantized")
	require.Error(t, err)
	require.NotErrorIs(t, err, errSteps)
	_, err = c.settingsFor(name, "pack-quantized")
	require.ErrorIs(t, err, errSteps)
	require.Greater(t, c.steps, int64(-2000), "it stops within a name")

	// All matches of a config share one budget.
	tensors := map[string]safetensors.Tensor{}
	for i := range 10 {
		tensors[fmt.Sprint(i, name, ".weight")] = must(safetensors.NewTensor(safetensors.F8_E4M3, []int{1, 1}, []byte{0}))
	}
	tensors["x.weight"] = tensors["0"+name+".weight"] // a module that is quantised
	tensors["x.weight_scale_inv"] = must(safetensors.NewTensor(safetensors.F32, []int{1, 1}, []float32{1}))
	c = must(parseConfig([]byte(`{"quantization_config":{"quant_method":"fp8","ignored_layers":["` + hostile + `","re:[0-9]a*$"]}}`)))
	_, _, err = findModules(tensors, c)
	require.NoError(t, err)
	c.steps = (maxSteps - c.steps) * 9 / 10
	_, _, err = findModules(tensors, c)
	require.ErrorIs(t, err, errSteps)
	require.ErrorContains(t, err, `matching "9aaa`)
}

// TestStepsOfModels matches the names in one layer of a model with many experts. The steps for all
// layers are far below the limit.
func TestStepsOfModels(t *testing.T) {
	c := must(parseConfig([]byte(`{"quantization_config":{"quant_method":"compressed-tensors","format":"pack-quantized","config_groups":{
		"group_0":{"weights":{"num_bits":8},"targets":["re:.*self_attn.(q_a|q_b|kv_a|kv_b|o)_proj.*","re:.*shared_experts.(gate|up|down)_proj$","re:model.layers.[0-2].mlp.*",
			"re:.*layers\\.(3|4|5|58|59|60)\\.mlp.experts.*","re:.*lm_head","re:.*visual.*","re:.*mm_projector.*","re:(model|language_model).*embed.*","re:.*eh_proj","re:.*router$"]},
		"group_1":{"weights":{"num_bits":4},"targets":["re:.*\\.experts\\.[0-9]+\\.(gate|up|down)_proj$","re:.*mlp.(gate|up|down)_proj$"]}}}}`)))
	const layers, experts = 61, 384
	for e := range experts {
		must(c.settingsFor(fmt.Sprintf("language_model.model.layers.57.mlp.experts.%d.down_proj", e), "pack-quantized"))
	}
	require.Less(t, (maxSteps-c.steps)*3*layers, int64(maxSteps/16))
}

// TestScattered: if an index scatters the groups, matrix.line applies only scales and zero points.
// No layout with an index has other grids or a constant.
func TestScattered(t *testing.T) {
	indexed := 0
	for _, l := range layouts {
		has := func(r role) bool { return slices.ContainsFunc(l.parts, func(p part) bool { return p.role == r }) }
		if has(index) {
			indexed++
			require.True(t, has(scales) && !has(biases) && l.constant == 0, l.name)
		}
	}
	require.Positive(t, indexed)
}
