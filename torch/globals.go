package torch

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/pickle"
	"github.com/gosafetensors/safetensors/internal/torchtype"
)

// An element is a dtype of PyTorch.
type element struct {
	torchtype.Type
	dtype safetensors.DType // 0 if safetensors has none
}

// elementOf adds the dtype of safetensors to one of PyTorch.
func elementOf(t torchtype.Type, ok bool) (element, bool) {
	e := element{Type: t}
	if e.dtype.UnmarshalText([]byte(t.Safetensors)) != nil && t.Name == "float4_e2m1fn_x2" {
		e.dtype = safetensors.F4 // of which it has two
	}
	return e, ok
}

// rebuilders are the functions that make tensors, by the number of their arguments: a storage,
// an offset, a shape and strides; then requires_grad and hooks; then a dtype. All but the first
// may get metadata as well.
var rebuilders = map[pickle.Global]int{
	{Module: "torch._utils", Name: "_rebuild_tensor"}:    4, // up to PyTorch 0.3
	{Module: "torch._utils", Name: "_rebuild_tensor_v2"}: 6,
	{Module: "torch._utils", Name: "_rebuild_tensor_v3"}: 7,
}

// parameters are what makes a Parameter of a tensor, by whether its attributes follow.
var parameters = map[pickle.Global]bool{
	{Module: "torch._utils", Name: "_rebuild_parameter"}:            false,
	{Module: "torch._utils", Name: "_rebuild_parameter_with_state"}: false,
	{Module: "torch.nn.parameter", Name: "Parameter"}:               true, // up to PyTorch 0.3
}

// otherTensors are functions that make tensors of other kinds, and what to do about
// them.
var otherTensors = map[string]string{
	"torch._utils._rebuild_qtensor":                       "a quantized tensor; dequantize it before saving",
	"torch._utils._rebuild_sparse_tensor":                 "a sparse tensor; call to_dense before saving",
	"torch._utils._rebuild_sparse_csr_tensor":             "a sparse tensor; call to_dense before saving",
	"torch._utils._rebuild_nested_tensor":                 "a nested tensor",
	"torch._utils._rebuild_meta_tensor_no_storage":        "a tensor on the meta device, which has no data",
	"torch._utils._rebuild_wrapper_subclass":              "a tensor of a subclass",
	"torch._utils._rebuild_device_tensor_from_numpy":      "a tensor of another device; move it to the CPU before saving",
	"torch._utils._rebuild_device_tensor_from_cpu_tensor": "a tensor of another device; move it to the CPU before saving",
	"torch._tensor._rebuild_from_type_v2":                 "a tensor of a subclass or with attributes",
}

// otherKind says what an object is that stands for tensors of another kind, "" for any other.
func otherKind(o *pickle.Object) string {
	if isQuantized(o.Class) {
		return "a quantized module; dequantize it before saving, or save the state_dict"
	}
	return otherTensors[o.Class.String()]
}

// isQuantized reports whether a class is that of modules with weights that are no parameters:
// of HQQ, or of PyTorch, but for those that models have before they are quantised.
func isQuantized(class pickle.Global) bool {
	if class == (pickle.Global{Module: "hqq.core.quantize", Name: "HQQLinear"}) {
		return true
	}
	of, ofTorch := strings.CutPrefix(class.Module, "torch.")
	return ofTorch && strings.Contains("."+of+".", ".quantized.") && strings.HasPrefix(strings.TrimPrefix(of, "ao."), "nn.") &&
		class.Name != "FloatFunctional" && class.Name != "FXFloatFunctional"
}

// newUnpickler returns an unpickler that makes tensors.
func newUnpickler(r io.Reader, size int64) *pickle.Unpickler {
	u := pickle.New(r, size)
	u.Persistent = persistent
	u.Call = func(g pickle.Global, args pickle.Tuple) (any, error) {
		if usual, ok := rebuilders[g]; ok {
			return newTensor(args, usual, u)
		}
		if old, ok := parameters[g]; ok {
			return newParameter(args, old)
		}
		return nil, nil
	}
	u.Build = func(v any) bool {
		t, ok := v.(*tensor)
		return ok && t.old
	}
	return u
}

// maxKey is the most bytes in the key of a storage, which PyTorch makes of a number. Each
// tensor of the storage is looked up by it.
const maxKey = 1000

// A storage is the data of tensors, by its key in the file.
type storage struct {
	key     string
	element element // of Width 1 and without a Name if it is untyped
	numel   int64   // elements of it
	offset  int64   // of the data in it, in elements, for views in old files
	device  string
}

// check checks that the data of a storage has its size. Some bytes may be left, if
// PyTorch sees the data as elements of another size.
func (s *storage) check(size int64) error {
	if size/int64(s.element.Width) != s.numel {
		return fmt.Errorf("storage %.200q has %d bytes, not %d elements of %d bytes", s.key, size, s.numel, s.element.Width)
	}
	return nil
}

func (s *storage) String() string { return "a storage without a tensor" }

// A tensor is a view of a storage. Offset and strides count elements.
type tensor struct {
	element
	storage *storage
	offset  int64
	shape   []int
	strides []int64
	old     bool // a Parameter of up to PyTorch 0.3, whose attributes follow
}

func (t *tensor) String() string { return "a tensor" }

// persistent makes a storage of the tuple that stands for one:
// ("storage", class, key, device, elements), in old files followed by None or a view
// (key, offset, elements).
func persistent(id any) (any, error) {
	t, ok := id.(pickle.Tuple)
	if !ok || len(t) != 5 && len(t) != 6 || t[0] != "storage" {
		return nil, errors.New("a persistent id that is no storage")
	}
	s := &storage{element: element{Type: torchtype.Type{Width: 1, Number: 1}}}
	class, ok1 := t[1].(pickle.Global)
	var ok2, ok3, ok4 bool
	s.key, ok2 = t[2].(string)
	s.device, ok3 = t[3].(string)
	s.numel, ok4 = t[4].(int64)
	if !ok1 || !ok2 || !ok3 || !ok4 || s.numel < 0 || len(s.key) > maxKey {
		return nil, errors.New("a storage whose class, key, device or size is invalid")
	}
	if class != (pickle.Global{Module: "torch.storage", Name: "UntypedStorage"}) {
		var ok bool
		if s.element, ok = elementOf(torchtype.OfStorage(class.Name)); !ok || class.Module != "torch" {
			return nil, fmt.Errorf("%v is no class of storages", class)
		}
	}
	if len(t) == 6 && t[5] != nil {
		view, _ := t[5].(pickle.Tuple)
		ok := len(view) == 3
		if ok {
			s.offset, ok = view[1].(int64)
		}
		if !ok || s.offset < 0 || s.offset > s.numel {
			return nil, errors.New("a storage whose view is invalid")
		}
	}
	return s, nil
}

// newParameter returns the tensor of (tensor, requires_grad, hooks[, attributes]), or
// what stands for a tensor of another kind.
func newParameter(args pickle.Tuple, old bool) (any, error) {
	if len(args) > 0 {
		switch t := args[0].(type) {
		case *tensor:
			if len(args) > 3 && holdsCodes(t, args[3]) {
				return nil, errors.New("a parameter quantized by a package such as bitsandbytes, whose attributes have the scales; save the state_dict")
			}
			t.old = t.old || old
			return t, nil
		case *pickle.Object:
			return t, nil
		}
	}
	return nil, errors.New("its argument is no tensor")
}

// holdsCodes reports whether the attributes of a parameter say what its elements mean.
func holdsCodes(t *tensor, attributes any) bool {
	if pair, ok := attributes.(pickle.Tuple); ok && len(pair) > 0 {
		attributes = pair[0] // the second is that of slots
	}
	d, ok := attributes.(*pickle.Dict)
	if !ok {
		return false
	}
	state, _ := d.Get("quant_state")
	return state != nil || len(d.Entries) > 0 && strings.Contains(t.Name, "int")
}

// newTensor makes a tensor of the arguments of a function of rebuilders.
func newTensor(args pickle.Tuple, usual int, u *pickle.Unpickler) (any, error) {
	if extra := len(args) - usual; extra < 0 || extra > 1 || extra > 0 && usual == 4 {
		return nil, fmt.Errorf("%d arguments, %d are expected", len(args), usual)
	}
	if o, ok := args[0].(*pickle.Object); ok && o.Why != nil {
		return nil, o.Why
	}
	t := &tensor{}
	var ok1, ok2 bool
	t.storage, ok1 = args[0].(*storage)
	t.offset, ok2 = args[1].(int64)
	if !ok1 || !ok2 {
		return nil, errors.New("its storage or its offset is invalid")
	}
	var err error
	if t.shape, err = pickle.Ints[int](args[2], maxRank); err != nil {
		return nil, fmt.Errorf("its shape: %w", err)
	}
	if t.strides, err = pickle.Ints[int64](args[3], maxRank); err != nil {
		return nil, fmt.Errorf("its strides: %w", err)
	}
	if err := u.Charge(len(t.shape) + len(t.strides)); err != nil {
		return nil, err
	}
	t.element = t.storage.element
	if usual == 7 { // with a dtype
		dtype, ok := args[6].(pickle.Global)
		if t.element, ok1 = elementOf(torchtype.Of(dtype.Name)); !ok || !ok1 || dtype.Module != "torch" {
			return nil, fmt.Errorf("%s is no dtype", pickle.Describe(args[6]))
		}
	}
	switch {
	case t.Name == "":
		return nil, errors.New("an untyped storage without a dtype")
	case t.storage.offset > 0 && t.Width != t.storage.element.Width:
		return nil, fmt.Errorf("a view of a storage of other elements than torch.%s", t.Name)
	}
	if len(args) > usual {
		return t, checkMetadata(args[usual])
	}
	return t, nil
}

// checkMetadata refuses what changes the meaning of the elements: the bits of
// tensors that are conjugated or negated when they are read.
func checkMetadata(metadata any) error {
	if metadata == nil {
		return nil
	}
	d, ok := metadata.(*pickle.Dict)
	if !ok {
		return fmt.Errorf("%s in place of the metadata of a tensor", pickle.Describe(metadata))
	}
	for _, e := range d.Entries {
		if e.Value == false {
			continue
		}
		name, _ := e.Key.(string)
		return fmt.Errorf("the tensor has the bit %.200q, which changes its elements; call resolve_conj and resolve_neg before saving it", name)
	}
	return nil
}

// maxRank is the most dimensions of a tensor.
const maxRank = 64
