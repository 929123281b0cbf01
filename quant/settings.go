package quant

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/internal/shapetext"
)

const maxDimension = math.MaxInt32

// settings describe how a module, or every module, is quantised. A setting that the config does not
// specify is zero.
type settings struct {
	bits       int    // number of bits of a code; 0 if not given
	groupSize  int    // number of elements in a group; -1 for a single group, 0 if not given
	ordered    bool   // whether an index must assign columns to groups
	asymmetric bool   // whether there must be zero points
	symmetric  bool   // whether every zero point must be in the middle of the codes
	symmetry   string // key and value in the config that set the field symmetric, for errors; "" if none does
	unordered  bool   // whether the columns of each group must be adjacent
	strategy   string // for compressed-tensors, how elements share a scale
	block      block  // rows and columns that share a scale; nil if not given
	format     string // for compressed-tensors, the format of the group, if it specifies a single format
	kind       string // for compressed-tensors, the kind of the codes, int or float
	exempt     string // key that exempts these modules from quantisation; "" if they are quantised
}

// settings takes the settings in a section.
func (s *section) settings() settings {
	given := s.get("group_size") != nil
	order := take[*bool](s, "desc_act")
	own := settings{bits: take[int](s, "bits"), groupSize: take[int](s, "group_size"), ordered: order != nil && *order, unordered: order != nil && !*order}
	s.word("mode", "affine")                                               // a key of MLX
	kind, inputs := take[string](s, "data_type"), take[int](s, "act_bits") // keys of AutoRound
	if g := own.groupSize; g == 0 && given || g < -1 || g > maxDimension {
		s.fail("group_size is %d", g)
	}
	if own.bits < 16 && kind != "" && kind != "int" || inputs > 0 && inputs < 16 {
		s.fail("data_type %s, act_bits %d: %w", quote(kind), inputs, errors.ErrUnsupported)
	}
	return own
}

// A block holds the numbers of rows and columns of a block: [128,128] in JSON. Early versions of
// compressed-tensors wrote "128x128".
type block []int

func (b *block) UnmarshalJSON(text []byte) error {
	if quoted := strings.Trim(string(text), `"`); len(quoted) < len(text) {
		text = []byte("[" + strings.ReplaceAll(quoted, "x", ",") + "]")
	}
	err := json.Unmarshal(text, (*[]int)(b))
	if n := *b; err == nil && n != nil && (len(n) != 2 || min(n[0], n[1]) < 1 || max(n[0], n[1]) > maxDimension) {
		return fmt.Errorf("%s is not two positive numbers", cut(shapetext.Of(n)))
	}
	return err
}

// takeSymmetry takes the keys that specify whether zero points are in the middle of the codes.
func (own *settings) takeSymmetry(s *section) {
	for _, key := range []struct {
		name   string
		middle bool // value of the key that means that zero points are in the middle
	}{{"zero_point", false}, {"sym", true}} {
		if value := take[*bool](s, key.name); value != nil {
			is := *value == key.middle
			if own.symmetric && own.symmetry != "" && !is {
				continue // the stricter of two keys applies
			}
			own.symmetric, own.symmetry = is, fmt.Sprintf("%s: %v", key.name, *value)
		}
	}
}

// weights takes the settings of weights in a group of compressed-tensors. It returns nil if there
// are none.
func (s *section) weights() *settings {
	if s = s.section("weights"); s.members == nil {
		return nil
	}
	symmetric, order := take[*bool](s, "symmetric"), take[any](s, "actorder")
	w := &settings{
		kind: s.word("type", "int", "float"), symmetric: symmetric != nil && *symmetric,
		bits: take[int](s, "num_bits"), groupSize: take[int](s, "group_size"),
		strategy: take[string](s, "strategy"), block: take[block](s, "block_structure"),
		asymmetric: symmetric != nil && !*symmetric, ordered: slices.Contains([]any{true, "group", "dynamic"}, order),
	}
	if w.symmetric {
		w.symmetry = "symmetric: true"
	}
	s.end("observer observer_kwargs scale_dtype zp_dtype")
	if w.bits < 0 || w.bits > 8 || w.groupSize < -1 || w.groupSize > maxDimension {
		s.fail("num_bits is %d, group_size %d", w.bits, w.groupSize)
	}
	if !w.ordered && !slices.Contains([]any{nil, false, "", "weight", "static"}, order) { // the orders "weight" and "static" matter only during calibration
		s.fail("actorder %s: %w", cut(fmt.Sprint(order)), errors.ErrUnsupported)
	}
	if w.strategy == "block" && w.block == nil || strings.HasSuffix(w.strategy, "group") && w.groupSize < 1 {
		s.fail("strategy %s with block_structure %s, group_size %d", cut(w.strategy), shapetext.Of(w.block), w.groupSize)
	}
	return w
}
