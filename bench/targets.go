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
}

// Targets are the ratios to reach.
var Targets = []Target{
	{"parse", "llama-70B", "Rust safetensors", 6},
	{"parse", "llama-70B", "maruel", 20},
	{"parse", "DeepSeek-V3", "Rust safetensors", 6},
	{"parse", "DeepSeek-V3", "maruel", 20},
	{"open", "4 GiB", "maruel", 6},
	{"load", "warm", "os.ReadFile", 5},
	{"load", "cold", "Python safetensors", 2},
	{"convert", "F16 to F32, in cache", "limit: memmove", 0.9},
	{"convert", "BF16 to F32, in cache", "limit: memmove", 0.9},
	{"convert", "F8_E4M3 to F32, in cache", "limit: memmove", 0.45},
	{"convert", "F16 to F32, in memory", "limit: memmove", 0.75},
	{"convert", "BF16 to F32, in memory", "limit: memmove", 0.75},
	{"convert", "F8_E4M3 to F32, in memory", "limit: memmove", 0.45},
	{"convert", "F32 to F16, in memory", "limit: memmove", 0.75},
	{"convert", "F32 to BF16, in memory", "limit: memmove", 0.75},
	{"write", "returned, tmpfs", "Rust safetensors", 1.4},
	{"write", "returned, disk", "Rust safetensors", 1.4},
	{"write", "durable, disk", "Rust safetensors", 1.4},
	{"encode", "DeepSeek-V3", "maruel", 5},
	{"format", "gpt2", "Rust bintensors", 1},
	{"format", "llama-70B", "Rust bintensors", 1},
	{"format", "DeepSeek-V3", "Rust bintensors", 1},
	{"format", "1M tensors", "Rust bintensors", 1},
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
