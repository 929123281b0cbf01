package torchfile

import (
	"errors"
	"fmt"

	"github.com/gosafetensors/safetensors"
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

func elementOf(name string) (element, bool) {
	for _, e := range elements {
		if e.name == name {
			return e, true
		}
	}
	return element{}, false
}

// The allowed globals that are called. Each makes data of data.
var (
	orderedDict       = global{"collections", "OrderedDict"}
	torchSize         = global{"torch", "Size"}
	rebuildTensorV2   = global{"torch._utils", "_rebuild_tensor_v2"}
	rebuildTensorV3   = global{"torch._utils", "_rebuild_tensor_v3"}
	rebuildParameter  = global{"torch._utils", "_rebuild_parameter"}
	rebuildParamState = global{"torch._utils", "_rebuild_parameter_with_state"}
	untypedStorage    = global{"torch.storage", "UntypedStorage"}
)

// unsupported says what the best known of the globals that are refused stand for.
var unsupported = map[string]string{
	"torch._utils._rebuild_qtensor":                       "quantized tensors are not supported; dequantize them",
	"torch._utils._rebuild_sparse_tensor":                 "sparse tensors are not supported; call to_dense",
	"torch._utils._rebuild_nested_tensor":                 "nested tensors are not supported",
	"torch._utils._rebuild_meta_tensor_no_storage":        "tensors on the meta device have no data",
	"torch._utils._rebuild_wrapper_subclass":              "tensor subclasses are not supported",
	"torch._utils._rebuild_device_tensor_from_numpy":      "tensors of this device are not supported; move them to the CPU",
	"torch._utils._rebuild_device_tensor_from_cpu_tensor": "tensors of this device are not supported; move them to the CPU",
	"torch._tensor._rebuild_from_type_v2":                 "tensor subclasses and tensors with attributes are not supported",
}

// allow returns an error for each global that is not allowed. None is ever looked up
// anywhere but here.
func allow(g global) error {
	switch g {
	case orderedDict, torchSize, rebuildTensorV2, rebuildTensorV3, rebuildParameter, rebuildParamState, untypedStorage:
		return nil
	}
	if g.module == "torch" {
		if _, ok := storageClasses[g.name]; ok {
			return nil
		}
		if _, ok := elementOf(g.name); ok {
			return nil
		}
	}
	if why, ok := unsupported[g.String()]; ok {
		return fmt.Errorf("%v: %s", g, why)
	}
	return fmt.Errorf("it asks for %.200q, which is refused: tensors need no code; "+
		"save the state dict alone (torch.save(model.state_dict(), …))", g.String())
}

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

// A tensor is a view of a storage. Offset and strides count elements.
type tensor struct {
	storage *storage
	element element
	offset  int64
	shape   []int
	strides []int64
}

// persistent makes a storage of the tuple that stands for one:
// ("storage", class, key, device, elements), in old files followed by None or a view
// (key, offset, elements).
func persistent(id any) (any, error) {
	t, ok := id.(tuple)
	if !ok || len(t) != 5 && len(t) != 6 || t[0] != "storage" {
		return nil, errors.New("a persistent id that is no storage")
	}
	s := &storage{element: element{width: 1, part: 1}}
	class, ok1 := t[1].(global)
	var ok2, ok3, ok4 bool
	s.key, ok2 = t[2].(string)
	s.device, ok3 = t[3].(string)
	s.numel, ok4 = t[4].(int64)
	if !ok1 || !ok2 || !ok3 || !ok4 || s.numel < 0 {
		return nil, errors.New("a storage whose class, key, device or size is invalid")
	}
	if class != untypedStorage {
		name, ok := storageClasses[class.name]
		if !ok {
			return nil, fmt.Errorf("%v is no class of storages", class)
		}
		s.element, _ = elementOf(name)
	}
	if len(t) == 6 && t[5] != nil {
		view, ok := t[5].(tuple)
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

// reduce interprets a call of an allowed global.
func reduce(g global, args tuple) (any, error) {
	var v any
	var err error
	switch g {
	case orderedDict:
		v, err = newOrderedDict(args)
	case torchSize:
		if len(args) != 1 {
			return nil, fmt.Errorf("%v with %d arguments", g, len(args))
		}
		_, err = ints(args[0])
		v = args[0]
	case rebuildTensorV2, rebuildTensorV3:
		v, err = newTensor(args, g == rebuildTensorV3)
	case rebuildParameter, rebuildParamState: // (tensor, requires_grad, hooks[, attributes])
		if len(args) == 0 {
			return nil, fmt.Errorf("%v without arguments", g)
		}
		t, ok := args[0].(*tensor)
		if !ok {
			return nil, fmt.Errorf("%v of %s", g, describe(args[0]))
		}
		return t, nil
	default:
		return nil, fmt.Errorf("%v is no function", g)
	}
	if err != nil {
		return nil, fmt.Errorf("%v: %w", g, err)
	}
	return v, nil
}

// newOrderedDict makes a dict of nothing, or of a list of pairs as Python 2 has it.
func newOrderedDict(args tuple) (*dict, error) {
	d := &dict{}
	if len(args) == 0 {
		return d, nil
	}
	pairs, ok := args[0].(*list)
	if !ok || len(args) != 1 {
		return nil, errors.New("its arguments are no list of pairs")
	}
	for _, p := range pairs.items {
		var pair []any
		switch p := p.(type) {
		case tuple:
			pair = p
		case *list:
			pair = p.items
		}
		if len(pair) != 2 {
			return nil, errors.New("its arguments are no list of pairs")
		}
		if err := d.set(pair[0], pair[1]); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// newTensor makes a tensor of (storage, offset, shape, strides, requires_grad, hooks),
// in version 3 followed by the dtype, and perhaps by metadata.
func newTensor(args tuple, v3 bool) (*tensor, error) {
	usual := 6
	if v3 {
		usual = 7
	}
	if len(args) != usual && len(args) != usual+1 {
		return nil, fmt.Errorf("%d arguments, %d are expected", len(args), usual)
	}
	t := &tensor{}
	var ok1, ok2 bool
	t.storage, ok1 = args[0].(*storage)
	t.offset, ok2 = args[1].(int64)
	shape, err1 := ints(args[2])
	strides, err2 := ints(args[3])
	if !ok1 || !ok2 || err1 != nil || err2 != nil {
		return nil, errors.New("storage, offset, shape or strides are invalid")
	}
	for _, n := range shape {
		if int64(int(n)) != n {
			return nil, fmt.Errorf("dimension %d exceeds an int", n)
		}
		t.shape = append(t.shape, int(n))
	}
	t.strides = strides
	t.element = t.storage.element
	if v3 {
		dtype, ok := args[6].(global)
		if t.element, ok1 = elementOf(dtype.name); !ok || !ok1 {
			return nil, fmt.Errorf("%s is no dtype", describe(args[6]))
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
	d, ok := metadata.(*dict)
	if !ok {
		return fmt.Errorf("%s in place of the metadata of a tensor", describe(metadata))
	}
	for _, e := range d.entries {
		if e.value == false {
			continue
		}
		name, _ := e.key.(string)
		return fmt.Errorf("the tensor has the bit %.200q, which changes its elements; call resolve_conj and resolve_neg before saving it", name)
	}
	return nil
}

// ints returns a tuple of integers.
func ints(v any) ([]int64, error) {
	t, ok := v.(tuple)
	if !ok {
		return nil, fmt.Errorf("%s in place of a tuple of integers", describe(v))
	}
	out := make([]int64, len(t))
	for i, item := range t {
		if out[i], ok = item.(int64); !ok {
			return nil, fmt.Errorf("%s in place of an integer", describe(item))
		}
	}
	return out, nil
}
