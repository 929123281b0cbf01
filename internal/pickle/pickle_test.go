package pickle

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

func unpickler(pickle string) *Unpickler { return New(strings.NewReader(pickle), int64(len(pickle))) }

func load(pickle string) (any, error) { return unpickler(pickle).Load() }

// must returns v. It panics if err is not nil, so use it only for calls that cannot fail in the
// test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// errorOf returns the error of a call.
func errorOf[T any](_ T, err error) error { return err }

// dumped holds the pickles that Python 3.11 makes, by protocol, of
//
//	{'none': None, 'bools': [True, False], 'ints': [0, 255, 256, -1, 2**31-1, -2**31, 2**40, -2**63],
//	 'long': 2**70, 'float': 0.5, 'text': 'größe', 'bytes': b'\x00\xff',
//	 'tuples': ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)), 3: 'key', (1, 't'): []}
var dumped = map[int]string{
	2: "\x80\x02\x7d\x71\x00\x28\x58\x04\x00\x00\x00\x6e\x6f\x6e\x65\x71\x01\x4e\x58\x05\x00\x00\x00\x62\x6f\x6f\x6c\x73\x71\x02\x5d\x71\x03\x28\x88\x89\x65\x58\x04\x00\x00\x00\x69\x6e\x74\x73\x71\x04\x5d\x71\x05\x28\x4b\x00\x4b\xff\x4d\x00\x01\x4a\xff\xff\xff\xff\x4a\xff\xff\xff\x7f\x4a\x00\x00\x00\x80\x8a\x06\x00\x00\x00\x00\x00\x01\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80\x65\x58\x04\x00\x00\x00\x6c\x6f\x6e\x67\x71\x06\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x40\x58\x05\x00\x00\x00\x66\x6c\x6f\x61\x74\x71\x07\x47\x3f\xe0\x00\x00\x00\x00\x00\x00\x58\x04\x00\x00\x00\x74\x65\x78\x74\x71\x08\x58\x07\x00\x00\x00\x67\x72\xc3\xb6\xc3\x9f\x65\x71\x09\x58\x05\x00\x00\x00\x62\x79\x74\x65\x73\x71\x0a\x63\x5f\x63\x6f\x64\x65\x63\x73\x0a\x65\x6e\x63\x6f\x64\x65\x0a\x71\x0b\x58\x03\x00\x00\x00\x00\xc3\xbf\x71\x0c\x58\x06\x00\x00\x00\x6c\x61\x74\x69\x6e\x31\x71\x0d\x86\x71\x0e\x52\x71\x0f\x58\x06\x00\x00\x00\x74\x75\x70\x6c\x65\x73\x71\x10\x28\x29\x4b\x01\x85\x71\x11\x4b\x01\x4b\x02\x86\x71\x12\x4b\x01\x4b\x02\x4b\x03\x87\x71\x13\x28\x4b\x01\x4b\x02\x4b\x03\x4b\x04\x74\x71\x14\x74\x71\x15\x4b\x03\x58\x03\x00\x00\x00\x6b\x65\x79\x71\x16\x4b\x01\x58\x01\x00\x00\x00\x74\x71\x17\x86\x71\x18\x5d\x71\x19\x75\x2e",
	3: "\x80\x03\x7d\x71\x00\x28\x58\x04\x00\x00\x00\x6e\x6f\x6e\x65\x71\x01\x4e\x58\x05\x00\x00\x00\x62\x6f\x6f\x6c\x73\x71\x02\x5d\x71\x03\x28\x88\x89\x65\x58\x04\x00\x00\x00\x69\x6e\x74\x73\x71\x04\x5d\x71\x05\x28\x4b\x00\x4b\xff\x4d\x00\x01\x4a\xff\xff\xff\xff\x4a\xff\xff\xff\x7f\x4a\x00\x00\x00\x80\x8a\x06\x00\x00\x00\x00\x00\x01\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80\x65\x58\x04\x00\x00\x00\x6c\x6f\x6e\x67\x71\x06\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x40\x58\x05\x00\x00\x00\x66\x6c\x6f\x61\x74\x71\x07\x47\x3f\xe0\x00\x00\x00\x00\x00\x00\x58\x04\x00\x00\x00\x74\x65\x78\x74\x71\x08\x58\x07\x00\x00\x00\x67\x72\xc3\xb6\xc3\x9f\x65\x71\x09\x58\x05\x00\x00\x00\x62\x79\x74\x65\x73\x71\x0a\x43\x02\x00\xff\x71\x0b\x58\x06\x00\x00\x00\x74\x75\x70\x6c\x65\x73\x71\x0c\x28\x29\x4b\x01\x85\x71\x0d\x4b\x01\x4b\x02\x86\x71\x0e\x4b\x01\x4b\x02\x4b\x03\x87\x71\x0f\x28\x4b\x01\x4b\x02\x4b\x03\x4b\x04\x74\x71\x10\x74\x71\x11\x4b\x03\x58\x03\x00\x00\x00\x6b\x65\x79\x71\x12\x4b\x01\x58\x01\x00\x00\x00\x74\x71\x13\x86\x71\x14\x5d\x71\x15\x75\x2e",
	4: "\x80\x04\x95\xcb\x00\x00\x00\x00\x00\x00\x00\x7d\x94\x28\x8c\x04\x6e\x6f\x6e\x65\x94\x4e\x8c\x05\x62\x6f\x6f\x6c\x73\x94\x5d\x94\x28\x88\x89\x65\x8c\x04\x69\x6e\x74\x73\x94\x5d\x94\x28\x4b\x00\x4b\xff\x4d\x00\x01\x4a\xff\xff\xff\xff\x4a\xff\xff\xff\x7f\x4a\x00\x00\x00\x80\x8a\x06\x00\x00\x00\x00\x00\x01\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80\x65\x8c\x04\x6c\x6f\x6e\x67\x94\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x40\x8c\x05\x66\x6c\x6f\x61\x74\x94\x47\x3f\xe0\x00\x00\x00\x00\x00\x00\x8c\x04\x74\x65\x78\x74\x94\x8c\x07\x67\x72\xc3\xb6\xc3\x9f\x65\x94\x8c\x05\x62\x79\x74\x65\x73\x94\x43\x02\x00\xff\x94\x8c\x06\x74\x75\x70\x6c\x65\x73\x94\x28\x29\x4b\x01\x85\x94\x4b\x01\x4b\x02\x86\x94\x4b\x01\x4b\x02\x4b\x03\x87\x94\x28\x4b\x01\x4b\x02\x4b\x03\x4b\x04\x74\x94\x74\x94\x4b\x03\x8c\x03\x6b\x65\x79\x94\x4b\x01\x8c\x01\x74\x94\x86\x94\x5d\x94\x75\x2e",
	5: "\x80\x05\x95\xcb\x00\x00\x00\x00\x00\x00\x00\x7d\x94\x28\x8c\x04\x6e\x6f\x6e\x65\x94\x4e\x8c\x05\x62\x6f\x6f\x6c\x73\x94\x5d\x94\x28\x88\x89\x65\x8c\x04\x69\x6e\x74\x73\x94\x5d\x94\x28\x4b\x00\x4b\xff\x4d\x00\x01\x4a\xff\xff\xff\xff\x4a\xff\xff\xff\x7f\x4a\x00\x00\x00\x80\x8a\x06\x00\x00\x00\x00\x00\x01\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80\x65\x8c\x04\x6c\x6f\x6e\x67\x94\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x40\x8c\x05\x66\x6c\x6f\x61\x74\x94\x47\x3f\xe0\x00\x00\x00\x00\x00\x00\x8c\x04\x74\x65\x78\x74\x94\x8c\x07\x67\x72\xc3\xb6\xc3\x9f\x65\x94\x8c\x05\x62\x79\x74\x65\x73\x94\x43\x02\x00\xff\x94\x8c\x06\x74\x75\x70\x6c\x65\x73\x94\x28\x29\x4b\x01\x85\x94\x4b\x01\x4b\x02\x86\x94\x4b\x01\x4b\x02\x4b\x03\x87\x94\x28\x4b\x01\x4b\x02\x4b\x03\x4b\x04\x74\x94\x74\x94\x4b\x03\x8c\x03\x6b\x65\x79\x94\x4b\x01\x8c\x01\x74\x94\x86\x94\x5d\x94\x75\x2e",
}

// TestPython reads a value that Python has written in the protocols 2 to 5.
func TestPython(t *testing.T) {
	for protocol, pickle := range dumped {
		t.Run(fmt.Sprint(protocol), func(t *testing.T) {
			top := must(load(pickle))
			d, ok := top.(*Dict)
			require.True(t, ok)
			var bytes any = Bytes{0, 255}
			if protocol == 2 { // this protocol has no bytes: Python writes a call of _codecs.encode with a string
				bytes = &Object{Class: Global{"_codecs", "encode"}, Args: Tuple{"\u0000ÿ", "latin1"}}
			}
			require.Equal(t, []Entry{
				{"none", nil},
				{"bools", &List{[]any{true, false}}},
				{"ints", &List{[]any{int64(0), int64(255), int64(256), int64(-1), int64(1<<31 - 1), int64(-1 << 31), int64(1 << 40), int64(-1 << 63)}}},
				{"long", Long("\x00\x00\x00\x00\x00\x00\x00\x00\x40")},
				{"float", 0.5},
				{"text", "größe"},
				{"bytes", bytes},
				{"tuples", Tuple{Tuple(nil), Tuple{int64(1)}, Tuple{int64(1), int64(2)}, Tuple{int64(1), int64(2), int64(3)}, Tuple{int64(1), int64(2), int64(3), int64(4)}}},
				{int64(3), "key"},
				{Tuple{int64(1), "t"}, &List{}},
			}, d.Entries)
			v, ok := d.Get("float")
			require.True(t, ok)
			require.Equal(t, 0.5, v)
			_, ok = d.Get("absent")
			require.False(t, ok)
		})
	}
}

// TestTruncated cuts a pickle off at every byte. Its reader then ends early, or fails.
func TestTruncated(t *testing.T) {
	for protocol, pickle := range dumped {
		for n := range pickle {
			_, err := load(pickle[:n])
			require.ErrorIs(t, err, io.ErrUnexpectedEOF, "protocol %d, %d bytes", protocol, n)
			_, err = New(strings.NewReader(pickle[:n]), int64(len(pickle))).Load()
			require.ErrorIs(t, err, io.ErrUnexpectedEOF, "protocol %d, %d bytes", protocol, n)
		}
	}
	broken := errors.New("broken")
	_, err := New(io.MultiReader(strings.NewReader("\x80\x02]"), iotest.ErrReader(broken)), 100).Load()
	require.ErrorIs(t, err, broken)
}

// TestSeveral reads pickles that follow one another in one file. Each has a memo of its own.
func TestSeveral(t *testing.T) {
	u := unpickler("\x80\x02K\x01.\x80\x02h\x00.")
	require.Equal(t, int64(1), must(u.Load()))
	require.Equal(t, int64(5), u.Pos())
	require.EqualError(t, errorOf(u.Load()), "the pickle, at byte 7: nothing was stored as 0", "a memo of its own")
}

// TestValues: a call becomes an Object, and so does every later operation on that. The exception is
// an ordered dict, which Python 2 makes from a list of pairs. The memo stores values in sequence,
// out of sequence, and twice under one number.
func TestValues(t *testing.T) {
	const ordered = "\x80\x02ccollections\nOrderedDict\n"
	system := Global{"os", "system"}
	unordered := func(args ...any) *Object {
		return &Object{Class: Global{"collections", "OrderedDict"}, Args: args, Why: errors.New("its arguments are not a list of pairs")}
	}
	for name, test := range map[string]struct {
		pickle string
		want   any
	}{
		"global":                     {"\x80\x02cos\nsystem\n.", system},
		"stack global":               {"\x80\x04\x8c\x02os\x8c\x06system\x93.", system},
		"reduce":                     {"\x80\x02cos\nsystem\nK\x01\x85R.", &Object{Class: system, Args: Tuple{int64(1)}}},
		"newobj":                     {"\x80\x02cos\nsystem\n)\x81.", &Object{Class: system}},
		"newobj_ex":                  {"\x80\x04cos\nsystem\nK\x01\x85}\x92.", &Object{Class: system, Args: Tuple{int64(1)}}},
		"obj":                        {"\x80\x02(cos\nsystem\nK\x01o.", &Object{Class: system, Args: Tuple{int64(1)}}},
		"build":                      {"\x80\x02cos\nsystem\n)\x81K\x07b.", &Object{Class: system, State: int64(7)}},
		"its call":                   {"\x80\x02cos\nsystem\n)RK\x02\x85R.", &Object{Class: system, Args: Tuple{int64(2)}}},
		"its items":                  {"\x80\x02cos\nsystem\n)R(K\x01K\x02e(K\x01K\x02uK\x03aK\x04K\x05s.", &Object{Class: system, Dict: &Dict{Entries: []Entry{{int64(1), int64(2)}, {int64(4), int64(5)}}}, List: &List{[]any{int64(1), int64(2), int64(3)}}}},
		"set":                        {"\x80\x04\x8f(K\x01\x90.", &Object{Class: Global{"builtins", "set"}, Args: Tuple{&List{Items: []any{int64(1)}}}}},
		"frozenset":                  {"\x80\x04(K\x01\x91.", &Object{Class: Global{"builtins", "frozenset"}}},
		"attributes of a state dict": {"\x80\x02}}b.", &Dict{}},
		"ordered dict":               {ordered + ")R.", &Dict{}},
		"of pairs":                   {ordered + "](U\x01aK\x01\x86](U\x01bK\x02ee\x85R.", &Dict{Entries: []Entry{{"a", int64(1)}, {"b", int64(2)}}}},
		"size":                       {"\x80\x02ctorch\nSize\nK\x01\x85\x85R.", Tuple{int64(1)}},
		"size of a number":           {"\x80\x02ctorch\nSize\nK\x01\x85R.", &Object{Class: Global{"torch", "Size"}, Args: Tuple{int64(1)}, Why: errors.New("its argument is not a tuple")}},
		"of a number":                {ordered + "K\x01\x85R.", unordered(int64(1))},
		"of numbers":                 {ordered + "]K\x01a\x85R.", unordered(&List{[]any{int64(1)}})},
		"of two lists":               {ordered + "]]\x86R.", unordered(&List{}, &List{})},
		"pop":                        {"\x80\x02K\x01K\x020(K\x03K\x041.", int64(1)},
		"memo":                       {"\x80\x04(K\x01\x94K\x02r\x00\x01\x00\x00K\x03\x94K\x04q\x00h\x00h\x02j\x00\x01\x00\x00t.", Tuple{int64(1), int64(2), int64(3), int64(4), int64(4), int64(3), int64(2)}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, test.want, must(load(test.pickle))) })
	}
}

// TestKnown: the funcs of an Unpickler turn calls and persistent ids into values, or return the
// reason why they do not.
func TestKnown(t *testing.T) {
	no := errors.New("no")
	const text = "\x80\x02(ccollections\nOrderedDict\n)RK\x05Qcm\nf\n)RK\x06Qt."
	u := unpickler(text)
	u.Call = func(g Global, _ Tuple) (any, error) {
		if g == (Global{"collections", "OrderedDict"}) {
			return &Dict{}, nil
		}
		return nil, no
	}
	u.Persistent = func(id any) (any, error) {
		if id == int64(5) {
			return "five", nil
		}
		return nil, no
	}
	v := must(u.Load())
	require.Equal(t, Tuple{&Dict{}, "five", &Object{Class: Global{"m", "f"}, Why: no}, &Object{Class: Global{"persistent", "id"}, Why: no}}, v)
	v = must(load("\x80\x02K\x05Q."))
	require.EqualError(t, v.(*Object).Why, "an unknown persistent id")
}

// TestRefused: a pickle that breaks a rule is an error that gives the position of the opcode.
func TestRefused(t *testing.T) {
	for name, test := range map[string]struct{ pickle, want string }{
		"empty":              {"", "at byte 0: no byte is left"},
		"protocol 1":         {"\x80\x01.", "protocol 1; only 2 to 5 are read"},
		"protocol 6":         {"\x80\x06.", "protocol 6; only 2 to 5 are read"},
		"protocol 0":         {"I1\n.", "opcode 'I' of the protocols 0 and 1; only pickles of protocol 2 and later are read"},
		"protocol 0, a memo": {"(lp0\n.", "of the protocols 0 and 1"},
		"extension":          {"\x80\x02\x82\x01.", "unknown opcode 0x82"},
		"buffer":             {"\x80\x05\x97.", "unknown opcode 0x97"},
		"nothing":            {"\x80\x02.", "the stack is empty"},
		"frozenset, no mark": {"\x80\x04\x91.", "there is no mark on the stack"},
		"object, no mark":    {"\x80\x02o.", "there is no mark on the stack"},
		"no mark":            {"\x80\x02t.", "there is no mark on the stack"},
		"beyond the mark":    {"\x80\x02K\x01(0.", "the stack is empty"},
		"tuple of too few":   {"\x80\x02K\x01\x86.", "the stack is empty"},
		"attributes":         {"\x80\x02N}b.", "setting attributes of None"},
		"append to None":     {"\x80\x02NK\x01a.", "appending to None"},
		"items in a list":    {"\x80\x02]K\x01K\x02s.", "setting 2 keys and values in a list of 0"},
		"odd items":          {"\x80\x02}(K\x01u.", "setting 1 keys and values in a dict with 0 entries"},
		"add to a list":      {"\x80\x04](K\x01\x90.", "adding to a list of 0"},
		"duplicate key":      {"\x80\x02}(U\x01aK\x01U\x01aK\x02u.", `duplicate key "a"`},
		"list as a key":      {"\x80\x02}]K\x01s.", "a dict key that is a list of 0"},
		"call of a string":   {"\x80\x02U\x01a)R.", "calling a string with a tuple of 0"},
		"call with a list":   {"\x80\x02cos\nsystem\n]R.", `calling the class or function "os.system" with a list of 0`},
		"object of nothing":  {"\x80\x02(o.", "an object without a class"},
		"name of ints":       {"\x80\x04K\x01K\x02\x93.", "the name of a global is not a string"},
		"memo":               {"\x80\x02h\x07.", "nothing was stored as 7"},
		"memo of nothing":    {"\x80\x02q\x07.", "the stack is empty"},
		"tuple at the mark":  {"\x80\x02}(\x85.", "the stack is empty"},
		"surrogate":          {"\x80\x04\x8c\x03\xed\xa0\x80.", "is not valid UTF-8"},
		"huge text":          {"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff", "18446744073709551615 bytes where at most 0 are left"},
		"huge integer":       {"\x80\x02\x8b\xff\xff\xff\x7f", "2147483647 bytes where at most 0 are left"},
		"no UTF-8":           {"\x80\x02U\x01\xff.", "is not valid UTF-8"},
		"long name":          {"\x80\x02c" + strings.Repeat("x", 1001), "a name of more than 1000 bytes"},
		"long module":        {"\x80\x04X\xe9\x03\x00\x00" + strings.Repeat("x", 1001) + "U\x01f\x93.", "a name of more than 1000 bytes"},
		"long function":      {"\x80\x04U\x01mX\xe9\x03\x00\x00" + strings.Repeat("x", 1001) + "\x93.", "a name of more than 1000 bytes"},
		"huge string":        {"\x80\x02X\xff\xff\xff\xff", "4294967295 bytes where at most 0 are left"},
		"huge bytes":         {"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\xff", "18446744073709551615 bytes where at most 0 are left"},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := load(test.pickle)
			require.ErrorContains(t, err, test.want)
			require.ErrorContains(t, err, "the pickle, at byte ")
			require.Nil(t, v)
		})
	}
}

// TestClaimedSize: memory grows with the bytes that exist, and not with the number that a length
// and the size of a file claim.
func TestClaimedSize(t *testing.T) {
	text := "\x80\x02X" + string(binary.LittleEndian.AppendUint32(nil, MaxSize/2))
	require.Less(t, testplatform.Allocated(func() {
		require.ErrorIs(t, errorOf(New(strings.NewReader(text), 1<<40).Load()), io.ErrUnexpectedEOF)
	}), uint64(1<<20))
}

// TestMaxSize: a pickle has at most 100 MB, whatever the size of the file.
func TestMaxSize(t *testing.T) {
	for length, want := range map[uint32]error{
		100_000_000 - 7: io.ErrUnexpectedEOF, // seven bytes of the pickle come before the string
		100_000_000 - 6: nil,
	} {
		text := "\x80\x02X" + string(binary.LittleEndian.AppendUint32(nil, length))
		_, err := New(strings.NewReader(text), 1<<40).Load()
		if want != nil {
			require.ErrorIs(t, err, want)
		} else {
			require.ErrorContains(t, err, "99999994 bytes where at most 99999993 are left")
		}
	}
}

// TestSteps: the elements that opcodes copy count as steps, so that a small pickle cannot cause
// more work than the limit allows.
func TestSteps(t *testing.T) {
	bombs := map[string]string{
		"opcodes":      "\x80\x02" + strings.Repeat("]0", 1000),
		"tuples":       "\x80\x02(" + strings.Repeat("K\x01", 100) + "tq\x00" + strings.Repeat("(h\x00h\x00th\x00", 200),
		"arguments":    "\x80\x02cm\nf\nq\x00((" + strings.Repeat("K\x01", 100) + "tq\x010" + strings.Repeat("h\x00h\x01R0", 100),
		"lists":        "\x80\x02]q\x00" + strings.Repeat("("+strings.Repeat("h\x00", 100)+"e", 10),
		"Charge":       "\x80\x02cm\nf\n)R",
		"a long tuple": "\x80\x02(" + strings.Repeat("K\x01", 600) + "t",
		"long keys":    "\x80\x02X\xd0\x07\x00\x00" + strings.Repeat("a", 2000) + "q\x00" + strings.Repeat("}h\x00Ns0", 100),
		"long errors":  "\x80\x02cm\ng\nq\x00)q\x01" + strings.Repeat("h\x00h\x01R0", 100),
		"long reasons": "\x80\x02Nq\x00" + strings.Repeat("h\x00Q0", 100),
	}
	for name, text := range bombs {
		t.Run(name, func(t *testing.T) {
			u := unpickler(text + ".")
			u.MaxSteps = 1500
			long := errors.New(strings.Repeat("x", 2000))
			u.Persistent = func(any) (any, error) { return nil, long }
			u.Call = func(g Global, _ Tuple) (any, error) {
				if g.Name == "g" {
					return nil, long
				}
				if name == "Charge" {
					u.Charge(1 << 20) // Call ignores the error
				}
				return nil, nil
			}
			require.ErrorContains(t, errorOf(u.Load()), "the pickle copies too much: it has more than 750 opcodes")
		})
	}
}

// TestSet: Set returns the items of the sets of all protocols, and of no other values.
func TestSet(t *testing.T) {
	for text, want := range map[string][]any{
		"\x80\x02c__builtin__\nset\n](K\x01K\x02e\x85R.": {int64(1), int64(2)},
		"\x80\x03cbuiltins\nset\n]K\x01a\x85R.":          {int64(1)},
		"\x80\x04\x8f(K\x01\x90(K\x02\x90.":              {int64(1), int64(2)},
		"\x80\x04\x8f.":                                  {},
		"\x80\x02cother\nset\n]K\x01a\x85R.":             nil,
		"\x80\x02c__builtin__\nset\n)R.":                 nil,
		"\x80\x02]K\x01a.":                               nil,
	} {
		set, ok := Set(must(load(text)))
		require.Equal(t, want != nil, ok, "%q", text)
		if ok {
			require.Equal(t, want, append([]any{}, set.Items...))
		}
	}
}

// TestCopied: a set has the items that its list had when the set was made, and an object has the
// attributes that its dict had then. Later changes of the list or the dict do not change the set or
// the object, and vice versa.
func TestCopied(t *testing.T) {
	const list, dict = "\x80\x04]\x94K\x01a", "\x80\x04}\x94\x8c\x01aK\x01s"
	v := must(load(list + "cbuiltins\nset\n\x94h\x01h\x00\x85R(K\x02\x90\x940h\x00K\x03ah\x02\x86."))
	require.Equal(t, []any{int64(1), int64(3)}, v.(Tuple)[0].(*List).Items)
	set, ok := Set(v.(Tuple)[1])
	require.True(t, ok)
	require.Equal(t, []any{int64(1), int64(2)}, set.Items)

	v = must(load(dict + "cm\nf\n)\x81h\x00b\x94h\x00\x8c\x01bK\x02s0."))
	require.Equal(t, []Entry{{"a", int64(1)}}, v.(*Object).State.(*Dict).Entries)
	require.ErrorContains(t, errorOf(load("\x80\x04cm\nf\n)\x81}b}b.")), `setting the state of an object of "m.f" again`)

	// Copies count as steps: here, 10,000 copies of a list of 10,000 items.
	many := "\x80\x04]\x94(" + strings.Repeat("N", 10_000) + "e0(" + strings.Repeat("cbuiltins\nset\nh\x00\x85R(N\x90", 10_000) + "t."
	require.ErrorContains(t, errorOf(load(many)), "the pickle copies too much")
	many = "\x80\x04}\x94(" + strings.Repeat("NN", 10_000) + "u0(" + strings.Repeat("cm\nf\n)\x81h\x00b", 10_000) + "t."
	require.ErrorContains(t, errorOf(load(many)), "the pickle copies too much")
}

// TestBuild: only values for which Build returns true may get attributes, which are then dropped.
func TestBuild(t *testing.T) {
	const text = "\x80\x02cm\nf\n)R}b."
	u := unpickler(text + text)
	u.Call = func(Global, Tuple) (any, error) { return 1.5, nil }
	u.Build = func(v, _ any) bool { return v == 1.5 }
	require.Equal(t, 1.5, must(u.Load()))
	u.Build = nil
	require.ErrorContains(t, errorOf(u.Load()), "setting attributes of a float")
}

// TestManyKeys: a lookup in a large dict is as fast as in a small one, and so is finding a
// duplicate key.
func TestManyKeys(t *testing.T) {
	var d Dict
	for i := range 100 {
		require.NoError(t, d.Set(fmt.Sprint(i), i))
		require.NoError(t, d.Set(int64(i), i))
	}
	for i := range 100 {
		v, ok := d.Get(fmt.Sprint(i))
		require.True(t, ok)
		require.Equal(t, i, v)
		require.Error(t, d.Set(fmt.Sprint(i), i))
	}
	require.Len(t, d.Entries, 200)
}

// TestObjects: an Object counts more steps than the values of other opcodes, because it takes more
// memory.
func TestObjects(t *testing.T) {
	for name, test := range map[string]struct {
		opcodes string
		steps   int // number of steps without those for an Object
		objects bool
	}{
		"dict":           {"}", perOpcode, false},
		"set":            {"\x8f", perOpcode, true},
		"frozen set":     {"(\x91", 2 * perOpcode, true},
		"call":           {"h\x00)R", 3 * perOpcode, true},
		"call of a call": {"h\x01)R", 3 * perOpcode, true},
		"persistent id":  {"NQ", 2*perOpcode + len("an unknown persistent id")/elementSize, true},
	} {
		t.Run(name, func(t *testing.T) {
			const n = 100
			text := "\x80\x04cos\nsystem\n\x94)R\x94" + strings.Repeat(test.opcodes, n) + "."
			u := unpickler(text)
			u.MaxSteps = 7*perOpcode + perObject + n*test.steps
			_, err := u.Load()
			require.Equal(t, test.objects, err != nil)
		})
	}
}

// FuzzLoad: Load never panics, and returns either an error or a value.
func FuzzLoad(f *testing.F) {
	for _, pickle := range dumped {
		f.Add(pickle)
	}
	f.Add("\x80\x04\x8f(K\x01\x90\x94h\x00cos\nsystem\nK\x01\x85R}b(cos\nsystem\nK\x01o.")
	f.Fuzz(func(t *testing.T, pickle string) {
		u := unpickler(pickle)
		u.MaxSteps = 1 << 12
		v, err := u.Load()
		require.True(t, err == nil || v == nil)
		require.LessOrEqual(t, u.Pos(), int64(len(pickle)))
		if err == nil {
			require.NotEmpty(t, Describe(v))
		}
	})
}

// TestDescribe: the values of NumPy have names that a user knows, in files of its versions 1 and 2.
func TestDescribe(t *testing.T) {
	object := func(module, name string) *Object { return &Object{Class: Global{module, name}} }
	for want, v := range map[string]any{
		"a dict with 1 entry": &Dict{Entries: make([]Entry, 1)}, "a dict with 2 entries": &Dict{Entries: make([]Entry, 2)},
		"a NumPy array": object("numpy._core.multiarray", "_reconstruct"), "a NumPy number": object("numpy.core.multiarray", "scalar"), "bytes": object("_codecs", "encode"),
		`an object of "argparse.Namespace"`: object("argparse", "Namespace"),
	} {
		require.Equal(t, want, Describe(v))
	}
}
