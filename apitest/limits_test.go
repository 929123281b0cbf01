package apitest_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	. "github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

// near returns a length near a limit, or near a small part of it.
func near(limit int, long bool) int {
	if !long {
		limit /= 50
	}
	return limit - 1000
}

// filled returns a text of nearly n bytes: head, elements separated by commas, tail.
func filled(n int, head string, element func(b []byte, i int) []byte, tail string) []byte {
	b := append(make([]byte, 0, n), head...)
	for i := 0; ; i++ {
		was := len(b)
		if i > 0 {
			b = append(b, ',')
		}
		if b = element(b, i); len(b)+len(tail) > n {
			return append(b[:was], tail...)
		}
	}
}

// always returns the same element again and again.
func always(text string) func([]byte, int) []byte {
	return func(b []byte, _ int) []byte { return append(b, text...) }
}

// entryOf returns entries of empty tensors: names by their number, and a shape.
func entryOf(name, shape string) func([]byte, int) []byte {
	return func(b []byte, i int) []byte {
		return append(fmt.Appendf(append(b, '"'), name, i), `":{"dtype":"U8","shape":[`+shape+`],"data_offsets":[0,0]}`...)
	}
}

// escapes returns numbers as five escaped letters, each with the text behind it.
func escapes(text string) func([]byte, int) []byte {
	return func(b []byte, i int) []byte {
		b = append(b, '"')
		for range 5 {
			b = fmt.Appendf(b, `\u%04x`, 'a'+i%26)
			i /= 26
		}
		return append(append(b, '"'), text...)
	}
}

// requireCost checks the error of reading a text of n bytes, "" for none, and that it takes
// memory for so many times the text. It returns the number of allocations.
func requireCost(t *testing.T, n int, times float64, text string, read func() error) (number uint64) {
	t.Helper()
	const slack = 4 << 20 // for what does not grow, and for lists that are copied while they are small
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := read()
	runtime.ReadMemStats(&after)
	if text == "" {
		require.NoError(t, err)
	} else {
		require.ErrorContains(t, err, text)
		require.Less(t, len(err.Error()), 2000)
	}
	bytes, number := float64(after.TotalAlloc-before.TotalAlloc), after.Mallocs-before.Mallocs
	t.Logf("%.2f times the text, in %d", bytes/float64(n), number)
	if testplatform.RaceEnabled { // the detector allocates, too
		return 0
	}
	require.Less(t, bytes, times*float64(n)+slack)
	return number
}

// TestHeadersAtTheLimit parses headers of 100 MB that hold as much as they can of
// something. All of them together with the copy of their text take less than 0.5 GB,
// in a few allocations.
func TestHeadersAtTheLimit(t *testing.T) {
	const (
		opened = `{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":[`
		closed = `]}}`
		deep   = 120
	)
	n := near(100_000_000, testplatform.Long())
	of := func(head string, element func([]byte, int) []byte, tail string) func() []byte {
		return func() []byte { return filled(n, head, element, tail) }
	}
	endless := func(head, piece string) func() []byte {
		return func() []byte { return []byte(head + strings.Repeat(piece, (n-len(head))/len(piece)-1)) }
	}
	for _, c := range []struct {
		name   string
		header func() []byte
		text   string  // of the error; "" if it is accepted
		most   float64 // times the header that may be allocated
	}{
		{"dimensions of one tensor", of(`{"a":{"dtype":"U8","shape":[`, always("0"), `],"data_offsets":[0,0]}}`), "", 5.05},
		{"dimensions of some tensors", of("{", entryOf("%d", strings.Repeat("0,", 9999)+"0"), "}"), "", 5.05},
		{"dimensions of many tensors", of("{", entryOf("%d", strings.Repeat("0,", 17)+"0"), "}"), "", 4},
		{"dimensions after much else", of(`{"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":"`+strings.Repeat("x", n/4)+`"},"a":{"dtype":"U8","shape":[`, always("0"), `],"data_offsets":[0,0]}}`), "", 5.05},
		{"tensors", of("{", entryOf("%x", "0"), "}"), "", 3},
		{"tensors whose names are escapes", of("{", escapes(`:{"dtype":"U8","shape":[0],"data_offsets":[0,0]}`), "}"), "", 3},
		{"tensors whose names differ in the end", of("{", entryOf(strings.Repeat("x", 10_000)+"%08x", "0"), "}"), "", 3},
		{"one name", of(`{"`, always("x"), `":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`), "", 2},
		{"one name again and again", of("{", always(`"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}`), "}"), "duplicate tensor name", 3},
		{"metadata", of(`{"__metadata__":{`, func(b []byte, i int) []byte { return fmt.Appendf(b, `"%x":""`, i) }, "}}"), "", 5.05},
		{"metadata of escapes", of(`{"__metadata__":{`, escapes(`:""`), "}}"), "", 5.05},
		{"one key of metadata again and again", of(`{"__metadata__":{`, always(`"k":""`), "}}"), "duplicate metadata key", 5.05},
		{"one value of metadata", func() []byte {
			return append(filled(n-6, `{"__metadata__":{"k":"`, always(`\n`), ""), `"}}`...)
		}, "", 2},
		{"ignored numbers", of(opened, always("-1.5e300"), closed), "", 2},
		{"ignored strings", of(opened, always(`"\ud83d\ude00"`), closed), "", 2},
		{"ignored objects", of(opened, always(`{"":{"":null}}`), closed), "", 2},
		{"ignored arrays, deep", of(opened, always(strings.Repeat("[", deep)+strings.Repeat("]", deep)), closed), "", 2},
		{"ignored arrays, too deep", of(opened, always(strings.Repeat("[", deep+9)+strings.Repeat("]", deep+9)), closed), "nested deeper", 2},
		{"ignored fields", of(`{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],`, always(`"x":0`), `}}`), "", 2},
		{"white space", endless("{}", " \n\t\r"), "", 2},
		{"nested arrays", endless("", "["), "expected an object", 2},
		{"arrays in place of an entry", endless(`{"a":`, "["), "expected an object", 2},
		{"ignored arrays without an end", endless(`{"a":{"x":`, "["), "nested deeper", 2},
		{"ignored objects without an end", endless(`{"a":{"x":`, `{"":`), "nested deeper", 2},
		{"garbage", endless("", "\x00\x01\x02{"), "expected an object", 2},
		{"a string without an end", endless(`{"`, "a"), "does not end", 2},
		{"only white space", endless("", " \n\t\r"), "the end of the text", 2},
		{"white space in place of a name", endless("{", " "), "the end of the text", 2},
		{"dimensions of zero", of(`{"a":{"dtype":"U8","shape":[`, always("0"), `],"data_offsets":[0,1]}}`), "needs 0", 5.05},
		{"digits without an end", endless(`{"a":{"x":`, "9"), "range of a 64-bit float", 2},
		{"white space before the object", func() []byte { return append(bytes.Repeat([]byte(" \n\t\r"), n/4), "{}"...) }, "", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := fileOf(string(c.header()), 0)
			require.LessOrEqual(t, len(file), n+1000)
			require.Greater(t, len(file), n-n/100)
			require.Less(t, requireCost(t, n, c.most, c.text, func() error { return errorOf(Parse(file)) }), uint64(200))
		})
	}
}

// TestIndexesAtTheLimit is the same for an index of 64 MiB. It opens few shards.
func TestIndexesAtTheLimit(t *testing.T) {
	n := near(64<<20, testplatform.Long())
	tensor := func(name, shard string) func([]byte, int) []byte {
		return func(b []byte, i int) []byte { return fmt.Appendf(b, `"`+name+`":"`+shard+`"`, i) }
	}
	for _, c := range []struct {
		name    string
		head    string
		element func([]byte, int) []byte
		tail    string
		text    string
	}{
		{"tensors", `{"weight_map":{`, tensor("%x", "s"), "}}", "file does not exist"},
		{"one tensor again and again", `{"weight_map":{`, always(`"x":"s"`), "}}", "duplicate tensor name"},
		{"names of escapes", `{"weight_map":{`, escapes(`:"\u0073"`), "}}", "file does not exist"},
		{"shards", `{"weight_map":{`, tensor("%x", "%[1]x"), "}}", "more than 10000 shards"},
		{"a long shard", `{"weight_map":{`, tensor("%x", strings.Repeat("s", 5000)), "}}", "not a local"},
		{"ignored values", `{"weight_map":{},"metadata":[`, always(`{"":[0.5,"\n",null]}`), "]}", ""},
		{"nesting", `{"":` + strings.Repeat(`{"":`, n/4-10), always(""), "", "nested deeper"},
	} {
		t.Run(c.name, func(t *testing.T) {
			index := filled(n, c.head, c.element, c.tail)
			var calls atomic.Int64
			// Up to five of it are for the memory in which the text arrives.
			requireCost(t, n, 9, c.text, func() error {
				return errorOf(OpenShards(bytes.NewReader(index), func(string) (*File, error) {
					calls.Add(1)
					return nil, fs.ErrNotExist
				}))
			})
			require.LessOrEqual(t, calls.Load(), int64(1))
		})
	}
}
