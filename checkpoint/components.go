package checkpoint

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gosafetensors/safetensors/internal/pyjson"
)

// A component describes the tensors of a class of diffusers by the numbers of its config.
type component struct {
	classes []string
	shapes  map[string][]dim // lengths of the dimensions by name; * stands for any number, and a nil dim for any length
	counts  map[string]dim   // number of modules in a list, by the text before their numbers
}

// channels returns a dim that is the number of channels of a block, or of the last one if i is -1.
func channels(i int) dim {
	return func(fields map[string]any) (int, bool) {
		list, _ := fields["block_out_channels"].([]any)
		if i < 0 {
			i = len(list) - 1
		}
		if i < 0 || i >= len(list) {
			return 0, false
		}
		return number(list[i])
	}
}

// blocks is a dim: the number of blocks on the way down.
func blocks(fields map[string]any) (int, bool) {
	list, ok := fields["block_out_channels"].([]any)
	return len(list), ok
}

var (
	inputs, outputs = key("in_channels"), key("out_channels")
	latent          = key("latent_channels")
	patch           = product(key("patch_size"), key("patch_size")) // number of pixels of a patch
	width           = product(key("num_attention_heads"), key("attention_head_dim"))
)

// components lists the classes whose tensors are known.
func components() []component {
	unets := []string{"UNet2DConditionModel", "UNet2DModel", "ControlNetModel"}
	return []component{
		{unets, map[string][]dim{
			"conv_in.weight": {channels(0), inputs, nil, nil}, "conv_out.weight": {outputs, channels(0), nil, nil},
			"down_blocks.0.resnets.*.conv1.weight": {channels(0), nil, nil, nil}, "down_blocks.1.resnets.*.conv1.weight": {channels(1), nil, nil, nil},
			"down_blocks.2.resnets.*.conv1.weight": {channels(2), nil, nil, nil}, "down_blocks.3.resnets.*.conv1.weight": {channels(3), nil, nil, nil},
			"mid_block.resnets.*.conv1.weight": {channels(-1), channels(-1), nil, nil}, "time_embedding.linear_1.weight": {nil, nil}, "time_embedding.linear_2.weight": {nil, nil},
		}, map[string]dim{"down_blocks.": blocks, "down_blocks.0.resnets.": key("layers_per_block"), "down_blocks.1.resnets.": key("layers_per_block")}},
		{[]string{"UNet2DConditionModel", "ControlNetModel"}, map[string][]dim{
			"down_blocks.*.attentions.*.transformer_blocks.*.attn2.to_k.weight": {nil, key("cross_attention_dim")},
			"mid_block.attentions.*.transformer_blocks.*.attn2.to_k.weight":     {channels(-1), key("cross_attention_dim")},
		}, nil},
		{[]string{"AutoencoderKL"}, map[string][]dim{
			"encoder.conv_in.weight": {channels(0), inputs, nil, nil}, "encoder.conv_out.weight": {times(2, latent), channels(-1), nil, nil},
			"decoder.conv_in.weight": {channels(-1), latent, nil, nil}, "decoder.conv_out.weight": {outputs, channels(0), nil, nil},
			"encoder.conv_norm_out.weight": {channels(-1)}, "decoder.conv_norm_out.weight": {channels(0)},
			"quant_conv.weight": {times(2, latent), times(2, latent), nil, nil}, "post_quant_conv.weight": {latent, latent, nil, nil},
			"encoder.down_blocks.0.resnets.*.conv1.weight": {channels(0), nil, nil, nil}, "encoder.down_blocks.1.resnets.*.conv1.weight": {channels(1), nil, nil, nil},
		}, map[string]dim{"encoder.down_blocks.": blocks, "decoder.up_blocks.": blocks, "encoder.down_blocks.0.resnets.": key("layers_per_block")}},
		{[]string{"FluxTransformer2DModel"}, map[string][]dim{"x_embedder.weight": {width, inputs}, "context_embedder.weight": {width, key("joint_attention_dim")}, "proj_out.weight": {product(patch, or(outputs, inputs)), width}},
			map[string]dim{"transformer_blocks.": key("num_layers"), "single_transformer_blocks.": key("num_single_layers")}},
		{[]string{"FluxTransformer2DModel", "SD3Transformer2DModel"}, map[string][]dim{"time_text_embed.timestep_embedder.linear_1.weight": {width, nil}, "time_text_embed.timestep_embedder.linear_2.weight": {width, width}, "time_text_embed.text_embedder.linear_1.weight": {width, key("pooled_projection_dim")}, "time_text_embed.text_embedder.linear_2.weight": {width, width}, "norm_out.linear.weight": {times(2, width), width}}, nil},
		{[]string{"SD3Transformer2DModel"}, map[string][]dim{"pos_embed.proj.weight": {width, inputs, key("patch_size"), key("patch_size")}, "context_embedder.weight": {key("caption_projection_dim"), key("joint_attention_dim")}, "proj_out.weight": {product(patch, outputs), width}},
			map[string]dim{"transformer_blocks.": key("num_layers")}},
		{[]string{"PixArtTransformer2DModel"}, map[string][]dim{"pos_embed.proj.weight": {width, inputs, key("patch_size"), key("patch_size")}, "proj_out.weight": {product(patch, outputs), width}, "transformer_blocks.*.attn2.to_k.weight": {nil, key("cross_attention_dim")}}, map[string]dim{"transformer_blocks.": key("num_layers")}},
	}
}

// judgeComponentShapes notes the first tensor of a component of diffusers whose shape differs from the one that follows
// from its config, and a list of modules that has more or fewer than the config specifies.
func (d *directory) judgeComponentShapes(config *modelConfig, s *set) {
	var fields map[string]any
	if config.Class == "" || config.Quantization != nil || json.Unmarshal(pyjson.WithNulls(config.text), &fields) != nil {
		return
	}
	for _, c := range components() {
		if !slices.Contains(c.classes, config.Class) {
			continue
		}
		if lost := c.lost(config.Class, sortedNames(s.where), fields); lost != "" {
			d.note(Missing, lost, fmt.Sprintf("%s is not stored beside %s, but a %s has it: programs set it at random", quoted(lost), quoted(d.fileOf(s, "")), quoted(config.Class)), d.fileOf(s, ""))
			return
		}
		for _, name := range sortedNames(s.where) {
			if len(name) > maxName {
				continue
			}
			for _, pattern := range slices.Sorted(maps.Keys(c.shapes)) {
				dims := c.shapes[pattern]
				if matchesNumbers(pattern, name) && d.otherShape(s, name, dims, fields) {
					return
				}
			}
		}
		for _, prefix := range slices.Sorted(maps.Keys(c.counts)) {
			if want, ok := c.counts[prefix](fields); ok && d.otherCount(s, config, prefix, want) {
				return
			}
		}
	}
}

// lost returns a tensor that every component with this config has, and that is not among sorted names: the start of its
// name if only that is known. It returns "" if there is none, and if the names contain neither an attention nor a time
// embedding: then the set holds only a part of a component.
func (c component) lost(class string, names []string, fields map[string]any) string {
	if !slices.ContainsFunc(names, func(name string) bool {
		return strings.Contains(name, ".to_q.") || strings.Contains(name, ".time_emb_proj.")
	}) {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(c.shapes)) {
		optional := strings.Contains(name, "*") || strings.Contains(name, "quant_conv") || class == "ControlNetModel" && name == "conv_out.weight"
		if !optional && !has(names, name) {
			return name
		}
	}
	if n, _ := number(fields["layers_per_block"]); n == 0 || c.counts["down_blocks."] == nil {
		return ""
	}
	for _, block := range []string{"down_block", "up_block"} {
		types, _ := fields[block+"_types"].([]any)
		for i, kind := range types {
			for _, part := range []string{"resnets", "attentions"} {
				path := fmt.Sprintf("%ss.%d.%s.0.", block, i, part)
				if (part == "resnets" || strings.Contains(fmt.Sprint(kind), "Attn")) && len(restsBelow(names, path)) == 0 {
					return path
				}
			}
		}
	}
	if kind, given := fields["mid_block_type"]; (kind != nil || !given) && len(restsBelow(names, "mid_block.resnets.0.")) == 0 {
		return "mid_block.resnets.0."
	}
	return ""
}

// matchesNumbers reports whether a name is a pattern in which numbers replace each *.
func matchesNumbers(pattern, name string) bool {
	for {
		before, rest, more := strings.Cut(pattern, "*")
		if !more {
			return name == pattern
		}
		after, found := strings.CutPrefix(name, before)
		digits := strings.TrimLeft(after, "0123456789")
		if !found || len(digits) == len(after) {
			return false
		}
		pattern, name = rest, digits
	}
}

// otherCount notes a list of modules if the last of its numbers is not want - 1. It reports whether it noted one. A list
// without any module is judged only if it is one of transformer blocks.
func (d *directory) otherCount(s *set, config *modelConfig, prefix string, want int) bool {
	last, tensor := -1, ""
	for name := range s.where {
		rest, found := strings.CutPrefix(name, prefix)
		digits, _, more := strings.Cut(rest, ".")
		if n, err := strconv.Atoi(digits); found && more && err == nil && n <= 100_000 && (n > last || n == last && name < tensor) {
			last, tensor = n, name
		}
	}
	if last+1 == want || last < 0 && !strings.HasSuffix(prefix, "transformer_blocks.") {
		return false
	}
	if last < 0 {
		d.noteConfig(s, "", fmt.Sprintf("that a %s has %d modules in %q, but none is stored", quoted(config.Class), want, strings.TrimSuffix(prefix, ".")))
		return true
	}
	d.noteConfig(s, tensor, fmt.Sprintf("that a %s has %d modules in %q, but the last tensor in it is %s", quoted(config.Class), want, strings.TrimSuffix(prefix, "."), quoted(tensor)))
	return true
}
