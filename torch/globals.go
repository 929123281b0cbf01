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

// An element is a dtype of PyTorch, with the dtype of safetensors for the same elements.
type element struct {
	torchtype.Type
	dtype safetensors.DType // 0 if safetensors has no such dtype
}

// elementOf returns the element for a dtype of PyTorch. It returns ok unchanged, so that its
// arguments can be the results of torchtype's funcs.
func elementOf(t torchtype.Type, ok bool) (element, bool) {
	e := element{Type: t}
	if e.dtype.UnmarshalText([]byte(t.Safetensors)) != nil && t.Name == "float4_e2m1fn_x2" {
		e.dtype = safetensors.F4 // an element of the PyTorch dtype holds two F4 numbers
	}
	return e, ok
}

// rebuilders maps the functions that make tensors to the number of their arguments: a storage, an
// offset, a shape and strides; then requires_grad and hooks; then a dtype. All but the first
// function may have one more argument, metadata.
var rebuilders = map[pickle.Global]int{
	{Module: "torch._utils", Name: "_rebuild_tensor"}:    4, // up to PyTorch 0.3
	{Module: "torch._utils", Name: "_rebuild_tensor_v2"}: 6,
	{Module: "torch._utils", Name: "_rebuild_tensor_v3"}: 7,
}

// parameters are the functions that make a Parameter from a tensor. The value is true for the class
// itself, which files of PyTorch up to 0.3 call.
var parameters = map[pickle.Global]bool{
	{Module: "torch._utils", Name: "_rebuild_parameter"}:            false,
	{Module: "torch._utils", Name: "_rebuild_parameter_with_state"}: false,
	{Module: "torch.nn.parameter", Name: "Parameter"}:               true, // up to PyTorch 0.3
}

// otherTensors maps functions that make tensors of other kinds to a description of the kind, with
// advice for the user.
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

// otherKind describes an object that stands for tensors of another kind. It returns "" for any
// other object.
func otherKind(o *pickle.Object) string {
	if isQuantized(o.Class) {
		return "a quantized module; dequantize it before saving, or save the state_dict"
	}
	return otherTensors[o.Class.String()]
}

// isQuantized reports whether modules of a class have weights that are not parameters. These are
// the classes of HQQ and of PyTorch's quantised modules, except FloatFunctional and
// FXFloatFunctional, which models contain even before they are quantised.
func isQuantized(class pickle.Global) bool {
	if class == (pickle.Global{Module: "hqq.core.quantize", Name: "HQQLinear"}) {
		return true
	}
	module, ofTorch := strings.CutPrefix(class.Module, "torch.")
	return ofTorch && strings.Contains("."+module+".", ".quantized.") && strings.HasPrefix(strings.TrimPrefix(module, "ao."), "nn.") &&
		class.Name != "FloatFunctional" && class.Name != "FXFloatFunctional"
}

// newUnpickler returns an unpickler that makes tensors and storages.
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
	u.Build = func(v, state any) bool {
		t, ok := v.(*tensor)
		return ok && t.old && isOldState(state)
	}
	return u
}

// isOldState reports whether a state is one that Parameters of PyTorch up to 0.3 have:
// requires_grad, volatile, hooks. Any other state must not be ignored, because PyTorch would
// replace the elements of the tensor with those in the state.
func isOldState(state any) bool {
	t, ok := state.(pickle.Tuple)
	if !ok || len(t) != 2 && len(t) != 3 {
		return false
	}
	_, ok = t[0].(bool)
	return ok
}

// maxKey is the largest number of bytes in the key of a storage. A long key would take time,
// because it is looked up for each tensor of the storage. PyTorch makes short keys from numbers.
const maxKey = 1000

// A storage describes the data of tensors, which the file holds under a key.
type storage struct {
	key     string
	element element // for an untyped storage, Width is 1 and Name is empty
	numel   int64   // number of elements
	offset  int64   // element at which the data starts; not 0 for views in old files
	view    string  // key of the view; "" if the storage is not a view
	viewed  int64   // number of elements of the view
	device  string
}

// check returns an error unless size, in bytes, is the size of the data. A few bytes may be left
// over, because PyTorch may view the data as elements of another size.
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
	old     bool // whether it is a Parameter of PyTorch up to 0.3, whose state follows it in the pickle
}

func (t *tensor) String() string { return "a tensor" }

// persistent makes a storage from its persistent id, a tuple ("storage", class, key, device,
// elements). In old files a further item follows: None, or the view (key, offset, elements).
func persistent(id any) (any, error) {
	t, ok := id.(pickle.Tuple)
	if !ok || len(t) != 5 && len(t) != 6 || t[0] != "storage" {
		return nil, errors.New("a persistent id that is not a storage")
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
			return nil, fmt.Errorf("%v is not a class of storages", class)
		}
	}
	if len(t) == 6 && t[5] != nil {
		view, _ := t[5].(pickle.Tuple)
		ok := len(view) == 3
		var ok4, ok5 bool
		if ok {
			s.view, ok = view[0].(string)
			s.offset, ok4 = view[1].(int64)
			s.viewed, ok5 = view[2].(int64)
		}
		if !ok || !ok4 || !ok5 || s.view == "" || len(s.view) > maxKey || s.offset < 0 || s.viewed < 0 || s.viewed > s.numel || s.offset > s.numel-s.viewed {
			return nil, errors.New("a storage whose view is invalid")
		}
	}
	return s, nil
}

// newParameter returns the tensor in the arguments (tensor, requires_grad, hooks[, attributes]), or
// the Object that stands for a tensor of another kind. old means that it may be given the state of
// an old Parameter.
func newParameter(args pickle.Tuple, old bool) (any, error) {
	if len(args) > 0 {
		switch t := args[0].(type) {
		case *tensor:
			if len(args) > 3 {
				if err := checkState(args[3]); err != nil {
					return nil, err
				}
			}
			if len(args) > 3 && holdsCodes(t, args[3]) {
				return nil, errors.New("a parameter quantized by a package such as bitsandbytes, whose attributes have the scales; save the state_dict")
			}
			t.old = t.old || old
			return t, nil
		case *pickle.Object:
			return t, nil
		}
	}
	return nil, errors.New("its argument is not a tensor")
}

// checkState refuses attributes of a Parameter with which PyTorch would replace its elements. The
// attributes are a dict, or a pair of that dict and the dict of slots.
func checkState(attributes any) error {
	states := pickle.Tuple{attributes}
	if pair, ok := attributes.(pickle.Tuple); ok {
		states = pair
	}
	for _, state := range states {
		d, ok := state.(*pickle.Dict)
		if !ok && state != nil {
			return fmt.Errorf("its attributes are %s", pickle.Describe(state))
		}
		for _, name := range []string{"data", "real", "imag", "__class__", "__dict__"} {
			if ok {
				if _, set := d.Get(name); set {
					return fmt.Errorf("a parameter with an attribute %q, which changes its elements", name)
				}
			}
		}
	}
	return nil
}

// holdsCodes reports whether the attributes of a parameter mean that its elements are codes of
// quantised values.
func holdsCodes(t *tensor, attributes any) bool {
	if pair, ok := attributes.(pickle.Tuple); ok && len(pair) > 0 {
		attributes = pair[0] // for a class with __slots__, Python writes a pair: the attributes, then the slots
	}
	d, ok := attributes.(*pickle.Dict)
	if !ok {
		return false
	}
	state, _ := d.Get("quant_state")
	return state != nil || len(d.Entries) > 0 && strings.Contains(t.Name, "int")
}

// newTensor makes a tensor from the arguments of a function in rebuilders. usual is the number of
// arguments that this function usually has.
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
	if usual == 7 { // the last argument is a dtype
		dtype, ok := args[6].(pickle.Global)
		if t.element, ok1 = elementOf(torchtype.Of(dtype.Name)); !ok || !ok1 || dtype.Module != "torch" {
			return nil, fmt.Errorf("%s is not a dtype", pickle.Describe(args[6]))
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

// checkMetadata refuses metadata that changes the meaning of the elements: the bits of tensors that
// are conjugated or negated when they are read. PyTorch sets a bit if the metadata has its name, even
// with the value False.
func checkMetadata(metadata any) error {
	if metadata == nil {
		return nil
	}
	d, ok := metadata.(*pickle.Dict)
	if !ok {
		return fmt.Errorf("%s instead of the metadata of a tensor", pickle.Describe(metadata))
	}
	for _, e := range d.Entries {
		name, _ := e.Key.(string)
		return fmt.Errorf("the tensor has the bit %.200q, which changes its elements; call resolve_conj and resolve_neg before saving it", name)
	}
	return nil
}

// maxRank is the largest number of dimensions of a tensor.
const maxRank = 64
