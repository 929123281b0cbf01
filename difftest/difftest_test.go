package main

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestDifferences compares a few candidates with the reference. It is skipped where
// cargo cannot build that, unless DIFFTEST_REQUIRE is 1.
func TestDifferences(t *testing.T) {
	program := requireReference(t)
	seeds, err := loadSeeds("../testdata/cases.jsonl")
	require.NoError(t, err)
	j := make(judge)
	require.NoError(t, compare(j, newGenerator(1, seeds).candidates(2000), program))

	require.Greater(t, j[acceptedByBoth], 500, "too few are accepted to show anything")
	require.Greater(t, j[rejectedByBoth], 500, "too few are rejected to show anything")
	for _, r := range policy {
		require.Positive(t, j[byPolicy+r.name], "no candidate breaks the rule: %s", r.name)
	}
}

func requireReference(t *testing.T) (program string) {
	t.Helper()
	required := os.Getenv("DIFFTEST_REQUIRE") == "1"
	if _, err := exec.LookPath("cargo"); err != nil && !required {
		t.Skip("no cargo")
	}
	program, err := build()
	if err != nil && !required {
		t.Skip(err)
	}
	require.NoError(t, err)
	return program
}

// TestJudge checks that differences are found, with answers made up for a file.
func TestJudge(t *testing.T) {
	const text = `{"__metadata__":{"k":"v"},"a":{"dtype":"U8","shape":[1,2],"data_offsets":[0,2]}}`
	file := slices.Concat([]byte{byte(len(text)), 0, 0, 0, 0, 0, 0, 0}, []byte(text), []byte("xy"))
	agreeing := func() answer {
		return answer{
			Verdict:   accepted,
			Tensors:   map[string]entry{"a": {safetensors.U8, []uint64{1, 2}, [2]uint64{0, 2}}},
			Metadata:  map[string]string{"k": "v"},
			rewritten: bytes.Clone(file),
		}
	}
	require.Zero(t, len(text)%8, "Write would pad the header")
	for _, tt := range []struct {
		name, want string
		change     func(a *answer, t *entry)
	}{
		{"none", "", func(a *answer, t *entry) {}},
		{"verdict", "Parse accepts what the reference rejects", func(a *answer, t *entry) { a.Verdict = rejected }},
		{"verdict on the size", "Parse accepts what the reference rejects", func(a *answer, t *entry) { a.Verdict = wrongSize }},
		{"dtype", "the reference has", func(a *answer, t *entry) { t.DType = safetensors.I8 }},
		{"shape", "the reference has", func(a *answer, t *entry) { t.Shape = []uint64{2} }},
		{"data offsets", "the reference has", func(a *answer, t *entry) { t.DataOffsets[1]++ }},
		{"metadata", "the reference has", func(a *answer, t *entry) { a.Metadata["k"] = "w" }},
		{"rewritten", "what Write writes", func(a *answer, t *entry) { a.rewritten[len(file)-1]++ }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ref := agreeing()
			tensor := ref.Tensors["a"]
			tt.change(&ref, &tensor)
			ref.Tensors["a"] = tensor
			err := make(judge).judge(file, ref)
			if tt.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tt.want)
			}
		})
	}
}

// TestPolicy compares the policy with the table of rules in doc/decisions.md: it has
// the same rules, and next to each the vectors that only this rule rejects.
func TestPolicy(t *testing.T) {
	text, err := os.ReadFile("../doc/decisions.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(text), "\n| rule | vectors |\n|---|---|\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")

	vectors, err := loadVectors("../testdata/cases.jsonl")
	require.NoError(t, err)
	rejects := make(map[string][]string) // vectors by rule
	for _, v := range vectors {
		if v.Reference == "accept" && v.Want == "reject" {
			_, err := safetensors.Parse(v.File)
			text, _ := headerText(v.File)
			h, jsonErr := parseJSON(text)
			require.NoError(t, jsonErr, v.Name)
			rule, different := compareVerdicts("Parse", v.File, err, true, h)
			require.NoError(t, different, v.Name)
			rejects[rule] = append(rejects[rule], "`"+v.Name+"`")
		}
	}
	var rows []string
	for _, r := range policy {
		vectors := cmp.Or(strings.Join(rejects[byPolicy+r.name], ", "), "none; `TestHeaderErrors` has such a file")
		rows = append(rows, "| "+r.name+" | "+vectors+" |")
	}
	require.Equal(t, strings.Join(rows, "\n"), table)
}

// TestSmallFiles compares all files of at most two members with the reference. The counts of
// those with three are checked by the command, and here their sum: no file gets lost from the
// enumeration.
func TestSmallFiles(t *testing.T) {
	n := 0
	for range smallFiles(maxSmall) {
		n++
	}
	require.Equal(t, smallCounts[maxSmall].files(), n)
	require.Greater(t, len(smallMembers), 100)
	require.GreaterOrEqual(t, len(smallFields), 25)
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(smallMembers))), len(smallMembers))
	for _, counts := range smallCounts {
		require.Len(t, counts, 2+len(policy), "each verdict and each rule of the policy has files")
	}

	requireReference(t)
	var report strings.Builder
	require.NoError(t, runAll(&report, 2))
	require.Contains(t, report.String(), "49696 files, all with at most 2 members in ")
	require.Equal(t, 49_696, smallCounts[2].files())
}

// TestSmallCounts: a count that differs, is missing or is new is an error that names it.
func TestSmallCounts(t *testing.T) {
	require.NoError(t, requireCounts(maps.Clone(smallCounts[2]), 2))
	for what, count := range smallCounts[2] {
		counts := maps.Clone(smallCounts[2])
		counts[what]--
		require.ErrorContains(t, requireCounts(counts, 2), fmt.Sprintf("%d are %s, not %d", count-1, what, count))
		delete(counts, what)
		require.ErrorContains(t, requireCounts(counts, 2), fmt.Sprintf("0 are %s, not %d", what, count))
	}
	counts := maps.Clone(smallCounts[2])
	counts["new"] = 1
	require.ErrorContains(t, requireCounts(counts, 2), "1 are new, not 0")
}

// TestSmallFilesAreDocumented: doc/testing.md has the counts.
func TestSmallFilesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../doc/testing.md")
	require.NoError(t, err)
	document := strings.ReplaceAll(string(text), ",", "")
	for what, count := range smallCounts[maxSmall] {
		require.Contains(t, document, fmt.Sprintf("\n| %s | %d |\n", strings.ReplaceAll(what, ",", ""), count))
	}
	require.Contains(t, document, fmt.Sprintf("| headers | %d files |", smallCounts[maxSmall].files()))
}

// TestBatches: every candidate is in one batch, in order, and an early end stops them.
func TestBatches(t *testing.T) {
	for n := range 7 {
		var got [][]byte
		for batch := range batches(slices.Values([][]byte{{0}, {1}, {2}, {3}, {4}, {5}}[:min(n, 6)]), 3) {
			require.LessOrEqual(t, len(batch), 3)
			got = append(got, batch...)
		}
		require.Len(t, got, min(n, 6))
		for i, file := range got {
			require.Equal(t, []byte{byte(i)}, file)
		}
	}
	for range batches(smallFiles(maxSmall), 2) {
		break
	}
}
