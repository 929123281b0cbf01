package checkpoint

import (
	"fmt"
	"slices"
	"strings"
)

// judgeVariants compares variants that are named after a dtype with the files without a variant. Both are the same
// model, so they have the same tensors. Other variants, such as ema, may have other weights.
func (d *directory) judgeVariants() {
	for _, s := range d.sets {
		if !slices.Contains([]string{"fp16", "bf16", "fp32", "float16", "bfloat16", "float32"}, s.variant) {
			continue
		}
		plain := d.plainOf(s)
		if plain == nil || len(s.where) == 0 || len(plain.where) == 0 {
			continue
		}
		if tensor, why := d.varies(plain, s); tensor != "" {
			first, second := d.fileOf(plain, tensor), d.fileOf(s, tensor)
			d.note(Ambiguous, tensor, fmt.Sprintf("%s and its variant %s in %s are two models: the tensor %s differs (%s)", quoted(first), quoted(s.variant), quoted(second), quoted(tensor), why), first, second)
		}
	}
}

// plainOf returns the set without a variant that belongs to the variant s, or nil. It prefers the set of the same format.
func (d *directory) plainOf(s *set) (plain *set) {
	stem := strings.TrimPrefix(s.stem, "pytorch_")
	for _, other := range d.sets {
		if other.variant == "" && strings.TrimPrefix(other.stem, "pytorch_") == stem && (plain == nil || other.torch == s.torch) {
			plain = other
		}
	}
	return plain
}

// varies returns a tensor whose shape in a variant differs from its shape in the plain files, or which only one of them
// has, and the reason. It ignores tensors that only files of torch.save have, because they may be tied to others. If
// each set has tensors that the other lacks, it ignores these as well, because versions of a library may name tensors
// differently.
func (d *directory) varies(plain, of *set) (tensor, why string) {
	var only, more []string
	aliasesOf, aliasesPlain := d.aliases(of), d.aliases(plain)
	for _, name := range sortedNames(plain.where) {
		a, _ := d.info(plain, name)
		b, both := d.info(of, of.where.find(name))
		switch {
		case both && !slices.Equal(a.shape, b.shape):
			return name, fmt.Sprintf("%v in one, %v in the other", a, b)
		case !both && (!plain.torch || of.torch) && !isBuffer(name) && !mayBeTied(name) && aliasesOf[name] == "":
			only = append(only, name)
		}
	}
	for _, name := range sortedNames(of.where) {
		if plain.where.find(name) == "" && (!of.torch || plain.torch) && !isBuffer(name) && !mayBeTied(name) && aliasesPlain[name] == "" {
			more = append(more, name)
		}
	}
	switch {
	case len(only) > 0 && len(more) == 0:
		return only[0], "the variant lacks it"
	case len(more) > 0 && len(only) == 0:
		return more[0], "only the variant has it"
	}
	return "", ""
}
