package main

import (
	"bytes"
	"cmp"
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
	require.NoError(t, compare(j, newGenerator(1, seeds), program, 2000))

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
