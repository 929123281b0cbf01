package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/report"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/stretchr/testify/require"
)

// realFiles are the checkpoints of the repository.
func realFiles(t *testing.T) (files []string) {
	t.Helper()
	for _, pattern := range []string{"*.safetensors", "golden/*.safetensors", "tied/*.safetensors"} {
		found := must(filepath.Glob(filepath.Join(repository, "testdata", pattern)))
		files = append(files, found...)
	}
	require.Greater(t, len(files), 20)
	return files
}

var (
	tableRow  = regexp.MustCompile(`(?s)<tr id="t\d+">(.*?)</tr>`)
	tableCell = regexp.MustCompile(`(?s)<t[hd][^>]*>(.*?)</t[hd]>`)
	tableData = regexp.MustCompile(`<data value="([^"]*)">`)
	element   = regexp.MustCompile(`<[^>]*>`)
)

// tableOf returns the cells of the table of tensors: numbers with all their digits,
// histograms as the number of their bars.
func tableOf(page string) (rows [][]string) {
	for _, row := range tableRow.FindAllStringSubmatch(page, -1) {
		var cells []string
		for _, cell := range tableCell.FindAllStringSubmatch(row[1], -1) {
			text := html.UnescapeString(element.ReplaceAllString(cell[1], ""))
			if data := tableData.FindStringSubmatch(cell[1]); data != nil {
				text = html.UnescapeString(data[1])
			} else if strings.Contains(cell[1], "<svg") {
				text = fmt.Sprint(strings.Count(cell[1], "M"), " bars")
			}
			cells = append(cells, text)
		}
		rows = append(rows, cells)
	}
	return rows
}

// tableOfJSON returns the same of what stats --json prints.
func tableOfJSON(t *testing.T, printed string) (rows [][]string) {
	t.Helper()
	var report struct {
		Tensors []struct {
			Name, DType         string
			Shape               []int
			Min, Max, Mean, Std *float64
			Zeros, NaN, Inf     int64
			Histogram           struct{ Counts []int64 }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(printed), &report))
	number := func(x *float64) string {
		if x == nil {
			return ""
		}
		return strconv.FormatFloat(*x, 'g', -1, 64)
	}
	for _, x := range report.Tensors {
		bars := 0
		for _, n := range x.Histogram.Counts {
			if n > 0 {
				bars++
			}
		}
		rows = append(rows, []string{
			term.Name(x.Name), x.DType, term.Shape(x.Shape), number(x.Min), number(x.Max), number(x.Mean), number(x.Std),
			fmt.Sprint(x.Zeros), fmt.Sprint(x.NaN), fmt.Sprint(x.Inf), fmt.Sprint(bars, " bars"),
		})
	}
	return rows
}

// requireFigures requires that a page shows what stats --json prints, in its own order.
func requireFigures(t *testing.T, printed, page string) {
	t.Helper()
	want, got := tableOfJSON(t, printed), tableOf(page)
	for i := range got {
		got[i] = append(got[i][:3:3], got[i][4:]...) // without the size
	}
	require.ElementsMatch(t, want, got)
}

// TestReport requires that the figures in a page are those of --json.
func TestReport(t *testing.T) {
	page := filepath.Join(t.TempDir(), "report.html")
	for _, file := range realFiles(t) {
		printed := succeeds(t, "stats", file, "--json", "--html", page)
		require.Equal(t, succeeds(t, "stats", file, "--json"), printed)
		content := must(os.ReadFile(page))
		requireFigures(t, printed, string(content))
	}
}

func TestComparisonReport(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFiles(t, ".")
	r := runs(t, "diff", "a.safetensors", "b.safetensors", "--json", "--meta", "--html", "d.html")
	require.Equal(t, 1, r.code, r.stderr)
	var d report.Comparison
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &d))
	content := must(os.ReadFile("d.html"))
	page := html.UnescapeString(string(content))
	for _, name := range append(d.OnlyA, d.OnlyB...) {
		require.Contains(t, page, `<th scope="row">`+name+`</th>`)
	}
	for _, u := range d.Different {
		_, row, found := strings.Cut(page, "<td>≠</td><th scope=\"row\">"+u.Name+"</th>")
		require.True(t, found, u.Name)
		row, _, _ = strings.Cut(row, "</tr>")
		require.Contains(t, row, "<td>"+u.A.String()+"</td>")
		require.Contains(t, row, fmt.Sprintf(`<data value="%d">`, u.Elements))
	}
	// The norm of A-B is √(1e-6² + 1²), that of B √(0.1² + 0.2² + 1.1e-5² + 301²).
	require.Regexp(t, `<data value="0\.0033222\d*">0\.003322</data>`, page)
	require.Contains(t, page, `--share:0%"><data value="">–</data>`, "NaN in one of the two")

	require.Equal(t, "safetensors: --html a.safetensors: the name of the page has to end in .html\nsafetensors diff --help shows the usage\n",
		fails(t, 2, "diff", "a.safetensors", "b.safetensors", "--html", "a.safetensors"))
	require.Contains(t, fails(t, 1, "stats", "unread.safetensors", "--html", "absent/x.html"), "--html absent/x.html: ")
	require.NoError(t, os.Mkdir("x.html", 0o777))
	require.Contains(t, fails(t, 1, "stats", "a.safetensors", "--html", "x.html"), "is a directory")
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
	require.NotZero(t, b.opened)
}

// requireKeyboard uses a page of model.safetensors without a mouse.
func requireKeyboard(b *browser) {
	b.t.Helper()
	const focused = `(document.activeElement.ariaLabel ?? document.activeElement.textContent)`
	const readout = `document.getElementById("readout").textContent`
	const color = `getComputedStyle(document.querySelector("td.cell")).backgroundColor`
	const names = `[...document.querySelectorAll("#tensors tbody tr:not([hidden]) th")].map((th) => th.textContent).join()`

	b.press("Tab")
	require.Equal(b.t, "skip to the table", b.evaluate(focused))
	b.press("Tab")
	require.Contains(b.t, b.evaluate(focused), "  BF16 [")
	require.Equal(b.t, b.evaluate(focused), b.evaluate(readout))
	b.press("Enter")
	require.Equal(b.t, strings.Fields(b.evaluate(readout))[0], b.evaluate(`document.querySelector("tr:target th").textContent`))

	b.evaluate(`document.getElementById("figure0").focus()`)
	before := b.evaluate(color)
	b.press("ArrowRight")
	require.NotEqual(b.t, before, b.evaluate(color), "absmax")
	b.press("Tab")
	require.Contains(b.t, b.evaluate(readout), "model.layers.0.input_layernorm.weight  std ")
	for _, key := range []string{"ArrowRight", "ArrowRight", "ArrowDown", "ArrowUp", "ArrowUp", "ArrowDown"} {
		b.press(key)
	}
	require.Contains(b.t, b.evaluate(readout), "model.layers.1.mlp.down_proj.weight  std ")

	b.press("Tab")
	require.Equal(b.t, "filter names", b.evaluate(focused), "a map is one stop")
	require.Equal(b.t, "true", b.evaluate(`document.getElementById("readout").hidden`))
	before = b.evaluate(names)
	b.press("Tab")
	b.press("Enter")
	require.Equal(b.t, "ascending", b.evaluate(`document.querySelector("#tensors th").ariaSort`))
	b.press("Enter")
	require.NotEqual(b.t, before, b.evaluate(names))
	require.True(b.t, strings.HasSuffix(b.evaluate(names), ",model.embed_tokens.weight,lm_head.weight"))
	b.evaluate(`document.getElementById("filter").focus()`)
	b.call("Input.insertText", map[string]any{"text": "LM_"}, nil)
	require.Equal(b.t, "lm_head.weight", b.evaluate(names))
}

// requireNarrow requires that 400 pixels show every number of the tables.
func requireNarrow(b *browser) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": false}, nil)
	require.Equal(b.t, "400", b.evaluate("innerWidth"))
	require.Equal(b.t, "0", b.evaluate(`[...document.querySelectorAll(".facts dd, .rows td:not(tr[hidden] *)")].filter((td) => {
		const { left, right, width } = td.getBoundingClientRect();
		return !width || left < 0 || right > innerWidth || td.scrollWidth > td.clientWidth + 1;
	}).length`))
	b.call("Emulation.clearDeviceMetricsOverride", nil, nil)
}

// requirePicture requires that a picture is what the browser shows, but for the edges of
// letters; -update makes it.
func requirePicture(b *browser, name string) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": 960, "height": 860, "deviceScaleFactor": 1, "mobile": false}, nil)
	var shot struct{ Data []byte }
	b.call("Page.captureScreenshot", nil, &shot)
	b.call("Emulation.clearDeviceMetricsOverride", nil, nil)
	if *update {
		require.NoError(b.t, os.WriteFile(name, shot.Data, 0o666))
	}
	got := must(png.Decode(bytes.NewReader(shot.Data)))
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

// press presses a key.
func (b *browser) press(key string) {
	b.t.Helper()
	codes := map[string]int{"Tab": 9, "Enter": 13, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
	event := map[string]any{"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
	if key == "Enter" {
		event["text"] = "\r"
	}
	b.call("Input.dispatchKeyEvent", event, nil)
	event["type"] = "keyUp"
	delete(event, "text")
	b.call("Input.dispatchKeyEvent", event, nil)
}

// A browser is a Chromium that the DevTools protocol drives over two pipes, numbers 3
// and 4 of its files.
type browser struct {
	t       *testing.T
	write   *os.File
	pipe    *os.File
	read    *bufio.Reader // of the pipe
	id      int
	session string
	opened  int
	events  []message
}

type message struct {
	ID     int
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  json.RawMessage
}

func startChromium(t *testing.T) *browser {
	program := os.Getenv("SAFETENSORS_CHROMIUM")
	if program == "" {
		t.Skip("SAFETENSORS_CHROMIUM names no Chromium")
	}
	in, write, err := os.Pipe()
	require.NoError(t, err)
	read, out, err := os.Pipe()
	require.NoError(t, err)
	profile := must(os.MkdirTemp("", ""))
	t.Cleanup(func() { os.RemoveAll(profile) }) // t.TempDir would fail: processes of a browser that has ended may still write there
	cmd := exec.Command(program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe", "--user-data-dir="+profile)
	cmd.ExtraFiles = []*os.File{in, out}
	require.NoError(t, cmd.Start())
	in.Close()
	out.Close()
	b := &browser{t: t, write: write, pipe: read, read: bufio.NewReader(read)}
	t.Cleanup(func() {
		b.call("Browser.close", nil, nil)
		require.NoError(t, cmd.Wait())
	})
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.call(domain+".enable", nil, nil)
	}
	return b
}

// call calls a method and keeps the events that come before its result.
func (b *browser) call(method string, params, result any) {
	b.t.Helper()
	b.id++
	request := map[string]any{"id": b.id, "method": method}
	if params != nil {
		request["params"] = params
	}
	if b.session != "" && !strings.HasPrefix(method, "Browser.") {
		request["sessionId"] = b.session
	}
	text, err := json.Marshal(request)
	require.NoError(b.t, err)
	_, err = b.write.Write(append(text, 0))
	require.NoError(b.t, err)
	for {
		m := b.next()
		if m.ID != b.id {
			continue
		}
		require.Empty(b.t, string(m.Error), method)
		if result != nil {
			require.NoError(b.t, json.Unmarshal(m.Result, result))
		}
		return
	}
}

func (b *browser) next() (m message) {
	b.t.Helper()
	require.NoError(b.t, b.pipe.SetReadDeadline(time.Now().Add(2*time.Minute)))
	text, err := b.read.ReadBytes(0)
	require.NoError(b.t, err)
	require.NoError(b.t, json.Unmarshal(text[:len(text)-1], &m))
	if m.Method != "" {
		b.events = append(b.events, m)
	}
	return m
}

// open opens a page and requires that it loads nothing, and that the console stays empty.
func (b *browser) open(file string) {
	b.t.Helper()
	path, err := filepath.Abs(file)
	require.NoError(b.t, err)
	b.events = nil
	b.call("Page.navigate", map[string]any{"url": "file://" + path}, nil)
	loaded := func() bool {
		for _, e := range b.events {
			if e.Method == "Page.loadEventFired" {
				return true
			}
		}
		return false
	}
	for !loaded() {
		b.next()
	}
	b.evaluate("document.readyState")
	requests := 0
	for _, e := range b.events {
		switch e.Method {
		case "Network.requestWillBeSent":
			requests++
		case "Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded":
			require.Fail(b.t, e.Method, "%s", e.Params)
		}
	}
	require.Equal(b.t, 1, requests)
	b.opened++
}

// evaluate returns the value of an expression as a text.
func (b *browser) evaluate(expression string) string {
	b.t.Helper()
	var r struct {
		Result           struct{ Value any }
		ExceptionDetails any
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &r)
	require.Nil(b.t, r.ExceptionDetails, expression)
	return fmt.Sprint(r.Result.Value)
}
