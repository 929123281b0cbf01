package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/stretchr/testify/require"
)

// realFiles are the checkpoints of the repository.
func realFiles(t *testing.T) (files []string) {
	t.Helper()
	for _, pattern := range []string{"*.safetensors", "golden/*.safetensors", "tied/*.safetensors"} {
		files = append(files, must(filepath.Glob(filepath.Join(repository, "testdata", pattern)))...)
	}
	require.Greater(t, len(files), 20)
	return files
}

// requireFigures requires that a page shows what stats --json prints, in its own order: numbers with
// all their digits, and a bar for each count.
func requireFigures(t *testing.T, printed, page string) {
	t.Helper()
	var shown struct{ Tensors []map[string]any }
	require.NoError(t, json.Unmarshal([]byte(printed), &shown))
	page = html.UnescapeString(strings.ReplaceAll(page, "<wbr>", ""))
	require.Equal(t, len(shown.Tensors), strings.Count(page, `<tr id="t`))
	for _, x := range shown.Tensors {
		row := fmt.Sprintf(`<th scope="row">%s</th><td><i class="d\d"></i>%v</td><td>%s</td><td class="n bar"[^\n]*?</td>`,
			regexp.QuoteMeta(term.Name(x["name"].(string))), x["dtype"], regexp.QuoteMeta(strings.ReplaceAll(fmt.Sprint(x["shape"]), " ", ",")))
		for _, key := range []string{"min", "max", "mean", "std", "zeros", "nan", "inf"} {
			digits := ""
			if number, ok := x[key].(float64); ok {
				digits = regexp.QuoteMeta(strconv.FormatFloat(number, 'g', -1, 64))
			}
			row += `<td class="n( alarm| none)?"><data value="` + digits + `">[^<]*</data></td>`
		}
		counts := x["histogram"].(map[string]any)["counts"].([]any)
		bars := len(slices.DeleteFunc(counts, func(n any) bool { return n == 0.0 }))
		require.Regexp(t, fmt.Sprintf(`%s<td><svg [^>]*><path d="([^M"]*M){%d}[^M"]*"`, row, bars), page)
	}
}

// TestReport requires that the figures in a page are those of --json.
func TestReport(t *testing.T) {
	page := filepath.Join(t.TempDir(), "report.html")
	for _, file := range realFiles(t) {
		printed := succeeds(t, "stats", file, "--json", "--html", page)
		require.Equal(t, succeeds(t, "stats", file, "--json"), printed)
		requireFigures(t, printed, string(must(os.ReadFile(page))))
	}
}

// TestReportInChromium opens pages in the Chromium that SAFETENSORS_CHROMIUM names: the
// console is silent, nothing is loaded, the figures are those of --json, keys alone
// reach all of them, and windows of every width show all of them.
func TestReportInChromium(t *testing.T) {
	b := startChromium(t)
	page := filepath.Join(t.TempDir(), "report.html")
	for _, file := range realFiles(t) {
		printed := succeeds(t, "stats", file, "--json", "--html", page)
		b.open(page)
		requireFigures(t, printed, b.evaluate("document.documentElement.outerHTML"))
	}
	succeeds(t, "stats", filepath.Join(repository, "testdata", "model.safetensors"), "--html", page)
	b.open(page)
	b.resize(1280, 800, func() { requireKeyboard(b) })
	picture := must(filepath.Abs("../../doc/stats.png"))

	t.Chdir(t.TempDir())
	require.NoError(t, safetensors.WriteFile("model.safetensors", decoder(12, 0, 192), nil))
	succeeds(t, "stats", "model.safetensors", "--html", "page.html")
	b.open("page.html")
	requirePicture(b, picture)
	requireWidths(b)
	for _, layers := range []int{11, 23, 33, 49, 100} {
		require.NoError(t, safetensors.WriteFile("layers.safetensors", decoder(layers, 0, 8), nil))
		succeeds(t, "stats", "layers.safetensors", "--html", "page.html")
		b.open("page.html")
		requireWidths(b)
	}

	writeFiles(t, ".")
	for _, args := range [][]string{
		{"stats", "hostile.safetensors"}, {"stats", "deep.safetensors"}, {"stats", "a.safetensors"},
		{"diff", "a.safetensors", "b.safetensors"}, {"diff", "a.safetensors", "a.safetensors"}, {"diff", "hostile.safetensors", "other.safetensors", "--meta"},
	} {
		runs(t, append(args, "--html", "page.html")...)
		b.open("page.html")
		requireWidths(b)
	}
}

// The names of the rows that a page shows.
const shownNames = `[...document.querySelectorAll("#tensors tbody th")].map((th) => th.textContent).join()`

// focusedRow is the name in the row that has the focus.
const focusedRow = `document.activeElement.closest("#tensors tbody tr")?.querySelector("th").textContent`

// requireKeyboard uses a page of model.safetensors without a mouse.
func requireKeyboard(b *browser) {
	b.t.Helper()
	const focused = `(document.activeElement.ariaLabel ?? document.activeElement.textContent)`
	const readout = `document.getElementById("readout").textContent`
	const color = `getComputedStyle(document.querySelector("td.cell")).backgroundColor`

	b.press(kb.Tab)
	require.Equal(b.t, "skip to the table", b.evaluate(focused))
	b.press(kb.Tab)
	first := b.evaluate(focused)
	require.Contains(b.t, first, "  BF16 [")
	require.Equal(b.t, first, b.evaluate(readout))
	b.press(kb.ArrowRight, kb.ArrowRight)
	require.Contains(b.t, b.evaluate(readout), "model.layers.0.mlp.up_proj.weight  BF16 [")
	b.press(kb.ArrowDown)
	require.Contains(b.t, b.evaluate(readout), "model.layers.0.input_layernorm.weight", "the box below")
	b.press(kb.ArrowUp, kb.ArrowLeft, kb.ArrowLeft)
	require.Equal(b.t, first, b.evaluate(readout))
	b.press(kb.End)
	require.NotEqual(b.t, first, b.evaluate(readout))
	b.press(kb.Home, kb.Enter)
	require.Equal(b.t, strings.Fields(first)[0], b.evaluate(focusedRow))
	require.Equal(b.t, strings.Fields(first)[0], b.evaluate(`document.querySelector("tr:target th").textContent`))
	b.press(kb.Escape)
	require.Equal(b.t, first, b.evaluate(readout), "Escape leads back")
	b.press(kb.Tab)
	require.Equal(b.t, "figure0", b.evaluate(`document.activeElement.id`), "a treemap is one stop")

	before := b.evaluate(color)
	b.press(kb.ArrowRight)
	require.NotEqual(b.t, before, b.evaluate(color), "absmax")
	b.press(kb.Tab)
	require.Contains(b.t, b.evaluate(readout), "model.layers.0.input_layernorm.weight  std ")
	b.press(kb.ArrowRight, kb.ArrowRight, kb.ArrowDown, kb.ArrowUp, kb.ArrowUp, kb.ArrowDown)
	require.Contains(b.t, b.evaluate(readout), "model.layers.1.mlp.down_proj.weight  std ")
	b.press(kb.Enter)
	require.Equal(b.t, "model.layers.1.mlp.down_proj.weight", b.evaluate(focusedRow))
	require.Equal(b.t, "1", b.evaluate(`document.querySelectorAll("tr[aria-current]").length`))
	b.press(kb.Escape)
	require.Contains(b.t, b.evaluate(readout), "model.layers.1.mlp.down_proj.weight  std ")

	b.press(kb.Tab)
	require.Equal(b.t, "filter names", b.evaluate(focused), "a map is one stop")
	require.Equal(b.t, "true", b.evaluate(`document.getElementById("readout").hidden`))
	before = b.evaluate(shownNames)
	b.press(kb.Tab, kb.Enter)
	require.Equal(b.t, "ascending", b.evaluate(`document.querySelector("#tensors th").ariaSort`))
	b.press(kb.Enter)
	require.NotEqual(b.t, before, b.evaluate(shownNames))
	require.True(b.t, strings.HasSuffix(b.evaluate(shownNames), ",model.embed_tokens.weight,lm_head.weight"))
	b.filter("LM_")
	require.Equal(b.t, "lm_head.weight", b.evaluate(shownNames))
	require.Equal(b.t, "1 of 22", b.evaluate(`document.getElementById("found").textContent`))
	b.filter("layers.*.mlp.*_proj.")
	require.Equal(b.t, "6 of 22", b.evaluate(`document.getElementById("found").textContent`))
}

// requireWidths requires that windows of 400, 768 and 1280 pixels show every number of the tables except
// zeros, each with its label or below its header, and that the text in the boxes and the numbers of layers can be
// read.
func requireWidths(b *browser) {
	b.t.Helper()
	for _, width := range []int64{400, 768, 1280} {
		b.resize(width, 800, func() {
			require.Equal(b.t, strconv.FormatInt(width, 10), b.evaluate("innerWidth"))
			require.Equal(b.t, "true", b.evaluate(`document.documentElement.scrollWidth <= innerWidth`), "nothing is beyond the window")
			require.Empty(b.t, b.evaluate(`[...document.querySelectorAll(".facts dd, .rows td:not(.none, :empty), .rows tbody th")].filter((td) => {
				const { left, right, width } = td.getBoundingClientRect();
				return !width || left < 0 || right > innerWidth || td.scrollWidth > td.clientWidth + 1;
			}).map((td) => td.outerHTML).join()`))
			const boxes = `[...document.querySelectorAll(".sizes > *")].filter((box) => box.checkVisibility())`
			require.Equal(b.t, "true", b.evaluate(boxes+`.every((box) => parseFloat(getComputedStyle(box).fontSize) >= 11 && box.getBoundingClientRect().height >= (box.textContent ? 14 : 0))`))
			require.Equal(b.t, b.evaluate(`Math.min(1, document.querySelectorAll(".sizes").length)`),
				b.evaluate(`[...document.querySelectorAll(".sizes")].filter((map) => map.checkVisibility()).length`), "one treemap")
			require.Empty(b.t, b.evaluate(`[...document.querySelectorAll(".map thead")].flatMap((head) => {
				const numbers = [...head.querySelectorAll("span")].filter((span) => getComputedStyle(span).visibility === "visible").map((span) => {
					const range = document.createRange();
					range.selectNodeContents(span);
					return [span.textContent, range.getBoundingClientRect()];
				});
				return numbers.slice(1).filter(([, box], i) => box.left < numbers[i][1].right + 2).map(([text]) => text);
			}).join()`), "numbers of layers that touch the one before, of a window of %d pixels", width)
			if width == 400 {
				require.Empty(b.t, b.evaluate(`[...document.querySelectorAll(".rows td")].filter((td) => td.checkVisibility() && getComputedStyle(td, "::before").content === "none").map((td) => td.outerHTML).join()`), "a label")
				require.Equal(b.t, "0", b.evaluate(`[...document.querySelectorAll(".rows td.none, .rows td:empty")].filter((td) => td.checkVisibility()).length`), "zeros")
				require.Equal(b.t, "true", b.evaluate(`[...document.querySelectorAll(".summaries tr, .changes tr")].every((tr) => [...tr.querySelectorAll("td")].every((td) => !td.checkVisibility() || JSON.parse(getComputedStyle(td, "::before").content) === tr.closest("table").tHead.rows[0].cells[td.cellIndex].textContent.trim()))`), "the label is the header")
				return
			}
			require.Equal(b.t, "true", b.evaluate(`[...document.querySelectorAll(".rows tr")].every((tr) => getComputedStyle(tr).display === "table-row")`), "a table")
			require.Equal(b.t, "true", b.evaluate(`(() => {
				const table = document.querySelector("#tensors table");
				if (!table?.tBodies[0].rows.length) return true;
				window.scrollTo(0, 1e6);
				const header = table.tHead.rows[0].cells[0].getBoundingClientRect();
				return header.top >= 0 && header.bottom <= innerHeight || table.getBoundingClientRect().bottom < 60;
			})()`), "the header stays")
		})
	}
}

// TestManyInChromium: of 2,600 tensors the table lists 2,000, but the filter, the order by a column, links and
// cells reach the others, whose rows are those of a page that lists them.
func TestManyInChromium(t *testing.T) {
	b := startChromium(t)
	t.Chdir(t.TempDir())
	const all = 2600
	tensors := make(map[string]safetensors.Tensor)
	for i := range all {
		values := make([]float32, all-i)
		for k := range values {
			values[k] = float32((k*k)%97)/97 - float32(i%7)/7
		}
		tensors[fmt.Sprintf("layers.%d.w", i)] = must(safetensors.NewTensor(safetensors.F32, []int{1, all - i}, values))
	}
	require.NoError(t, safetensors.WriteFile("many.safetensors", tensors, nil))
	succeeds(t, "stats", "many.safetensors", "layers.2555", "layers.2500", "--html", "few.html")
	b.open("few.html")
	const row = `(() => { const row = document.querySelectorAll("#tensors tbody tr")[0]; return [...row.cells].map((cell) => cell.textContent + cell.className + (cell.querySelector(".zero")?.getAttribute("d") ?? "")).join("|") })()`
	b.filter("layers.2555.")
	want := b.evaluate(row)
	require.Contains(t, want, "|[1,45]|180 B")

	succeeds(t, "stats", "many.safetensors", "--html", "many.html")
	b.open("many.html")
	require.Equal(t, "2000", b.evaluate(`document.querySelectorAll("#tensors tbody tr").length`))
	require.Contains(t, b.evaluate(`document.getElementById("omitted").textContent`), "the filter and the order by a column find them")
	b.filter("layers.2555.")
	require.Equal(t, "1 of 2,600", b.evaluate(`document.getElementById("found").textContent`))
	require.Equal(t, want, b.evaluate(row))
	b.filter("layers.255")
	require.Equal(t, "layers.255.w,layers.2550.w,layers.2551.w,layers.2552.w,layers.2553.w,layers.2554.w,layers.2555.w,layers.2556.w,layers.2557.w,layers.2558.w,layers.2559.w", b.evaluate(shownNames))
	b.filter("")
	b.evaluate(`document.querySelectorAll("#tensors thead th")[3].click()`)
	b.evaluate(`document.querySelectorAll("#tensors thead th")[3].click()`)
	require.Equal(t, "layers.2599.w", b.evaluate(`document.querySelector("#tensors tbody th").textContent`), "the smallest of all")
	require.Equal(t, "2000", b.evaluate(`document.querySelectorAll("#tensors tbody tr").length`))

	b.open("few.html") // which differs from the next page in more than the fragment
	b.run(chromedp.Navigate("file://" + must(filepath.Abs("many.html")) + "#" + b.idOf("many.html", "layers.2555.w")))
	require.Equal(t, "layers.2555.w", b.evaluate(focusedRow), "a link to a row that the table leaves out")
	require.Equal(t, want, b.evaluate(row))
}

// idOf returns the ID of a tensor in a page.
func (b *browser) idOf(page, name string) string {
	b.t.Helper()
	b.open(page)
	b.filter(name)
	return b.evaluate(`document.querySelector("#tensors tbody tr").id`)
}

// TestExpertsInChromium: a cell of several tensors filters the table by their names, by click and by Enter.
func TestExpertsInChromium(t *testing.T) {
	b := startChromium(t)
	t.Chdir(t.TempDir())
	require.NoError(t, safetensors.WriteFile("moe.safetensors", decoder(12, 3, 8), nil))
	succeeds(t, "stats", "moe.safetensors", "--html", "moe.html")
	b.open("moe.html")
	const want = "model.layers.1.mlp.experts.0.up_proj.weight,model.layers.1.mlp.experts.1.up_proj.weight,model.layers.1.mlp.experts.2.up_proj.weight"
	const cell = `document.querySelector(".cell[data-filter='model.layers.1.mlp.experts.*.up_proj.weight']")`
	b.evaluate(cell + `.click()`)
	require.Equal(t, want, b.evaluate(shownNames), "and not layer 11")
	b.filter("")
	b.evaluate(cell + `.focus()`)
	b.press(kb.Enter)
	require.Equal(t, want, b.evaluate(shownNames))
	b.press(kb.Escape)
	require.Equal(t, "true", b.evaluate(cell+` === document.activeElement`))
}

// TestChangesInChromium: cells lead to their tensors, to equal ones too, which the table does not list, and a
// change of dtype is not equal.
func TestChangesInChromium(t *testing.T) {
	b := startChromium(t)
	t.Chdir(t.TempDir())
	tensors := decoder(12, 0, 8)
	require.NoError(t, safetensors.WriteFile("a.safetensors", tensors, nil))
	for name, x := range tensors {
		if strings.Contains(name, "q_proj") {
			values := must(safetensors.Append[float32](nil, x))
			for i := range values {
				values[i] *= 2
			}
			tensors[name] = must(must(safetensors.NewTensor(safetensors.F32, x.Shape(), values)).Convert(x.DType()))
		}
	}
	require.NoError(t, safetensors.WriteFile("b.safetensors", tensors, nil))
	runs(t, "diff", "a.safetensors", "b.safetensors", "--html", "diff.html")
	b.open("diff.html")
	require.Equal(t, "12 of 111 tensors differ, all q_proj; changed by 50.0 %.", b.evaluate(`document.querySelector(".verdict").textContent`))
	require.Equal(t, "12", b.evaluate(`document.querySelectorAll("#tensors tbody tr").length`))
	b.evaluate(`document.querySelector(".cell[aria-label^='model.layers.3.self_attn.q_proj.weight']").click()`)
	require.Equal(t, "model.layers.3.self_attn.q_proj.weight", b.evaluate(focusedRow))
	require.Equal(t, "50.0 %", b.evaluate(`document.activeElement.cells[4].textContent`))
	b.evaluate(`document.querySelector(".cell[aria-label^='model.layers.3.mlp.up_proj.weight']").click()`)
	require.Equal(t, "model.layers.3.mlp.up_proj.weight", b.evaluate(focusedRow))
	require.Equal(t, "=model.layers.3.mlp.up_proj.weightBF16 [24,8]same", b.evaluate(`document.activeElement.textContent`))
	b.filter("layers.3.self_attn")
	require.Equal(t, "4 of 111", b.evaluate(`document.getElementById("found").textContent`))
	b.filter("")
	require.Equal(t, "12", b.evaluate(`document.querySelectorAll("#tensors tbody tr").length`))
}

// TestZeroInChromium: a standard deviation of zero has a color of its own, which is not that of the least one.
func TestZeroInChromium(t *testing.T) {
	b := startChromium(t)
	t.Chdir(t.TempDir())
	tensors := make(map[string]safetensors.Tensor)
	for i, values := range [][]float32{{2, 2}, {1, 1.02}, {1, 3}} {
		tensors[fmt.Sprintf("h.%d.w", i)] = floats(t, []int{2}, values...)
	}
	require.NoError(t, safetensors.WriteFile("x.safetensors", tensors, nil))
	succeeds(t, "stats", "x.safetensors", "--html", "x.html")
	b.open("x.html")
	const painted = `[...document.querySelectorAll(".map .cell, .key .zero")].map((cell) => getComputedStyle(cell).backgroundImage.slice(0, 9)).join()`
	require.Equal(t, "repeating,repeating,none,none", b.evaluate(painted), "the key and the first cell")
	b.evaluate(`document.getElementById("figure1").click()`)
	require.Equal(t, "repeating,none,none,none", b.evaluate(painted), "absmax is not zero")
	require.Equal(t, "true", b.evaluate(`document.getElementById("scale1").checkVisibility() && document.getElementById("scale1").textContent.includes("log scale")`))
}

// press presses keys.
func (b *browser) press(keys ...string) {
	b.t.Helper()
	for _, key := range keys {
		b.run(chromedp.KeyEvent(key))
	}
}

// filter types a text into the filter, which it empties first.
func (b *browser) filter(text string) {
	b.t.Helper()
	b.evaluate(`document.getElementById("filter").focus()`)
	b.evaluate(`document.getElementById("filter").select()`)
	if text == "" {
		b.press(kb.Backspace)
		return
	}
	b.run(input.InsertText(text))
}

// requirePicture requires that a picture is what the browser shows, but for the edges of
// letters; -update makes it.
func requirePicture(b *browser, name string) {
	b.t.Helper()
	var shot []byte
	b.resize(960, 1445, func() { b.run(chromedp.CaptureScreenshot(&shot)) })
	got := must(png.Decode(bytes.NewReader(shot)))
	if *update {
		var small bytes.Buffer
		require.NoError(b.t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, fewColors(got)))
		require.NoError(b.t, os.WriteFile(name, small.Bytes(), 0o666))
	}
	want := must(png.Decode(bytes.NewReader(must(os.ReadFile(name)))))
	require.Equal(b.t, want.Bounds(), got.Bounds())
	others := 0
	for y := range want.Bounds().Dy() {
		for x := range want.Bounds().Dx() {
			r1, g1, b1, _ := got.At(x, y).RGBA()
			r2, g2, b2, _ := want.At(x, y).RGBA()
			if max(r1, r2)-min(r1, r2)+max(g1, g2)-min(g1, g2)+max(b1, b2)-min(b1, b2) > 0x8000 {
				others++
			}
		}
	}
	const most = 20 // of some 60 that a digit takes
	require.LessOrEqual(b.t, others, most, "pixels that differ; -run TestReportInChromium -update makes the picture")
}

// fewColors returns a picture with its most frequent colors only, which takes a third of the bytes.
func fewColors(picture image.Image) image.Image {
	count := make(map[color.RGBA]int)
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(picture.At(x, y)).(color.RGBA) }
	size := picture.Bounds()
	for y := range size.Dy() {
		for x := range size.Dx() {
			count[at(x, y)]++
		}
	}
	number := func(c color.RGBA) int { return int(c.R)<<16 | int(c.G)<<8 | int(c.B) }
	frequent := slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int {
		return cmp.Or(count[b]-count[a], number(a)-number(b))
	})
	var colors, more color.Palette // that differ in the upper three bits of a channel come first
	seen := make(map[int]bool)
	for _, c := range frequent {
		if group := number(c) & 0xe0e0e0; !seen[group] {
			seen[group] = true
			colors = append(colors, c)
		} else {
			more = append(more, c)
		}
	}
	colors = append(colors, more...)
	colors = colors[:min(len(colors), 256)]
	few := image.NewPaletted(size, colors)
	draw.Draw(few, size, picture, size.Min, draw.Src)
	return few
}

// A browser is a Chromium.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	requests int
	said     []string // on the console
}

func startChromium(t *testing.T) *browser {
	program := programOf(t, "SAFETENSORS_CHROMIUM")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU)...)
	t.Cleanup(cancel)
	b := &browser{t: t}
	b.ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	chromedp.ListenTarget(b.ctx, func(event any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := event.(type) {
		case *network.EventRequestWillBeSent:
			b.requests++
		case *runtime.EventExceptionThrown, *runtime.EventConsoleAPICalled, *log.EventEntryAdded:
			b.said = append(b.said, fmt.Sprintf("%T %+v", e, e))
		}
	})
	b.run(network.Enable())
	return b
}

func (b *browser) run(actions ...chromedp.Action) {
	b.t.Helper()
	require.NoError(b.t, chromedp.Run(b.ctx, actions...))
}

// resize gives the window another size for a while.
func (b *browser) resize(width, height int64, meanwhile func()) {
	b.t.Helper()
	b.run(emulation.SetDeviceMetricsOverride(width, height, 1, false))
	meanwhile()
	b.run(emulation.ClearDeviceMetricsOverride())
}

// open opens a page and requires that it loads nothing, and that the console stays empty.
func (b *browser) open(file string) {
	b.t.Helper()
	b.mu.Lock()
	b.requests = 0
	b.mu.Unlock()
	b.run(chromedp.Navigate("file://" + must(filepath.Abs(file))))
	b.evaluate("document.readyState")
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Empty(b.t, b.said)
	require.Equal(b.t, 1, b.requests)
}

// evaluate returns the value of an expression as a text.
func (b *browser) evaluate(expression string) (text string) {
	b.t.Helper()
	b.run(chromedp.Evaluate("String("+expression+")", &text))
	return text
}

// TestFootOfPages: the command line at the foot of a page can be pasted into a shell and holds no secrets of
// URLs; SOURCE_DATE_EPOCH is the date, so that the same page can be made again.
func TestFootOfPages(t *testing.T) {
	require.Equal(t, "safetensors stats model.safetensors "+term.Word("*.weight")+" --html page.html",
		commandLine([]string{"stats", "model.safetensors", "*.weight", "--html", "page.html"}))
	require.Equal(t, "safetensors diff "+term.Word("it's")+" "+term.Word("")+" https://host/m.safetensors s3://bucket/m",
		commandLine([]string{"diff", "it's", "", "https://user:secret@host/m.safetensors?X-Amz-Signature=secret", "s3://bucket/m"}))

	t.Chdir(t.TempDir())
	writeFiles(t, ".")
	t.Setenv("SOURCE_DATE_EPOCH", "1800000000")
	for _, args := range [][]string{{"stats", "a.safetensors"}, {"diff", "a.safetensors", "b.safetensors"}} {
		var pages []string
		for range 2 {
			runs(t, append(args, "--html", "page.html")...)
			pages = append(pages, string(must(os.ReadFile("page.html"))))
		}
		require.Equal(t, pages[0], pages[1])
		require.Contains(t, pages[0], "<time>2027-01-15 08:00 UTC</time>")
		require.Contains(t, pages[0], "<code>safetensors "+strings.Join(args, " ")+" --html page.html</code>")
		require.Contains(t, pages[0], "<p>safetensors "+version()+",")
	}
	for _, wrong := range []string{"soon", "-1", "253402300800", "9999999999999999999"} {
		t.Setenv("SOURCE_DATE_EPOCH", wrong)
		r := runs(t, "stats", "a.safetensors", "--html", "other.html")
		require.Equal(t, 1, r.code)
		require.Equal(t, "safetensors: SOURCE_DATE_EPOCH="+wrong+": expected seconds since 1970\n", r.stderr)
		require.NoFileExists(t, "other.html")
	}
	t.Setenv("SOURCE_DATE_EPOCH", "soon")
	succeeds(t, "stats", "a.safetensors") // which makes no page
	os.Unsetenv("SOURCE_DATE_EPOCH")
	succeeds(t, "stats", "a.safetensors", "--html", "page.html")
	require.Contains(t, string(must(os.ReadFile("page.html"))), "<time>"+time.Now().UTC().Format("2006-"))
}
