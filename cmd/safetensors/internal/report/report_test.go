package report

import (
	"bytes"
	"fmt"
	"html"
	"maps"
	"math"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pattern"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/stats"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
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

var origin = Origin{Date: time.Unix(1_800_000_000, 0), Version: "v1.2.3", Command: "safetensors stats 'a b'"}

func checkpoint(t testing.TB, tensors []Tensor) string {
	t.Helper()
	var page bytes.Buffer
	require.NoError(t, Checkpoint(&page, origin, "model.safetensors", tensors, summary(1)))
	return page.String()
}

// TestSize: a page has at most 15 MiB, whatever the number and the names of the tensors.
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
			require.Contains(t, page, "leaves out "+term.Count(int64(n-maxRows)))

			var comparison bytes.Buffer
			require.NoError(t, (&Comparison{A: "a", B: "b", Pairs: pairs}).Draw(&comparison, origin))
			require.Less(t, comparison.Len(), 15<<20)
			require.Contains(t, comparison.String(), "leaves out "+term.Count(int64(n-maxRows)))
		})
	}
}

// TestHostile: no name of a tensor, of a file or in metadata becomes markup, script or a link.
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
		require.NoError(t, Checkpoint(&a, Origin{Version: name, Command: name}, name, tensors, summary(1)))
		value := name
		require.NoError(t, (&Comparison{A: name, B: name, Pairs: pairs, Metadata: []Meta{{Key: name, A: &value}}}).Draw(&b, Origin{Version: name, Command: name}))
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

// TestTreemap: boxes stay in the picture, and their areas are proportional to the bytes.
func TestTreemap(t *testing.T) {
	sizes := map[string]int64{
		"model.embed": 4000, "model.layers.0.a": 1000, "model.layers.0.b": 3000, "model.layers.1.a": 1000, "model.layers.1.b": 3000,
		"head": 4000, "empty": 0, "head.bias": 500, "tiny.0": 1, "tiny.1": 1, "tiny.2": 1,
	}
	var tensors []Tensor
	total := int64(0)
	for name, size := range sizes {
		tensors = append(tensors, Tensor{Name: name, DType: safetensors.F32, Bytes: size})
		total += size
	}
	maps := treemaps(tensors, dtypesOf(tensors, indices(tensors)))
	require.Len(t, maps, len(layouts))
	for _, m := range maps {
		areas, links := make(map[string]float64), 0
		for _, b := range m.Boxes {
			require.GreaterOrEqual(t, b.X, 0.0, b.Title)
			require.GreaterOrEqual(t, b.Y, 0.0, b.Title)
			require.LessOrEqual(t, b.X+b.W, m.Width+0.2, b.Title)
			require.LessOrEqual(t, b.Y+b.H, m.Height+0.2, b.Title)
			require.InDelta(t, b.X, b.Left*m.Width/100, 0.11, "the same in percent")
			require.InDelta(t, b.W, b.Width*m.Width/100, 0.11, "the same in percent")
			name, _, _ := strings.Cut(b.Title, "  ")
			areas[name] = b.W * b.H
			if b.ID >= 0 {
				links++
				require.Equal(t, tensors[b.ID].Name, name)
				require.False(t, b.Group)
			}
		}
		require.Equal(t, 7, links)
		require.NotContains(t, areas, "empty")
		require.NotContains(t, areas, "tiny.0", "too small")
		all := m.Width * m.Height
		require.InEpsilon(t, all*4000/float64(total), areas["head"], 0.01)
		require.InEpsilon(t, all*12000/float64(total), areas["model"], 0.01)
		require.InEpsilon(t, 3, areas["model.layers.1.b"]/areas["model.layers.1.a"], 0.1)
	}
	require.Empty(t, treemaps([]Tensor{{Name: "x"}}, nil))
}

// TestTreemapOfStrangers: names of many parts cost no node for each.
func TestTreemapOfStrangers(t *testing.T) {
	var tensors []Tensor
	for i := range 10_000 {
		tensors = append(tensors, Tensor{Name: fmt.Sprint(i, strings.Repeat(".a", 19)), DType: safetensors.F32, Bytes: 4})
	}
	tree := pattern.Tree(namesOf(tensors), maxDepth)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	require.Len(t, draw(tensors, dtypesOf(tensors, indices(tensors)), tree, layouts[0]), 1)
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))
}

// TestSplit splits names of tensors into the prefix, the number of the layer and the module.
func TestSplit(t *testing.T) {
	for name, want := range map[string][]any{
		"model.layers.3.mlp.up.weight":     {"model.layers", 3, "mlp.up.weight", true},
		"model.layers.12.mlp.experts.7.up": {"model.layers", 12, "mlp.experts.*.up", true},
		"0.weight":                         {"", 0, "weight", true},
		"h.5":                              {"h", 5, "", true},
		"h.9.up":                           {"h", 9, "up", true},
		"h.16777215":                       {"h", 1<<24 - 1, "", true},
	} {
		prefix, layer, module, ok := split(name)
		require.Equal(t, want, []any{prefix, layer, module, ok}, name)
	}
	for _, name := range []string{"", "head.weight", "a.-1.b", "a.99999999999.b", "a.16777216.b", "layer1.conv2"} {
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

// TestBars draws histograms, also of equal numbers and of numbers whose difference overflows.
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

// TestNaturalOrder: the table sorts numbers in names as numbers, and links find their rows.
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

// TestComparisonByChange: the table of a comparison starts with the largest change, after those
// that are not known, and the map has one scale for all changes.
func TestComparisonByChange(t *testing.T) {
	changes := []numbers.Float{0.02, 0.08, numbers.Float(math.NaN()), 0.04, 0}
	one := &Type{DType: safetensors.F32, Shape: []int{1}}
	long := func(last int) *Type { return &Type{safetensors.F32, append(slices.Repeat([]int{1}, 60), last)} }
	pairs := []*Pair{{Name: "shapes that start like each other", A: long(2), B: long(3), Different: true, Change: -1}}
	for i, change := range changes {
		pairs = append(pairs, &Pair{Name: fmt.Sprintf("h.%d.w", i), A: one, B: one, Different: change != 0, Change: change})
	}
	var page bytes.Buffer
	require.NoError(t, (&Comparison{A: "a", B: "b", Pairs: pairs}).Draw(&page, origin))
	_, table, _ := strings.Cut(page.String(), `id="tensors"`)
	require.Equal(t, []string{"h.2.w", "h.1.w", "h.3.w", "h.0.w", pairs[0].Name}, names(table))
	require.Equal(t, 4, strings.Count(table, ">same<"))
	require.Contains(t, table, `aria-sort="descending">change<`)
	m := changeMap(pairs[1:])
	require.Equal(t, []scale{{Label: "change", High: 0.08}}, m.Scales)
	var styles []string
	for _, c := range m.Grids[0].Modules[0].Cells {
		styles = append(styles, string(c.Style))
	}
	require.Equal(t, []string{"--f0:25%;", "--f0:100%;", "--f0:0%;", "--f0:50%;", "--f0:0%;"}, styles)
}

// TestHollow: cells without a known change have no fill, and a scale without a fill is not shown.
func TestHollow(t *testing.T) {
	c := compared(map[string]float64{"h.0.w": 0.05, "h.1.w": 0})
	unknown := numbers.Float(math.NaN())
	c.Pairs = append(c.Pairs, &Pair{Name: "h.2.w", A: new(Type), Different: true, Change: unknown}, &Pair{Name: "h.3.w", B: new(Type), Different: true, Change: unknown})
	classes := func(pairs []*Pair) (found []string, page string) {
		var b bytes.Buffer
		require.NoError(t, (&Comparison{Pairs: pairs}).Draw(&b, origin))
		for _, m := range regexp.MustCompile(`<td class="(cell[^"]*)"`).FindAllStringSubmatch(b.String(), -1) {
			found = append(found, m[1])
		}
		return found, b.String()
	}
	found, page := classes(c.Pairs)
	require.Equal(t, []string{"cell", "cell equal", "cell bad hollow", "cell bad hollow"}, found)
	require.Contains(t, page, `class="scale"`)
	found, page = classes(c.Pairs[1:])
	require.Equal(t, []string{"cell equal", "cell bad hollow", "cell bad hollow"}, found)
	require.NotContains(t, page, `class="scale"`)
}

// TestAccessible: headers say what they head, links have names, and nothing moves.
func TestAccessible(t *testing.T) {
	page := checkpoint(t, []Tensor{{Name: "a.0.x", DType: safetensors.F32, Bytes: 4}, {Name: "a.1.x", DType: safetensors.F32, Bytes: 4}})
	var comparison bytes.Buffer
	value := "x"
	require.NoError(t, (&Comparison{Pairs: []*Pair{{Name: "x", A: new(Type), Different: true}}, Metadata: []Meta{{Key: "k", A: &value}}}).Draw(&comparison, origin))
	for _, page := range []string{page, comparison.String()} {
		require.NotRegexp(t, `<th(>| [^s])`, page)
		require.NotRegexp(t, `animat|transition|scroll-behavior|scrollIntoView`, page)
	}
	require.Equal(t, len(layouts), len(regexp.MustCompile(`<a class="d0" href="#t0" style="[^"]*" aria-label="a.0.x  F32 \[\], 4 B">`).FindAllString(page, -1)))
	require.Equal(t, 2*len(layouts), strings.Count(page, `href="#t`)-strings.Count(page, `href="#tensors"`))
	require.Len(t, regexp.MustCompile(`<td class="cell[^"]*" style="--f0:0%;--f1:0%;" data-id="t[01]" aria-label="a.`).FindAllString(page, -1), 2)
}

// TestLogScale: a span of 2 % does not get the contrast of a factor of 2, what is a millionth of the
// largest value looks like the least, and zero and NaN are not on the scale.
func TestLogScale(t *testing.T) {
	s := logScale("std", []float64{1, 1.02, 0})
	require.True(t, s.Log)
	require.InEpsilon(t, 2, float64(s.High/s.Low), 1e-9)
	require.InEpsilon(t, math.Sqrt(1.02), float64(s.Middle()), 1e-9)
	require.InDelta(t, math.Log2(1.02), s.share(1.02)-s.share(1), 1e-9)
	require.EqualValues(t, 3, scale{Low: 2, High: 4}.Middle())
	s = logScale("std", []float64{0.01, 1, math.Inf(1)})
	require.Equal(t, []numbers.Float{0.01, 1}, []numbers.Float{s.Low, s.High})
	require.InDelta(t, 0.5, s.share(0.1), 1e-9)
	require.False(t, s.Less)
	s = logScale("std", []float64{1e-9, 1})
	require.Equal(t, []numbers.Float{1e-6, 1}, []numbers.Float{s.Low, s.High})
	require.True(t, s.Less)
	require.Zero(t, logScale("std", []float64{0}).High)
	s = logScale("std", []float64{math.MaxFloat64, math.MaxFloat64})
	require.False(t, math.IsInf(float64(s.High), 0))

	nan := numbers.Float(math.NaN())
	page := checkpoint(t, []Tensor{
		{Name: "a.0.x", DType: safetensors.F32, Bytes: 4, Summary: stats.Summary{Count: 9, Min: 1, Max: 1}},
		{Name: "a.1.x", DType: safetensors.F32, Bytes: 4, Summary: stats.Summary{Count: 9, Min: -1, Max: 1.02, Std: 0.5}},
		{Name: "a.2.x", DType: safetensors.F32, Bytes: 4, Summary: stats.Summary{Min: nan, Max: nan, Mean: nan, Std: nan}},
	})
	require.Contains(t, page, "log scale, middle 0.5")
	require.Contains(t, page, `<i class="zero"></i>zero</span>`)
	require.Contains(t, page, `<i class="none"></i>no finite value</span>`)
	require.Contains(t, page, `<td class="cell z0" style="--f0:0%;--f1:49%;"`, "std 0, absmax 1 between 0.71 and 1.43")
	require.Contains(t, page, `<td class="cell" style="--f0:50%;--f1:51%;"`)
	require.Contains(t, page, `<td class="cell n0 n1"`)
}

// TestCellsLeadToTensors: a cell of one tensor has its index, one of several tensors the pattern of
// their names.
func TestCellsLeadToTensors(t *testing.T) {
	m := summaryMap([]Tensor{{Name: "b.0.x"}, {Name: "b.1.x"}, {Name: "b.1.e.0.y"}, {Name: "b.1.e.1.y"}, {Name: "2.z"}, {Name: "3.z"}, {Name: "3.z.w.1.v"}, {Name: "3.z.w.0.v"}})
	leads := make(map[string]string)
	for _, c := range m.cells {
		leads[strings.Fields(c.Title)[0]] = fmt.Sprint(c.ID, " ", c.Filter)
	}
	require.Equal(t, map[string]string{"b.0.x": "0 ", "b.1.x": "1 ", "b.*.e.*.y,": "-1 b.1.e.*.y", "2.z": "4 ", "3.z": "5 ", "*.z.w.*.v,": "-1 3.z.w.*.v"}, leads)
}

// compared returns a comparison of tensors with these changes. A change of 0 is none.
func compared(changes map[string]float64) *Comparison {
	c := &Comparison{A: "a", B: "b"}
	one := &Type{DType: safetensors.F32, Shape: []int{100}}
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		p := &Pair{Name: name, A: one, B: one, Change: numbers.Float(changes[name]), Of: 100}
		if p.Change != 0 {
			p.Different, p.Elements, p.Share = true, 25, 0.25
			c.Different = append(c.Different, p)
		}
		c.Pairs = append(c.Pairs, p)
	}
	c.Equal = len(c.Different) == 0
	return c
}

// layered returns twelve layers of four modules, of which some have changed.
func layered(changed map[string]float64) map[string]float64 {
	all := map[string]float64{"lm_head.weight": changed["lm_head"]}
	for layer := range 12 {
		for _, module := range []string{"self_attn.q_proj", "self_attn.v_proj", "mlp.up_proj", "norm"} {
			all[fmt.Sprintf("model.layers.%d.%s.weight", layer, module)] = changed[module] + changed[fmt.Sprint(layer)]
		}
	}
	return all
}

// TestSentence: the page of a comparison begins with its result.
func TestSentence(t *testing.T) {
	for want, changes := range map[string]map[string]float64{
		"12 of 49 tensors differ, all q_proj; changed by 5.0 %.":                     layered(map[string]float64{"self_attn.q_proj": 0.05}),
		"24 of 49 tensors differ, all q_proj or v_proj; changed by 0.12 % to 5.0 %.": layered(map[string]float64{"self_attn.q_proj": 0.05, "self_attn.v_proj": 0.001234}),
		"25 of 49 tensors differ, all lm_head, q_proj or up_proj; changed by 5.0 %.": layered(map[string]float64{"self_attn.q_proj": 0.05, "mlp.up_proj": 0.05, "lm_head": 0.05}),
		"4 of 49 tensors differ, all in model.layers.7; changed by 5.0 %.":           layered(map[string]float64{"7": 0.05}),
		"1 of 49 tensors differs, lm_head.weight; changed by 5.0 %.":                 layered(map[string]float64{"lm_head": 0.05}),
		"48 of 49 tensors differ, all in model.layers; changed by 5.0 %.":            layered(map[string]float64{"self_attn.q_proj": 0.05, "mlp.up_proj": 0.05, "norm": 0.05, "self_attn.v_proj": 0.05}),
		"49 of 49 tensors differ; changed by 5.0 % to ∞.":                            layered(map[string]float64{"self_attn.q_proj": 0.05, "mlp.up_proj": 0.05, "norm": 0.05, "self_attn.v_proj": 0.05, "lm_head": math.Inf(1)}),
		"All 49 tensors in both are equal.":                                          layered(nil),
		"The only tensor in both is equal.":                                          {"x": 0},
		"A and B have no tensor in common.":                                          {},
		"2 of 4 tensors differ; changed by 5.0 %.":                                   {"0.1": 0.05, "0.2": 0, "3": 0.05, "4": 0},
		"1 of 1 tensor differs; changed by 5.0 %.":                                   {"x": 0.05},
		"12 of 49 tensors differ, all q_proj.":                                       layered(map[string]float64{"self_attn.q_proj": math.NaN()}),
		"1 of 2 tensors differs, &lt;script&gt;; changed by 5.0 %.":                  {"<script>": 0.05, "x": 0},
	} {
		c := compared(changes)
		var page bytes.Buffer
		require.NoError(t, c.Draw(&page, origin))
		_, verdict, _ := strings.Cut(page.String(), `<p class="verdict">`)
		verdict, _, _ = strings.Cut(verdict, "</p>")
		require.Equal(t, want, verdict)
	}
	c := compared(layered(map[string]float64{"norm": 0.05}))
	c.OnlyA, c.OnlyB, c.Metadata = []string{"x", "y"}, []string{"z"}, []Meta{{}}
	for _, name := range c.OnlyA {
		c.Pairs = append(c.Pairs, &Pair{Name: name, A: new(Type), Different: true})
	}
	c.Pairs = append(c.Pairs, &Pair{Name: "z", B: new(Type), Different: true})
	require.Equal(t, "12 of 49 tensors differ, all norm; changed by 5.0 %; 2 only in A, 1 only in B, 1 different in the metadata.", c.Sentence())
	require.Equal(t, "12 of 49 tensors differ, 2 only in A, 1 only in B, 1 different in the metadata", c.Verdict())
	c.Equal = true
	require.Equal(t, "equal", c.Verdict())

	nan := numbers.Float(math.NaN())
	broken := &Pair{Name: "broken", A: new(Type), B: new(Type), Different: true, Elements: 1, At: []int{3}, MaxAbs: nan, Change: nan}
	c = &Comparison{Different: []*Pair{broken}, Pairs: []*Pair{broken, {Name: "same", A: new(Type), B: new(Type)}}}
	require.Equal(t, `1 of 2 tensors differs, broken; 1 with NaN or infinity.`, c.Sentence())
	var page strings.Builder
	require.NoError(t, c.Draw(&page, Origin{}))
	require.Contains(t, page.String(), ">not finite<")
}

// TestKinds: a key explains the kinds of rows, changes are in percent, and a pair that differs in its
// dtype alone is not equal.
func TestKinds(t *testing.T) {
	c := compared(map[string]float64{"h.0.w": 0.05, "h.1.w": 0, "h.2.w": 0})
	c.Pairs[2].B, c.Pairs[2].Different = &Type{DType: safetensors.BF16, Shape: []int{100}}, true
	c.Pairs = append(c.Pairs, &Pair{Name: "a", A: new(Type), Different: true, Change: numbers.Float(math.NaN())}, &Pair{Name: "b", B: new(Type), Different: true, Change: numbers.Float(math.NaN())})
	var page bytes.Buffer
	require.NoError(t, c.Draw(&page, origin))
	for _, key := range []string{"≠</strong> different", "−</strong> only in A", "+</strong> only in B", "=</strong> equal"} {
		require.Contains(t, page.String(), "<strong>"+key)
	}
	_, table, _ := strings.Cut(page.String(), "<tbody>\n<tr id=")
	table, _, _ = strings.Cut(table, "</tbody>")
	for name, row := range map[string]string{
		"h.0.w": `≠</td><th scope="row">h.0.w</th><td>F32 [100]</td><td>same</td><td class="n bar" style="--share:100%"><data value="0.05">5.0 %</data></td><td class="n"><data value="25">25</data></td><td class="n"><data value="0.25">25.0 %</data></td>`,
		"h.2.w": `≠</td><th scope="row">h.2.w</th><td>F32 [100]</td><td>BF16 [100]</td><td class="n bar" style="--share:0%"><data value="0">0 %</data></td><td class="n"></td>`,
		"a":     `−</td><th scope="row">a</th><td>DType(0) []</td><td></td><td class="n bar" style="--share:0%"></td>`,
		"b":     `&#43;</td><th scope="row">b</th><td></td><td>DType(0) []</td>`,
	} {
		require.Contains(t, table, row, name)
	}
	cells := changeMap(c.Pairs).Grids[0].Modules[0].Cells
	require.Equal(t, []bool{false, true, false}, []bool{cells[0].Equal, cells[1].Equal, cells[2].Equal})
	require.Contains(t, cells[0].Title, "changed by 5.0 %")
}

// TestFoot: the date, the version and the command line stand at the foot of a page.
func TestFoot(t *testing.T) {
	var comparison bytes.Buffer
	require.NoError(t, compared(nil).Draw(&comparison, origin))
	for _, page := range []string{checkpoint(t, nil), comparison.String()} {
		_, foot, _ := strings.Cut(page, "<footer>")
		require.Contains(t, foot, "<p>safetensors v1.2.3, <time>2027-01-15 08:00 UTC</time></p>")
		require.Contains(t, foot, "<p><code>safetensors stats &#39;a b&#39;</code></p>")
	}
}

// TestZeroLine: a histogram has a line at zero if there are values on both sides, and the large
// one says what its bars count.
func TestZeroLine(t *testing.T) {
	h := func(edges ...numbers.Float) stats.Histogram {
		return stats.Histogram{Edges: edges, Counts: make([]int64, len(edges)-1)}
	}
	require.Equal(t, "25", zeroIn(h(-1, 0, 3)))
	require.Equal(t, "0", zeroIn(h(0, 3)))
	require.Equal(t, "50", zeroIn(h(-math.MaxFloat64, math.MaxFloat64)))
	require.Empty(t, zeroIn(h(1, 3)))
	require.Empty(t, zeroIn(h(-3, -1)))
	require.Empty(t, zeroIn(stats.Histogram{}))
	total := summary(1)
	total.Typical = total.Histogram
	var page bytes.Buffer
	require.NoError(t, Checkpoint(&page, origin, "x", []Tensor{{Name: "x", DType: safetensors.F32, Summary: summary(1)}}, total))
	require.Equal(t, 2, strings.Count(page.String(), `<path class="zero" d="M50 0V24"/></svg>`), "of all values, and in the row")
	require.Contains(t, page.String(), `<span class="zero" style="left:50%">0</span>`)
	require.Contains(t, page.String(), "2,469,120 values in the tallest bar")
}

// TestLetters: a histogram takes twenty letters, from a for none to y for the most.
func TestLetters(t *testing.T) {
	h := stats.Histogram{Edges: []numbers.Float{0}}
	for i := range 20 {
		h.Edges, h.Counts = append(h.Edges, numbers.Float(i+1)), append(h.Counts, int64(i))
	}
	require.Equal(t, "abdefgijklnopqstuvxy", letters(h))
	require.Equal(t, "aaaaaaaaaayyyyyyyyyy", letters(stats.Histogram{Edges: []numbers.Float{-1, 0, 1}, Counts: []int64{0, 9}}))
	require.Equal(t, "yaaaaaaaaaaaaaaaaaab", letters(stats.Histogram{Edges: []numbers.Float{0, 1, 999, 1000}, Counts: []int64{9999, 0, 1}}))
	require.Equal(t, "aaaaaaaaaayaaaaaaaaa", letters(stats.Histogram{Edges: []numbers.Float{3, 3}, Counts: []int64{7}}))
	require.Empty(t, letters(stats.Histogram{}))
}

// TestRest: tensors that the table leaves out are in the page in a short form, in the order of
// the table. The script of the page reads it, which TestReportInChromium proves.
func TestRest(t *testing.T) {
	var tensors []Tensor
	for i := range 4 {
		tensors = append(tensors, Tensor{Name: fmt.Sprintf("h.%d.😀w", 10-i), DType: safetensors.F32, Shape: []int{2}, Bytes: 8, Summary: stats.Summary{Count: 2, Min: -0.25, Max: 0.5, Zeros: int64(i)}})
	}
	kinds := dtypesOf(tensors, indices(tensors))
	require.Equal(t, "F32~d0|[2]|8 B~8\n"+
		"3\t0\th.7.😀w\t@0\t−0.25\t0.5\t0\t0\t3\t\t\t\n"+
		".\n"+
		"1\t2\t9.😀w\t@0\t−0.25\t0.5\t0\t0\t1\t\t\t\n"+
		"0\t2\t10.😀w\t@0\t−0.25\t0.5\t0\t0\t\t\t\t\n", restOfCheckpoint(tensors, kinds, []int{2}).Text)
	units, bytes := commonPrefix("a😀b", "a😀c")
	require.Equal(t, []int{3, 5}, []int{units, bytes})
	units, bytes = commonPrefix("a😀", "a😁") // some of whose bytes are the same
	require.Equal(t, []int{1, 1}, []int{units, bytes})

	var w restWriter
	for i := range 100_000 {
		w.add(i, fmt.Sprint(i, strings.Repeat("<", 150)))
	}
	r := w.rest()
	require.Positive(t, r.Lost)
	require.Less(t, len(html.EscapeString(r.Text)), maxRest+100)
	require.Equal(t, 100_000, r.Lost+strings.Count(r.Text, "\n")-1)
	for _, cells := range [][]string{{"a", "<"}, {"b"}, {"a", "<"}} {
		w.share(cells...)
	}
	require.Equal(t, len(html.EscapeString(w.rest().Text)), w.size, "the size that is limited")

	require.Zero(t, restOfComparison(nil, nil, 0))
	none := changeOf(&Pair{Name: "x", A: new(Type), B: new(Type), Different: true, Elements: 1, Of: 4, Share: 0.25, MaxAbs: 0.5}, 0)
	require.Equal(t, []string{"25.0 %~0.25", "0.5"}, none.cells(&w)[3:5])
	none = changeOf(&Pair{Name: "x", A: new(Type), B: new(Type), Different: true, Share: numbers.Float(math.NaN())}, 0)
	require.Equal(t, []string{"", "", ""}, none.cells(&w)[2:5])

	c := compared(map[string]float64{"x": 0.05, "y": 0.02, "z": 0})
	require.Equal(t, "≠|F32 [100]|same\t=|F32 [100]|same\n1\t0\ty\t@0\t2.0 %~0.02\t25\t25.0 %~0.25\t0\t\n2\t0\tz\t@1\n", restOfComparison(c.Pairs, []int{0, 1}, 1).Text)
}

// TestRestLimit: the lines of tensors and of rows that are listed elsewhere count towards the limit.
func TestRestLimit(t *testing.T) {
	line := len("1\t0\tx\tcell\n")
	for listed, lost := range []int{0, 1} {
		w := &restWriter{size: maxRest - line - 1} // room for less than the line of a row
		if listed == 0 {
			w.size++
		} else {
			w.listed()
		}
		w.add(1, "x", "cell")
		require.Equal(t, lost, w.lost)
	}
}

// TestGroups: a box is divided if it is large enough, and at least 14 wide and high.
func TestGroups(t *testing.T) {
	tensors := []Tensor{{Name: "a.x", Bytes: 1}, {Name: "a.y", Bytes: 1}}
	for height, want := range map[float64]bool{14: true, 13.9: false, 13: false} {
		for _, r := range []rect{{0, 0, 1000, height}, {0, 0, height, 1000}} {
			d := &drawing{layout: layouts[0], tensors: tensors, kinds: []dtype{{}}}
			d.place(d.node(pattern.Tree(namesOf(tensors), maxDepth)), r)
			require.Equal(t, want, d.boxes[0].Group, "%v", r)
		}
	}
}
