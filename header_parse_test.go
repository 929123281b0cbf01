package safetensors

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

// TestConformance checks the verdict and the table of every file in
// testdata/cases.jsonl. No file is accepted that the reference rejects.
func TestConformance(t *testing.T) {
	for _, c := range conformanceCases(t) {
		t.Run(c.Name, func(t *testing.T) {
			require.False(t, c.Want == "accept" && c.Reference == "reject")
			name := filepath.Join(t.TempDir(), "x.safetensors")
			require.NoError(t, os.WriteFile(name, c.File, 0o666))
			_, parsed := Parse(c.File)
			for way, open := range map[string]func() (*File, error){
				"Parse":   func() (*File, error) { return Parse(c.File) },
				"Read":    func() (*File, error) { return Read(bytes.NewReader(c.File)) },
				"NewFile": func() (*File, error) { return NewFile(bytes.NewReader(c.File), int64(len(c.File))) },
				"Open":    func() (*File, error) { return Open(name) },
				"Load":    func() (*File, error) { return Load(name) },
			} {
				f, err := open()
				requireVerdict(t, c, f, err)
				if err == nil {
					require.NoError(t, f.Close())
					continue
				}
				if way != "Read" || !strings.Contains(err.Error(), "the data buffer goes on") { // Parse also reports how far
					require.EqualError(t, parsed, strings.Replace(err.Error(), "open "+name+": ", "", 1), way)
				}
			}
		})
	}
}

// requireVerdict checks the result of opening the file of a case.
func requireVerdict(t *testing.T, c conformanceCase, f *File, err error) {
	t.Helper()
	if c.Want == "reject" {
		var broken *FormatError
		require.ErrorAs(t, err, &broken)
		require.NotEmpty(t, broken.Reason)
		require.LessOrEqual(t, broken.Offset, int64(len(c.File)))
		return
	}
	require.NoError(t, err)
	require.Equal(t, c.Metadata, f.Metadata())
	rows := []tableRow{}
	for _, info := range f.parts[0].header().Tensors {
		row := tableRow{Name: info.Name, DType: info.DType, Shape: []int64{}, DataOffsets: info.DataOffsets}
		for _, dim := range info.Shape {
			row.Shape = append(row.Shape, int64(dim))
		}
		rows = append(rows, row)
	}
	require.Equal(t, c.Tensors, rows)
	for _, row := range rows {
		tensor := must(f.Tensor(row.Name))
		require.Equal(t, row.DType, tensor.DType())
		require.Len(t, tensor.Shape(), len(row.Shape))
	}
}

// parseBothWays parses a header with the fast path and without it, checks that
// the results agree, and returns them.
func parseBothWays(t testing.TB, text []byte, dataSize int64) (*table, error) {
	t.Helper()
	fast, err := parseHeader(bytes.Clone(text), dataSize)
	p := newParser(bytes.Clone(text))
	p.slow = true
	slow, slowErr := p.parse(dataSize)
	require.Equal(t, slowErr, err, "%q", text)
	if err == nil {
		require.Equal(t, slow.header(), fast.header(), "%q", text)
		require.True(t, json.Valid(text), "%q", text)
		requireValidTable(t, fast, dataSize)
	}
	return fast, err
}

// TestShapesStandOnce: if the fast path begins an entry and leaves it to the general path, the
// table holds its shape only once, so that the memory of a hostile header stays proportional to its
// length.
func TestShapesStandOnce(t *testing.T) {
	const entries, rank = 50, 20
	var text strings.Builder
	for i := range entries {
		fmt.Fprintf(&text, `,"%d":{"dtype":"U8","shape":[%d%s],"data_offsets":[0,0],"x":0}`, i, i, strings.Repeat(",0", rank-1))
	}
	table, err := parseBothWays(t, []byte("{"+text.String()[1:]+"}"), 0)
	require.NoError(t, err)
	require.Len(t, table.dims, entries*rank)
}

// requireValidTable checks the invariants of a table: names are unique, lookups find them, and the
// tensors fill the data buffer in order. dataSize is -1 if unknown.
func requireValidTable(t testing.TB, h *table, dataSize int64) {
	t.Helper()
	end := int64(0)
	names := make(map[string]bool)
	for i := range h.entries {
		e := &h.entries[i]
		require.Equal(t, end, e.begin)
		require.LessOrEqual(t, e.begin, e.end)
		end = e.end
		size, broken := checkShape(e.shape.dtype(), h.shape(e))
		require.Empty(t, broken)
		require.Equal(t, size, e.end-e.begin)
		require.False(t, names[h.name(i)])
		names[h.name(i)] = true
		require.Equal(t, i, h.names.lookup(h.name(i), h.name))
	}
	if dataSize >= 0 {
		require.Equal(t, dataSize, end)
	}
}

// TestMutations changes headers a little, at random and with pieces that make edge cases likely,
// and checks that the fast and the general path agree.
func TestMutations(t *testing.T) {
	seeds := []string{
		`{"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}`,
		`{"__metadata__":{"k":"v"},"a":{"dtype":"BF16","shape":[12345678,0],"data_offsets":[0,0]},"b":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}  `,
		`{"b":{"data_offsets":[100,116],"x":[{"y":-1.5e3}],"dtype":"F8_E4M3FNUZ","shape":[16]},"a\n\u00e9":{"dtype":"F4","shape":[200],"data_offsets":[0,100]}}`,
		`{"w":{"dtype":"I64","shape":[1234567890123],"data_offsets":[0,9876543120984]}}`,
		`{"a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},"b":{"dtype":"F8_E4M3","shape":[],"data_offsets":[12,13]},` +
			`"c":{"dtype":"F8_E4M3FNUZ","shape":[1,1,1,1,1,1,1,1,3],"data_offsets":[13,16]},"d":{"dtype":"F8_E5M2FNUZ","shape":[0],"data_offsets":[16,16]},` +
			`"e":{"dtype":"F6_E2M3","shape":[123456784],"data_offsets":[16,92592604]},"f":{"dtype":"U8","shape":[10],"data_offsets":[92592604,92592614]}}`,
		`{"__metadata__":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"a":{"dtype":"U8","shape":[],"data_offsets":[2,3]}}`,
		" \t\r\n" + `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[],"data_offsets":[8,12]},"c":{"dtype":"U8","shape":[0],"data_offsets":[12,12]}}`,
	}
	pieces := []string{
		"0", "1", "9", "00", "01", "-", "+", ".", "e", "E5", `"`, `\`, `\u0041`, `\ud800`, `\ud83d\ude00`, ",", ":", "[", "]", "{", "}",
		" ", "\n", "\x00", "\x1f", "\x7f", "\xff", "é", "null", "true", `"a"`, `"dtype"`, `"shape"`, `"F32"`, `"U8"`, "F16", "123456789012345678",
		"9223372036854775807", "9223372036854775808", "18446744073709551616", "1e400", `"x":1,`, `"__metadata__":null,`, "[0,0]", "[]",
		"U8", "BF16", "F8_E4M3", "FNUZ", "F8_E4M3F", "__metadata__",
	}
	for _, text := range seeds {
		parseBothWays(t, []byte(text), -1)
	}
	random := rand.New(rand.NewPCG(1, 2))
	accepted, fast, spaced := 0, 0, 0
	n := 100_000
	switch {
	case testplatform.Long():
		n = 300_000
	case testing.Short() || testplatform.RaceEnabled:
		n = 20_000
	}
	for range n {
		text := []byte(seeds[random.IntN(len(seeds))])
		for range 1 + random.IntN(3) {
			at := random.IntN(len(text))
			piece := pieces[random.IntN(len(pieces))]
			switch random.IntN(5) {
			case 0: // insert
				text = append(text[:at:at], append([]byte(piece), text[at:]...)...)
			case 1: // overwrite
				text = append(text[:at:at], append([]byte(piece), text[min(len(text), at+len(piece)):]...)...)
			case 2: // one byte
				text[at] = byte(random.IntN(256))
			case 3: // delete
				text = append(text[:at:at], text[min(len(text), at+1+random.IntN(4)):]...)
			case 4: // repeat
				to := at + random.IntN(len(text)-at)
				text = append(text[:to:to], text[at:]...)
			}
			if len(text) == 0 {
				text = []byte("{")
			}
		}
		if _, err := parseBothWays(t, text, -1); err == nil {
			accepted++
		}
		p := newParser(bytes.Replace(text, []byte("{"), []byte(","), 1))
		p.Space()
		for p.canonicalEntry() {
		}
		if len(p.t.entries) > 1 {
			fast++
			if text[0] != '{' {
				spaced++
			}
		}
	}
	require.Greater(t, accepted, n/100, "too few mutations are accepted to show anything")
	require.Greater(t, fast, n/10, "the fast path is taken too rarely to show anything")
	require.Greater(t, spaced, n/100, "white space comes before the fast path too rarely to show anything")
}

// TestFastPathIsTaken: the fast path reads every dtype, and all entries of a usual header except
// the last one, which has too few bytes after it.
func TestFastPathIsTaken(t *testing.T) {
	tensors := llama70B(80)
	all := slices.Collect(DTypes())
	for i := range tensors {
		tensors[i].DType = all[(i+i/7)%len(all)]
		tensors[i].Shape = []int{8, i, 999_999_999}[:i%4]
		if i%4 == 0 && tensors[i].DType.Bits() < 8 {
			tensors[i].Shape = []int{8}
		}
	}
	text, size := headerText(t, tensors)
	p := newParser(text[bytes.Index(text, []byte(`,"lm_head`)):])
	for p.canonicalEntry() {
	}
	require.Len(t, p.t.entries, len(tensors)-1)
	must(parseHeader(text, size))
}

// TestNamesAreSeeded: two indexes of the same names store them in different orders, so that nobody
// can choose names that collide.
func TestNamesAreSeeded(t *testing.T) {
	name := func(i int) string { return fmt.Sprint("n", i) }
	one, _ := newNameIndex(1000, name)
	two, _ := newNameIndex(1000, name)
	require.NotEqual(t, one.slots, two.slots)
}

// TestNameIndex makes indexes of different numbers of names. A lookup finds each of them, and no
// other name. If any name occurs twice, newNameIndex reports it.
func TestNameIndex(t *testing.T) {
	most := 80 // the time grows with the cube
	if testplatform.Long() {
		most = 300
	}
	for n := range most {
		name := func(i int) string { return fmt.Sprint("n", i) }
		x, duplicate := newNameIndex(n, name)
		require.Equal(t, -1, duplicate)
		require.GreaterOrEqual(t, len(x.slots), 2*n, "a search meets a free slot soon")
		for i := range n {
			require.Equal(t, i, x.lookup(name(i), name))
		}
		for _, absent := range []string{"", "n", name(n), name(n + 1)} {
			require.Equal(t, -1, x.lookup(absent, name))
		}
		if n < 2 {
			continue
		}
		for i := range n {
			_, duplicate := newNameIndex(n+1, func(k int) string {
				if k == n {
					return name(i)
				}
				return name(k)
			})
			require.Equal(t, n, duplicate)
		}
		_, duplicate = newNameIndex(n, func(int) string { return "x" })
		require.Equal(t, 1, duplicate)
	}
}

// TestPackShape: a packedShape has room for the largest rank in a header, for the index of the last
// dimension that a header can have, and for 255 dtypes.
func TestPackShape(t *testing.T) {
	most := maxHeaderLength / len("0,")
	for d := range 256 {
		for _, rank := range []int{0, 1, most} {
			for _, first := range []int{0, 1, most} {
				s := packShape(rank, first, DType(d))
				require.Equal(t, rank, s.rank())
				require.Equal(t, first, s.first())
				require.Equal(t, DType(d), s.dtype())
			}
		}
	}
}

// FuzzParse checks that no file makes Parse panic, that all ways to read a header agree, that the
// table of an accepted file keeps its invariants, and that rewriting the file preserves its
// tensors.
func FuzzParse(f *testing.F) {
	for _, c := range conformanceCases(f) {
		f.Add(c.File)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse(data)
		other, otherErr := NewFile(bytes.NewReader(data), int64(len(data)))
		require.Equal(t, err == nil, otherErr == nil, "%v, %v", err, otherErr)
		header, headerErr := ReadHeader(bytes.NewReader(data))
		if len(data) >= prefixSize {
			if length, err := checkHeaderLength(data, int64(len(data))); err == nil {
				parseBothWays(t, data[prefixSize:][:length], int64(len(data))-prefixSize-length)
			}
		}
		if err != nil {
			return
		}
		require.NoError(t, headerErr)
		require.Equal(t, file.parts[0].header(), header)
		require.Equal(t, other.parts[0].header(), header)
		var out bytes.Buffer
		require.NoError(t, Write(&out, maps.Collect(file.Tensors()), file.Metadata()))
		again := must(Parse(out.Bytes()))
		require.Equal(t, contents(file), contents(again))
		require.Equal(t, file.Metadata(), again.Metadata())
		var twice bytes.Buffer
		require.NoError(t, Write(&twice, maps.Collect(again.Tensors()), again.Metadata()))
		require.Equal(t, out.Bytes(), twice.Bytes(), "rewriting a written file changes nothing")
	})
}

// contents returns the tensors of a file, and their bytes.
func contents(f *File) map[string]string {
	all := make(map[string]string)
	for name, x := range f.Tensors() {
		all[name] = x.String() + string(must(View[byte](x)))
	}
	return all
}

// TestParseAllocations: limits hold for the number and the bytes of the allocations that parsing a
// header makes, whatever the number of tensors.
func TestParseAllocations(t *testing.T) {
	for _, layers := range []int{80, 2000} {
		text, size := headerText(t, llama70B(layers))
		allocs := testing.AllocsPerRun(10, func() {
			must(parseHeader(text, size))
		})
		if testplatform.RaceEnabled {
			continue // the race detector itself allocates
		}
		require.LessOrEqual(t, allocs, 10.0)
		heap := testplatform.Allocated(func() {
			must(parseHeader(text, size))
		})
		require.Less(t, float64(heap), 0.7*float64(len(text)), "in addition to the text itself")
	}
}

// BenchmarkParseHeader parses headers of one dtype and of alternating dtypes, as
// in quantised models; 723/general shows how much the fast path saves.
func BenchmarkParseHeader(b *testing.B) {
	quantised := llama70B(80)
	for i := range quantised {
		quantised[i].DType = []DType{F8_E4M3, F32}[i%2]
	}
	for _, h := range []struct {
		name    string
		tensors []TensorInfo
		slow    bool
	}{
		{"723", llama70B(80), false},
		{"723/general", llama70B(80), true},
		{"723/quantised", quantised, false},
		{"91992", llama70B(10221), false},
	} {
		text, size := headerText(b, h.tensors)
		b.Run(h.name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			own := make([]byte, len(text))
			for b.Loop() {
				copy(own, text)
				p := newParser(own)
				p.slow = h.slow
				must(p.parse(size))
				p.free()
			}
		})
	}
}

// BenchmarkLookup compares File.Tensor with a lookup in a Go map.
func BenchmarkLookup(b *testing.B) {
	for _, layers := range []int{80, 10221} {
		text, size := headerText(b, llama70B(layers))
		t := must(parseHeader(text, size))
		f := newFile(t, &source{})
		names := make([]string, len(t.entries))
		goMap := make(map[string]int)
		for i := range names {
			names[i] = string([]byte(t.name(i * 7919 % len(names))))
			goMap[names[i]] = i
		}
		b.Run(fmt.Sprintf("%d", len(names)), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				_, err := f.Tensor(names[i%len(names)])
				if err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("%d/map", len(names)), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				if _, ok := goMap[names[i%len(names)]]; !ok {
					b.Fatal("lost")
				}
			}
		})
	}
}
