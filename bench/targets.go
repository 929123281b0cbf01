package bench

import (
	"fmt"
	"strings"
)

// A Target is what this package wants to reach in a work: the time of another
// contestant divided by ours, in the same case.
type Target struct {
	Work, Case string // Case is how the name of the case begins
	Than       string // the other contestant
	AtLeast    float64
	Bound      string // what bounds it, where it cannot be reached
}

// Targets are the ratios to reach.
var Targets = []Target{
	{Work: "parse", Case: "llama-70B", Than: "Rust safetensors", AtLeast: 6},
	{Work: "parse", Case: "llama-70B", Than: "maruel", AtLeast: 20},
	{Work: "parse", Case: "DeepSeek-V3", Than: "Rust safetensors", AtLeast: 6},
	{Work: "parse", Case: "DeepSeek-V3", Than: "maruel", AtLeast: 20},
	{Work: "open", Case: "4 GiB", Than: "maruel", AtLeast: 6},
	{Work: "load", Case: "warm", Than: "os.ReadFile", AtLeast: 5,
		Bound: "reading into memory that is there already is no faster"},
	{Work: "load", Case: "cold", Than: "Python safetensors", AtLeast: 2,
		Bound: "the disk; even past the page cache it is not twice as fast"},
	{Work: "convert", Case: "F16 to F32, in cache", Than: "limit: memmove", AtLeast: 0.9,
		Bound: "stores alone, without reading anything, reach 0.88 of a memmove of as many bytes at this size"},
	{Work: "convert", Case: "BF16 to F32, in cache", Than: "limit: memmove", AtLeast: 0.9,
		Bound: "stores alone, without reading anything, reach 0.88 of a memmove of as many bytes at this size"},
	{Work: "convert", Case: "F8_E4M3 to F32, in cache", Than: "limit: memmove", AtLeast: 0.45},
	{Work: "convert", Case: "F16 to F32, in memory", Than: "limit: memmove", AtLeast: 0.75},
	{Work: "convert", Case: "BF16 to F32, in memory", Than: "limit: memmove", AtLeast: 0.75},
	{Work: "convert", Case: "F8_E4M3 to F32, in memory", Than: "limit: memmove", AtLeast: 0.45},
	{Work: "convert", Case: "F32 to F16, in memory", Than: "limit: memmove", AtLeast: 0.75},
	{Work: "convert", Case: "F32 to BF16, in memory", Than: "limit: memmove", AtLeast: 0.75},
	{Work: "write", Case: "returned, tmpfs", Than: "Rust safetensors", AtLeast: 1.4,
		Bound: "pwrite of the same bytes takes as long"},
	{Work: "write", Case: "returned, disk", Than: "Rust safetensors", AtLeast: 1.4,
		Bound: "pwrite of the same bytes takes as long"},
	{Work: "write", Case: "durable, disk", Than: "Rust safetensors", AtLeast: 1.4},
	{Work: "encode", Case: "DeepSeek-V3", Than: "maruel", AtLeast: 5},
	{Work: "format", Case: "gpt2", Than: "Rust bintensors", AtLeast: 1},
	{Work: "format", Case: "llama-70B", Than: "Rust bintensors", AtLeast: 1},
	{Work: "format", Case: "DeepSeek-V3", Than: "Rust bintensors", AtLeast: 1},
	{Work: "format", Case: "1M tensors", Than: "Rust bintensors", AtLeast: 1},
}

// writeTargets lists which targets were reached.
func (b *Bench) writeTargets(md *strings.Builder) {
	md.WriteString("\n## Targets\n\nTheir time divided by ours, for a limit the share of it that is reached.\n\n" +
		"| work | case | compared with | wanted | measured | |\n|---|---|---|--:|--:|---|\n")
	for _, t := range Targets {
		measured, ok := b.ratio(t)
		if !ok {
			continue
		}
		verdict := "reached"
		if measured < t.AtLeast {
			verdict = "missed"
			if t.Bound != "" {
				verdict += ": " + t.Bound
			}
		}
		fmt.Fprintf(md, "| %s | %s | %s | %s | %s | %s |\n",
			t.Work, t.Case, t.Than, significant(t.AtLeast), significant(measured), verdict)
	}
}

// ratio returns what was measured for a target.
func (b *Bench) ratio(t Target) (ratio float64, ok bool) {
	for _, results := range b.of(t.Work) {
		if !strings.HasPrefix(results[0].Case, t.Case) || results[0].Err != "" {
			continue
		}
		for _, r := range results {
			if r.Contestant == t.Than && r.Err == "" {
				return r.Median().Seconds() / results[0].Median().Seconds(), true
			}
		}
	}
	return 0, false
}
