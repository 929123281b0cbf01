package bench

import (
	"cmp"
	"fmt"
	"strings"
)

// A Target is what this package wants to reach in a work: the time of another
// contestant divided by ours, in the same case, or a limit of its memory.
type Target struct {
	Work, Case string // Case is how the name of the case begins
	Than       string // the other contestant
	AtLeast    float64
	Memory     int64  // at most, instead of Than and AtLeast
	Bound      string // what bounds it, where it cannot be reached
}

// Targets are what to reach.
var Targets = []Target{
	{Work: "parse", Case: "llama-70B", Than: "Rust safetensors", AtLeast: 6,
		Bound: boundParse},
	{Work: "parse", Case: "llama-70B", Than: "maruel", AtLeast: 20},
	{Work: "parse", Case: "DeepSeek-V3", Than: "Rust safetensors", AtLeast: 6},
	{Work: "parse", Case: "DeepSeek-V3", Than: "maruel", AtLeast: 20},
	{Work: "parse", Case: "1M tensors", Memory: 100_000_000,
		Bound: "the private copy of the header, which the names are part of, has 99 MB"},
	{Work: "open", Case: "4 GiB", Than: "maruel", AtLeast: 6},
	{Work: "open", Case: "4 GiB", Memory: 2_000_000},
	{Work: "load", Case: "warm", Than: "os.ReadFile", AtLeast: 5,
		Bound: "parallel pread of the same bytes, the limits below, takes as long"},
	{Work: "load", Case: "cold", Than: "Python safetensors", AtLeast: 2,
		Bound: "the disk; past the page cache it would be faster, but leave the file cold for who reads it next"},
	{Work: "convert", Case: "F16 to F32, in cache", Than: "limit: memmove", AtLeast: 0.9,
		Bound: boundStores},
	{Work: "convert", Case: "BF16 to F32, in cache", Than: "limit: memmove", AtLeast: 0.9,
		Bound: boundStores},
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
	{Work: "worst", Case: "as many", Memory: 500_000_000},
	{Work: "worst", Case: "one ignored", Memory: 120_000_000},
	{Work: "format", Case: "gpt2", Than: "Rust bintensors", AtLeast: 1},
	{Work: "format", Case: "llama-70B", Than: "Rust bintensors", AtLeast: 1},
	{Work: "format", Case: "DeepSeek-V3", Than: "Rust bintensors", AtLeast: 1},
	{Work: "format", Case: "1M tensors", Than: "Rust bintensors", AtLeast: 1},
}

// boundParse: counted with valgrind --tool=callgrind, at the 2.95 GHz of the
// processor, for the 119 bytes of an entry.
const boundParse = "of the time, half is the scan, which needs 1050 instructions an entry and does 6 of them a cycle, " +
	"all that the processor can; the other half is the copy of the header, its UTF-8, the index of names and fresh memory"

const boundStores = "the limit clear below, the stores alone, takes more than memmove at this size"

// writeTargets lists which targets were reached.
func (b *Bench) writeTargets(md *strings.Builder) {
	md.WriteString("\n## Targets\n\nTheir time divided by ours, for a limit the share of it that is reached; or our memory.\n\n" +
		"| work | case | compared with | wanted | measured | |\n|---|---|---|--:|--:|---|\n")
	for _, t := range Targets {
		wanted, measured, reached := b.measured(t)
		if measured == "" {
			continue
		}
		verdict, than := "reached", cmp.Or(t.Than, "memory")
		if !reached {
			verdict = "missed"
			if t.Bound != "" {
				verdict += ": " + t.Bound
			}
		}
		fmt.Fprintf(md, "| %s | %s | %s | %s | %s | %s |\n", t.Work, t.Case, than, wanted, measured, verdict)
	}
}

// measured returns what was measured for a target, "" if nothing was.
func (b *Bench) measured(t Target) (wanted, measured string, reached bool) {
	for _, results := range b.of(t.Work) {
		ours := results[0]
		if !strings.HasPrefix(ours.Case, t.Case) || ours.Err != "" {
			continue
		}
		if t.Memory > 0 {
			return size(t.Memory), size(ours.Memory), 0 < ours.Memory && ours.Memory <= t.Memory
		}
		for _, r := range results {
			if r.Contestant == t.Than && r.Err == "" {
				ratio := r.Ratio(ours)
				return significant(t.AtLeast), significant(ratio), ratio >= t.AtLeast
			}
		}
	}
	return "", "", false
}
