package report

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/stats"
	"github.com/stretchr/testify/require"
)

func summary(scale numbers.Float) stats.Summary {
	s := stats.Summary{Count: 1e6, Min: -scale, Max: scale, Mean: scale / 1e3, Std: scale / 5}
	for i := range 21 {
		s.Histogram.Edges = append(s.Histogram.Edges, scale*(numbers.Float(i)/10-1)*0.987654321)
	}
	for i := range int64(20) {
		s.Histogram.Counts = append(s.Histogram.Counts, 123_456*(i+1))
	}
	return s
}

func checkpoint(t testing.TB, tensors []Tensor) string {
	t.Helper()
	var page bytes.Buffer
	require.NoError(t, Checkpoint(&page, "model.safetensors", tensors, summary(1)))
	return page.String()
}

func TestSize(t *testing.T) {
	for _, c := range []struct {
		title string
		n     int
		name  func(i int) string
		bytes func(i int) int64
	}{
		{"experts", 100_000, func(i int) string { return fmt.Sprintf("model.layers.%d.mlp.experts.%d.up_proj.weight", i%61, i/61) }, func(i int) int64 { return 1 << 20 }},
		{"all are layers", 20_000, func(i int) string { return fmt.Sprintf("layers.%d.weight", i) }, func(i int) int64 { return int64(i) << 20 }},
		{"all are modules", 20_000, func(i int) string { return fmt.Sprintf("layers.%d.%d_", i%2, i) }, func(i int) int64 { return 4 }},
		{"all are prefixes", 100_000, func(i int) string { return fmt.Sprintf("%d_.%d.x", i/2, i%2) }, func(i int) int64 { return 4 }},
		{"long", 20_000, func(i int) string { return strings.Repeat("重み<&", 60) + fmt.Sprint(i) }, func(i int) int64 { return 1 << (i % 40) }},
		{"deep", 20_000, func(i int) string { return strings.Repeat("a.", 300) + fmt.Sprint(i) }, func(i int) int64 { return 4 }},
	} {
		t.Run(c.title, func(t *testing.T) {
			n := c.n
			tensors, pairs := make([]Tensor, n), make([]*Pair, n)
			for i := range tensors {
				tensors[i] = Tensor{Name: c.name(i), DType: safetensors.BF16, Shape: []int{1, 1 << 20}, Bytes: c.bytes(i), Summary: summary(1 / numbers.Float(i+1))}
				pairs[i] = &Pair{Name: c.name(i), A: &Type{DType: safetensors.BF16}, B: &Type{DType: safetensors.F32}, Different: true, Change: 1 / numbers.Float(i+1)}
			}
			tensors[n/2].NaN = 7
			tensors[n/2].Bytes = 1
			page := checkpoint(t, tensors)
			require.Less(t, len(page), 15<<20)
			require.Equal(t, maxRows, strings.Count(page, "<tr id="))
			require.Contains(t, page, fmt.Sprintf(`<tr id="t%d">`, n/2), "the tensor with NaN")
			require.Contains(t, page, fmt.Sprintf("leaves out %d", n-maxRows))

			var comparison bytes.Buffer
			require.NoError(t, (&Comparison{A: "a", B: "b", Pairs: pairs}).Draw(&comparison))
			require.Less(t, comparison.Len(), 15<<20)
			require.Contains(t, comparison.String(), fmt.Sprintf("leaves out %d", n-maxRows))
		})
	}
}

func TestHostile(t *testing.T) {
	var tensors []Tensor
	var pairs []*Pair
	evil := []string{
		`</script><script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`, `</style><script>alert(1)</script>`,
		`{{.}}`, "javascript:alert(1)", "\u202egpj", "\x00\xff", "", `--></title><script>alert(1)</script>`, "layers.0.<b>", "layers.1.<b>", "<u>.0.x", "<u>.1.x",
	}
	for i, name := range evil {
		tensors = append(tensors, Tensor{Name: name, DType: safetensors.F32, Shape: []int{i}, Bytes: 1 << 20, Summary: summary(1)})
		pairs = append(pairs, &Pair{Name: name, A: &Type{DType: safetensors.F32}, Different: true, Change: numbers.Float(math.NaN())})
	}
	for _, name := range evil {
		var a, b bytes.Buffer
		require.NoError(t, Checkpoint(&a, name, tensors, summary(1)))
		value := name
		require.NoError(t, (&Comparison{A: name, B: name, Pairs: pairs, Metadata: []Meta{{Key: name, A: &value}}}).Draw(&b))
		for _, page := range []string{a.String(), b.String()} {
			require.Equal(t, 1, strings.Count(page, "<script"))
			require.Equal(t, 1, strings.Count(page, "</script"))
			require.Equal(t, 1, strings.Count(page, "</style"))
			require.Equal(t, 1, strings.Count(page, "</title"))
			for _, bad := range []string{"<img", "<b>", "<u>", "' onmouse", "javascript:alert(1)\">", "ZgotmplZ", "\x00", "\u202e", "\xff", "http://", "https://"} {
				require.NotContains(t, page, bad)
			}
		}
	}
}

func TestTreemap(t *testing.T) {
	sizes := map[string]int64{
		"model.embed": 4000, "model.layers.0.a": 1000, "model.layers.0.b": 3000, "model.layers.1.a": 1000, "model.layers.1.b": 3000,
		"head": 4000, "empty": 0, "head.bias": 500, "tiny.0": 1, "tiny.1": 1, "tiny.2": 1,
	}
	var tensors []Tensor
	var listed []int
	total := int64(0)
	for name, size := range sizes {
		listed = append(listed, len(tensors))
		tensors = append(tensors, Tensor{Name: name, DType: safetensors.F32, Bytes: size})
		total += size
	}
	areas, links := make(map[string]float64), 0
	for _, b := range treemap(tensors, dtypesOf(tensors, numbered(tensors)), listed) {
		require.GreaterOrEqual(t, b.X, 0.0, b.Title)
		require.GreaterOrEqual(t, b.Y, 0.0, b.Title)
		require.LessOrEqual(t, b.X+b.W, mapWidth+0.2, b.Title)
		require.LessOrEqual(t, b.Y+b.H, mapHeight+0.2, b.Title)
		name, _, _ := strings.Cut(b.Title, "  ")
		areas[name] = b.W * b.H
		if b.Href != "" {
			links++
			require.Contains(t, sizes, name)
			require.False(t, b.Group)
		}
	}
	require.Equal(t, 7, links)
	require.NotContains(t, areas, "empty")
	require.NotContains(t, areas, "tiny.0", "too small")
	all := float64(mapWidth * mapHeight)
	require.InDelta(t, all*4000/float64(total), areas["head"], 200)
	require.InDelta(t, all*12000/float64(total), areas["model"], 400)
	require.InEpsilon(t, 3, areas["model.layers.1.b"]/areas["model.layers.1.a"], 0.1)
	require.Empty(t, treemap([]Tensor{{Name: "x"}}, nil, nil))
}

// TestTreemapOfStrangers: names of many parts cost no node for each.
func TestTreemapOfStrangers(t *testing.T) {
	var tensors []Tensor
	for i := range 10_000 {
		tensors = append(tensors, Tensor{Name: fmt.Sprint(i, strings.Repeat(".a", 19)), DType: safetensors.F32, Bytes: 4})
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	require.Len(t, treemap(tensors, dtypesOf(tensors, numbered(tensors)), nil), 1)
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))
}

func TestSplit(t *testing.T) {
	for name, want := range map[string][]any{
		"model.layers.3.mlp.up.weight":     {"model.layers", 3, "mlp.up.weight", true},
		"model.layers.12.mlp.experts.7.up": {"model.layers", 12, "mlp.experts.*.up", true},
		"0.weight":                         {"", 0, "weight", true},
		"h.5":                              {"h", 5, "", true},
	} {
		prefix, layer, module, ok := split(name)
		require.Equal(t, want, []any{prefix, layer, module, ok}, name)
	}
	for _, name := range []string{"", "head.weight", "a.-1.b", "a.99999999999.b", "layer1.conv2"} {
		_, _, _, ok := split(name)
		require.False(t, ok, name)
	}
}

// The figures of several tensors in a cell are those of all their values.
func TestPooled(t *testing.T) {
	tensor := func(name string, n int64, mean, std, least, most numbers.Float) Tensor {
		return Tensor{Name: name, Summary: stats.Summary{Count: n, Mean: mean, Std: std, Min: least, Max: most}}
	}
	bad := tensor("b.1.x.2.y", 3, 1, 0, 1, 1) // two values of 1, and a NaN
	bad.NaN = 1
	nan := numbers.Float(math.NaN())
	none := tensor("b.1.z", 1, nan, nan, nan, nan)
	none.Inf = 1
	m := summaryMap([]Tensor{
		tensor("b.1.x.0.y", 1, -9, 0, -9, -9), bad, none, // -9 1 1
		tensor("b.0.x.0.y", 2, 0, 1, -1, 1), tensor("b.0.x.1.y", 2, 4, 0, 4, 4), // -1 1 4 4
	})
	require.Equal(t, Omitted{5, 5}, m.Omitted)
	require.Len(t, m.Grids, 1)
	x := m.Grids[0].Modules[0]
	require.Equal(t, "x.*.y", x.Name)
	require.InDelta(t, math.Sqrt(34.0/4-4), x.Cells[0].figures[0], 1e-12)
	require.Equal(t, 4.0, x.Cells[0].figures[1])
	require.False(t, x.Cells[0].Bad)
	require.InDelta(t, math.Sqrt(83.0/3-49.0/9), x.Cells[1].figures[0], 1e-12)
	require.Equal(t, 9.0, x.Cells[1].figures[1])
	require.True(t, x.Cells[1].Bad)
	require.Equal(t, "b.*.x.*.y, layer 1, 2 tensors  std 4.714, absmax 9, 1 NaN or Inf", x.Cells[1].Title)
	z := m.Grids[0].Modules[1]
	require.Nil(t, z.Cells[0])
	require.True(t, z.Cells[1].Bad)
	require.Equal(t, "--f0:0%;--f1:0%;", string(z.Cells[1].Style))
	require.Equal(t, "--f0:100%;--f1:100%;", string(x.Cells[1].Style))
}

func TestBars(t *testing.T) {
	least := math.SmallestNonzeroFloat64
	require.Equal(t, "M50 24V0H51V24", bars(stats.Histogram{Edges: []numbers.Float{0, numbers.Float(least)}, Counts: []int64{7}}))
	require.Empty(t, bars(stats.Histogram{}))
	require.Equal(t, "M50 24V0H51V24", bars(stats.Histogram{Edges: []numbers.Float{3, 3}, Counts: []int64{7}}))
	require.Equal(t, "M0 24V12H25V24M50 24V0H100V24",
		bars(stats.Histogram{Edges: []numbers.Float{-2, -1, 0, 2}, Counts: []int64{2, 0, 4}}))
	require.Equal(t, "M0 24V0H50V24M50 24V0H100V24",
		bars(stats.Histogram{Edges: []numbers.Float{-math.MaxFloat64, 0, math.MaxFloat64}, Counts: []int64{1, 1}}))
}

// names returns the names in the table of a page.
func names(page string) (all []string) {
	for _, match := range regexp.MustCompile(`<th scope="row">([^<]*)</th>`).FindAllStringSubmatch(page, -1) {
		all = append(all, match[1])
	}
	return all
}

func TestNaturalOrder(t *testing.T) {
	want := []string{"layers.1a.x", "layers.a", "norm"}
	for _, i := range []string{"10", "2", "02", "0"} {
		want = append([]string{"layers." + i + ".x"}, want...)
	}
	var tensors []Tensor
	for _, i := range []int{6, 3, 1, 5, 0, 4, 2} {
		tensors = append(tensors, Tensor{Name: want[i], DType: safetensors.F32, Bytes: 4})
	}
	page := checkpoint(t, tensors)
	require.Equal(t, want, names(page))
	require.Regexp(t, `<tr id="t4"><th scope="row">layers.0.x<`, page, "links find their rows")
}

func TestComparisonByChange(t *testing.T) {
	changes := []numbers.Float{0.02, 0.08, numbers.Float(math.NaN()), 0.04, 0}
	one := &Type{DType: safetensors.F32, Shape: []int{1}}
	long := func(last int) *Type { return &Type{safetensors.F32, append(slices.Repeat([]int{1}, 60), last)} }
	pairs := []*Pair{{Name: "shapes that start like each other", A: long(2), B: long(3), Different: true, Change: -1}}
	for i, change := range changes {
		pairs = append(pairs, &Pair{Name: fmt.Sprintf("h.%d.w", i), A: one, B: one, Different: change != 0, Change: change})
	}
	var page bytes.Buffer
	require.NoError(t, (&Comparison{A: "a", B: "b", Pairs: pairs}).Draw(&page))
	_, table, _ := strings.Cut(page.String(), `id="tensors"`)
	require.Equal(t, []string{"h.2.w", "h.1.w", "h.3.w", "h.0.w", pairs[0].Name}, names(table))
	require.Equal(t, 4, strings.Count(table, ">same<"))
	require.Contains(t, table, `aria-sort="descending">relative change<`)
	m := changeMap(pairs[1:])
	require.Equal(t, []scale{{"relative change", 0, 0.08}}, m.Figures)
	var styles []string
	for _, c := range m.Grids[0].Modules[0].Cells {
		styles = append(styles, string(c.Style))
	}
	require.Equal(t, []string{"--f0:25%;", "--f0:100%;", "--f0:0%;", "--f0:50%;", "--f0:0%;"}, styles)
}

// TestAccessible: headers say what they head, links have names, and nothing moves.
func TestAccessible(t *testing.T) {
	page := checkpoint(t, []Tensor{{Name: "a.0.x", DType: safetensors.F32, Bytes: 4}, {Name: "a.1.x", DType: safetensors.F32, Bytes: 4}})
	var comparison bytes.Buffer
	value := "x"
	require.NoError(t, (&Comparison{Pairs: []*Pair{{Name: "x", A: new(Type), Different: true}}, Metadata: []Meta{{Key: "k", A: &value}}}).Draw(&comparison))
	for _, page := range []string{page, comparison.String()} {
		require.NotRegexp(t, `<th(>| [^s])`, page)
		require.NotRegexp(t, `animat|transition|scroll-behavior|scrollIntoView`, page)
	}
	require.Regexp(t, `<a href="#t0" aria-label="a.0.x  F32 \[\], 4 B">`, page)
	require.Equal(t, 2, strings.Count(page, `<a href="#t`))
	require.Equal(t, 2, strings.Count(page, `<td class="cell" style="--f0:0%;--f1:0%;" aria-label="a.`))
}
