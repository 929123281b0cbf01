package torch

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/pickle"
)

// An element is a dtype of PyTorch.
type element struct {
	name  string            // in the module torch
	dtype safetensors.DType // 0 if safetensors has none
	width int               // in bytes
	part  int               // bytes of the numbers it consists of
}

// elements are the dtypes whose tensors PyTorch saves as strided storages.
var elements = []element{
	{"float64", safetensors.F64, 8, 8},
	{"float32", safetensors.F32, 4, 4},
	{"float16", safetensors.F16, 2, 2},
	{"bfloat16", safetensors.BF16, 2, 2},
	{"int64", safetensors.I64, 8, 8},
	{"int32", safetensors.I32, 4, 4},
	{"int16", safetensors.I16, 2, 2},
	{"int8", safetensors.I8, 1, 1},
	{"uint64", safetensors.U64, 8, 8},
	{"uint32", safetensors.U32, 4, 4},
	{"uint16", safetensors.U16, 2, 2},
	{"uint8", safetensors.U8, 1, 1},
	{"bool", safetensors.BOOL, 1, 1},
	{"complex64", safetensors.C64, 8, 4},
	{"complex128", 0, 16, 8},
	{"complex32", 0, 4, 2},
	{"float8_e4m3fn", safetensors.F8_E4M3, 1, 1},
	{"float8_e5m2", safetensors.F8_E5M2, 1, 1},
	{"float8_e4m3fnuz", safetensors.F8_E4M3FNUZ, 1, 1},
	{"float8_e5m2fnuz", safetensors.F8_E5M2FNUZ, 1, 1},
	{"float8_e8m0fnu", safetensors.F8_E8M0, 1, 1},
	{"float4_e2m1fn_x2", safetensors.F4, 1, 1}, // two elements, which PyTorch counts as one
	{"qint8", 0, 1, 1},
	{"quint8", 0, 1, 1},
	{"qint32", 0, 4, 4},
	{"quint4x2", 0, 1, 1},
	{"quint2x4", 0, 1, 1},
	{"bits8", 0, 1, 1},
	{"bits16", 0, 2, 2},
	{"bits1x8", 0, 1, 1},
	{"bits2x4", 0, 1, 1},
	{"bits4x2", 0, 1, 1},
}

// storageClasses are the classes of typed storages, in the module torch, with the
// dtype of each.
var storageClasses = map[string]string{
	"DoubleStorage":        "float64",
	"FloatStorage":         "float32",
	"HalfStorage":          "float16",
	"BFloat16Storage":      "bfloat16",
	"LongStorage":          "int64",
	"IntStorage":           "int32",
	"ShortStorage":         "int16",
	"CharStorage":          "int8",
	"ByteStorage":          "uint8",
	"BoolStorage":          "bool",
	"ComplexFloatStorage":  "complex64",
	"ComplexDoubleStorage": "complex128",
	"QInt8Storage":         "qint8",
	"QUInt8Storage":        "quint8",
	"QInt32Storage":        "qint32",
	"QUInt4x2Storage":      "quint4x2",
	"QUInt2x4Storage":      "quint2x4",
}

// DType returns the dtype of safetensors for a dtype of PyTorch by its name in the module
// torch, 0 if there is none that has elements of the same shape.
func DType(name string) safetensors.DType {
	e, _ := elementOf(name)
	if e.dtype == safetensors.F4 { // two elements in one of PyTorch's
		return 0
	}
	return e.dtype
}

func elementOf(name string) (element, bool) {
	for _, e := range elements {
		if e.name == name {
			return e, true
		}
	}
	return element{}, false
}

// The globals whose calls make tensors and what they are made of. All others stay
// names.
var (
	orderedDict       = pickle.Global{Module: "collections", Name: "OrderedDict"}
	torchSize         = pickle.Global{Module: "torch", Name: "Size"}
	rebuildTensorV2   = pickle.Global{Module: "torch._utils", Name: "_rebuild_tensor_v2"}
	rebuildTensorV3   = pickle.Global{Module: "torch._utils", Name: "_rebuild_tensor_v3"}
	rebuildParameter  = pickle.Global{Module: "torch._utils", Name: "_rebuild_parameter"}
	rebuildParamState = pickle.Global{Module: "torch._utils", Name: "_rebuild_parameter_with_state"}
	untypedStorage    = pickle.Global{Module: "torch.storage", Name: "UntypedStorage"}
)

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

// newUnpickler returns an unpickler that makes tensors.
func newUnpickler(ctx context.Context, r io.Reader, size int64) *pickle.Unpickler {
	u := pickle.New(ctx, r, size)
	u.Persistent = persistent
	u.Call = func(g pickle.Global, args pickle.Tuple) (any, error) {
		switch g {
		case orderedDict:
			return newOrderedDict(args, u)
		case torchSize:
			return newSize(args)
		case rebuildTensorV2, rebuildTensorV3:
			return newTensor(args, g == rebuildTensorV3, u)
		case rebuildParameter, rebuildParamState:
			return newParameter(args)
		}
		return nil, nil
	}
	return u
}

// maxKey is the most bytes in the key of a storage, which PyTorch makes of a number. Each
// tensor of the storage is looked up by it.
const maxKey = 1000

// A storage is the data of tensors, by its key in the file.
type storage struct {
	key     string
	element element // of width 1 and without a name if it is untyped
	numel   int64   // elements of it
	offset  int64   // of the data in it, in elements, for views in old files
	device  string
}

// check checks that the data of a storage has its size. Some bytes may be left, if
// PyTorch sees the data as elements of another size.
func (s *storage) check(size int64) error {
	if size/int64(s.element.width) != s.numel {
		return fmt.Errorf("storage %.200q has %d bytes, not %d elements of %d bytes", s.key, size, s.numel, s.element.width)
	}
	return nil
}

func (s *storage) String() string { return "a storage without a tensor" }

// A tensor is a view of a storage. Offset and strides count elements.
type tensor struct {
	storage *storage
	element element
	offset  int64
	shape   []int
	strides []int64
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
	s := &storage{element: element{width: 1, part: 1}}
	class, ok1 := t[1].(pickle.Global)
	var ok2, ok3, ok4 bool
	s.key, ok2 = t[2].(string)
	s.device, ok3 = t[3].(string)
	s.numel, ok4 = t[4].(int64)
	if !ok1 || !ok2 || !ok3 || !ok4 || s.numel < 0 || len(s.key) > maxKey {
		return nil, errors.New("a storage whose class, key, device or size is invalid")
	}
	if class != untypedStorage {
		name, ok := storageClasses[class.Name]
		if !ok || class.Module != "torch" {
			return nil, fmt.Errorf("%v is no class of storages", class)
		}
		s.element, _ = elementOf(name)
	}
	if len(t) == 6 && t[5] != nil {
		view, ok := t[5].(pickle.Tuple)
		if !ok || len(view) != 3 {
			return nil, errors.New("a storage whose view is invalid")
		}
		offset, ok := view[1].(int64)
		if !ok || offset < 0 || offset > s.numel {
			return nil, errors.New("a storage whose view is invalid")
		}
		s.offset = offset
	}
	return s, nil
}

// newSize returns a shape as the tuple that it is.
func newSize(args pickle.Tuple) (any, error) {
	if len(args) == 1 {
		if t, ok := args[0].(pickle.Tuple); ok {
			return t, nil
		}
	}
	return nil, errors.New("its argument is no tuple")
}

// newParameter returns the tensor of (tensor, requires_grad, hooks[, attributes]), or
// what stands for a tensor of another kind.
func newParameter(args pickle.Tuple) (any, error) {
	if len(args) > 0 {
		switch t := args[0].(type) {
		case *tensor, *pickle.Object:
			return t, nil
		}
	}
	return nil, errors.New("its argument is no tensor")
}

// newOrderedDict makes a dict of nothing, or of a list of pairs as Python 2 has it.
func newOrderedDict(args pickle.Tuple, u *pickle.Unpickler) (any, error) {
	d := &pickle.Dict{}
	if len(args) == 0 {
		return d, nil
	}
	pairs, ok := args[0].(*pickle.List)
	if !ok || len(args) != 1 {
		return nil, errors.New("its arguments are no list of pairs")
	}
	if err := u.Charge(2 * len(pairs.Items)); err != nil {
		return nil, err
	}
	for _, p := range pairs.Items {
		var pair []any
		switch p := p.(type) {
		case pickle.Tuple:
			pair = p
		case *pickle.List:
			pair = p.Items
		}
		if len(pair) != 2 {
			return nil, errors.New("its arguments are no list of pairs")
		}
		if err := u.Set(d, pair[0], pair[1]); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// newTensor makes a tensor of (storage, offset, shape, strides, requires_grad, hooks),
// in version 3 followed by the dtype, and perhaps by metadata.
func newTensor(args pickle.Tuple, v3 bool, u *pickle.Unpickler) (any, error) {
	usual := 6
	if v3 {
		usual = 7
	}
	if len(args) != usual && len(args) != usual+1 {
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
	shape, err := ints(args[2])
	if err != nil {
		return nil, fmt.Errorf("its shape: %w", err)
	}
	if t.strides, err = ints(args[3]); err != nil {
		return nil, fmt.Errorf("its strides: %w", err)
	}
	if err := u.Charge(len(shape) + len(t.strides)); err != nil {
		return nil, err
	}
	for _, n := range shape {
		if int64(int(n)) != n {
			return nil, fmt.Errorf("dimension %d exceeds an int", n)
		}
		t.shape = append(t.shape, int(n))
	}
	t.element = t.storage.element
	if v3 {
		dtype, ok := args[6].(pickle.Global)
		if t.element, ok1 = elementOf(dtype.Name); !ok || !ok1 || dtype.Module != "torch" {
			return nil, fmt.Errorf("%s is no dtype", pickle.Describe(args[6]))
		}
	}
	if t.element.name == "" {
		return nil, errors.New("an untyped storage without a dtype")
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

// ints returns a tuple of integers, one for each dimension.
func ints(v any) ([]int64, error) {
	t, ok := v.(pickle.Tuple)
	switch {
	case !ok:
		return nil, fmt.Errorf("%s in place of a tuple of integers", pickle.Describe(v))
	case len(t) > maxRank:
		return nil, fmt.Errorf("%d dimensions, at most %d are read", len(t), maxRank)
	}
	out := make([]int64, len(t))
	for i, item := range t {
		if out[i], ok = item.(int64); !ok {
			return nil, fmt.Errorf("%s in place of an integer", pickle.Describe(item))
		}
	}
	return out, nil
}
