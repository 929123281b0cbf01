package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"image/png"
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
	page = html.UnescapeString(page)
	require.Equal(t, len(shown.Tensors), strings.Count(page, `<tr id="t`))
	for _, x := range shown.Tensors {
		row := fmt.Sprintf(`<th scope="row">%s</th><td><i class="d\d"></i>%v</td><td>%s</td><td class="n size"[^\n]*?</td>`,
			regexp.QuoteMeta(term.Name(x["name"].(string))), x["dtype"], regexp.QuoteMeta(strings.ReplaceAll(fmt.Sprint(x["shape"]), " ", ",")))
		for _, key := range []string{"min", "max", "mean", "std", "zeros", "nan", "inf"} {
			digits := ""
			if number, ok := x[key].(float64); ok {
				digits = regexp.QuoteMeta(strconv.FormatFloat(number, 'g', -1, 64))
			}
			row += `<td class="n( alarm)?"><data value="` + digits + `">[^<]*</data></td>`
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
// console is silent, nothing is loaded, the figures are those of --json, and keys alone
// reach all of them.
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
	requireKeyboard(b)
	requireNarrow(b)
	t.Chdir(filepath.Join(repository, "testdata"))
	succeeds(t, "stats", "model.safetensors", "*.weight", "--html", page)
	b.open(page)
	requirePicture(b, "../doc/stats.png")

	t.Chdir(t.TempDir())
	writeFiles(t, ".")
	for _, args := range [][]string{
		{"stats", "hostile.safetensors"}, {"stats", "deep.safetensors"}, {"stats", "a.safetensors"},
		{"diff", "a.safetensors", "b.safetensors"}, {"diff", "a.safetensors", "a.safetensors"}, {"diff", "hostile.safetensors", "other.safetensors", "--meta"},
	} {
		runs(t, append(args, "--html", "page.html")...)
		b.open("page.html")
		requireNarrow(b)
	}
}

// requireKeyboard uses a page of model.safetensors without a mouse.
func requireKeyboard(b *browser) {
	b.t.Helper()
	const focused = `(document.activeElement.ariaLabel ?? document.activeElement.textContent)`
	const readout = `document.getElementById("readout").textContent`
	const color = `getComputedStyle(document.querySelector("td.cell")).backgroundColor`
	const names = `[...document.querySelectorAll("#tensors tbody tr:not([hidden]) th")].map((th) => th.textContent).join()`

	b.run(chromedp.KeyEvent(kb.Tab))
	require.Equal(b.t, "skip to the table", b.evaluate(focused))
	b.run(chromedp.KeyEvent(kb.Tab))
	require.Contains(b.t, b.evaluate(focused), "  BF16 [")
	require.Equal(b.t, b.evaluate(focused), b.evaluate(readout))
	b.run(chromedp.KeyEvent(kb.Enter))
	require.Equal(b.t, strings.Fields(b.evaluate(readout))[0], b.evaluate(`document.querySelector("tr:target th").textContent`))

	b.evaluate(`document.getElementById("figure0").focus()`)
	before := b.evaluate(color)
	b.run(chromedp.KeyEvent(kb.ArrowRight))
	require.NotEqual(b.t, before, b.evaluate(color), "absmax")
	b.run(chromedp.KeyEvent(kb.Tab))
	require.Contains(b.t, b.evaluate(readout), "model.layers.0.input_layernorm.weight  std ")
	for _, key := range []string{kb.ArrowRight, kb.ArrowRight, kb.ArrowDown, kb.ArrowUp, kb.ArrowUp, kb.ArrowDown} {
		b.run(chromedp.KeyEvent(key))
	}
	require.Contains(b.t, b.evaluate(readout), "model.layers.1.mlp.down_proj.weight  std ")

	b.run(chromedp.KeyEvent(kb.Tab))
	require.Equal(b.t, "filter names", b.evaluate(focused), "a map is one stop")
	require.Equal(b.t, "true", b.evaluate(`document.getElementById("readout").hidden`))
	before = b.evaluate(names)
	b.run(chromedp.KeyEvent(kb.Tab))
	b.run(chromedp.KeyEvent(kb.Enter))
	require.Equal(b.t, "ascending", b.evaluate(`document.querySelector("#tensors th").ariaSort`))
	b.run(chromedp.KeyEvent(kb.Enter))
	require.NotEqual(b.t, before, b.evaluate(names))
	require.True(b.t, strings.HasSuffix(b.evaluate(names), ",model.embed_tokens.weight,lm_head.weight"))
	b.evaluate(`document.getElementById("filter").focus()`)
	b.run(input.InsertText("LM_"))
	require.Equal(b.t, "lm_head.weight", b.evaluate(names))
}

// requireNarrow requires that 400 pixels show every number of the tables.
func requireNarrow(b *browser) {
	b.t.Helper()
	b.resize(400, 800, func() {
		require.Equal(b.t, "400", b.evaluate("innerWidth"))
		require.Equal(b.t, "0", b.evaluate(`[...document.querySelectorAll(".facts dd, .rows td:not(tr[hidden] *)")].filter((td) => {
			const { left, right, width } = td.getBoundingClientRect();
			return !width || left < 0 || right > innerWidth || td.scrollWidth > td.clientWidth + 1;
		}).length`))
	})
}

// requirePicture requires that a picture is what the browser shows, but for the edges of
// letters; -update makes it.
func requirePicture(b *browser, name string) {
	b.t.Helper()
	var shot []byte
	b.resize(960, 860, func() { b.run(chromedp.CaptureScreenshot(&shot)) })
	if *update {
		require.NoError(b.t, os.WriteFile(name, shot, 0o666))
	}
	got := must(png.Decode(bytes.NewReader(shot)))
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
