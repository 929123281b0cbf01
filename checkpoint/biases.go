package checkpoint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/internal/lazyregexp"
	"github.com/gosafetensors/safetensors/internal/shapetext"
	"github.com/gosafetensors/safetensors/internal/tensorname"
)

// The rules in this file are about the weight and the bias of one module.

// misfit notes the first bias whose length is neither the number of rows nor the number of columns of its weight. It
// reports whether there is one.
func (d *directory) misfit(s *set, names []string) bool {
	for _, name := range names {
		module, is := strings.CutSuffix(name, ".bias")
		weight, found := d.info(s, module+".weight")
		bias, _ := d.info(s, name)
		if is && found && len(bias.shape) == 1 && bias.shape[0] > 1 && len(weight.shape) <= 2 && !slices.Contains(weight.shape, bias.shape[0]) {
			d.note(Config, name, fmt.Sprintf("%s has the shape %s in %s, and %s has %s: no module has both", quoted(name), shapetext.Of(bias.shape), quoted(s.where[name]), quoted(module+".weight"), shapetext.Of(weight.shape)), s.where[name])
			return true
		}
	}
	return false
}

// weightless returns the weight that a module with a bias lacks, or "" if there is none. It judges the modules that
// alwaysWeighted matches, and those for which another module, whose path differs only in numbers, has a weight. If all is
// true, it judges every module.
func weightless(names []string, all bool) string {
	weighted := make(map[string]bool) // templates of the modules that have a weight
	for _, name := range names {
		if module, is := strings.CutSuffix(name, ".weight"); is {
			weighted[templateOf(module+".")] = true
		}
	}
	for _, name := range names {
		module, is := strings.CutSuffix(name, "bias")
		if !is || !strings.HasSuffix(module, ".") || isBuffer(name) || len(restsBelow(names, module)) > 1 {
			continue
		}
		if (all || weighted[templateOf(module)] || alwaysWeighted().MatchString(module)) && !has(names, module+"weight") {
			return module + "weight"
		}
	}
	return ""
}

// alwaysWeighted matches the paths of modules that have a weight if they have a bias. Other modules with a bias may be heads,
// whose weights are tied to the embedding and not stored: the head of XLM has the name proj.
var alwaysWeighted = lazyregexp.New(`(?:^|[._])(?:(?i:[a-z]*norm\d?)|ln_\w+|dense|conv\d?|fc\d?|linear_?\d?)\.$`)

// halfNorm returns the bias that a norm next to a stack of layers lacks, if it has a weight, and all norms in the layers have
// a weight and a bias. It returns "" if there is none.
func halfNorm(names []string) string {
	type counts struct{ norms, biases int }
	inLayers := make(map[string]counts) // norms in the layers of all stacks below a path
	var single []string                 // norms next to stacks that have no bias
	for _, name := range names {
		module, is := strings.CutSuffix(name, ".weight")
		if last := lastPart(module + "."); !is || !tensorname.IsNorm(last) {
			continue
		}
		biased := has(names, module+".bias")
		if firstNumber(module) < 0 {
			if !biased && !has(names, module+".running_mean") {
				single = append(single, module)
			}
			continue
		}
		above := outer(stackOf(module))
		c := inLayers[above]
		if c.norms++; biased {
			c.biases++
		}
		inLayers[above] = c
	}
	for _, module := range single {
		if c := inLayers[outer(module+".")]; c.norms > 3 && c.norms == c.biases {
			return module + ".bias"
		}
	}
	return ""
}

// biasless returns the first bias that is missing beside a weight that withBiases matches. It returns "" if there is none.
func biasless(names []string) string {
	for _, name := range names {
		if bias := strings.TrimSuffix(name, "weight") + "bias"; withBiases().MatchString(name) && !has(names, bias) {
			return bias
		}
	}
	return ""
}

// hasBiases reports whether a class of diffusers has a bias in each convolution, norm and time embedding, except in
// shortcuts.
func hasBiases(class string) bool {
	return slices.Contains([]string{"UNet2DModel", "UNet2DConditionModel", "ControlNetModel", "VQModel", "AutoencoderKL"}, class)
}

// withBiases matches the names of the weights whose modules also have a bias, in every class for which hasBiases
// returns true.
var withBiases = lazyregexp.New(`(?:^|\.)(?:conv_(?:in|out|norm_out)|conv\d?|(?:post_)?quant_conv|norm\d?|group_norm|time_emb_proj|time_embedding\.linear_\d|proj_in|proj_out|to_out\.0|ff\.net\.0\.proj|ff\.net\.2)\.weight$`)
