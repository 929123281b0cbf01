package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gosafetensors/safetensors"
	maruel "github.com/maruel/safetensors"
	nlpodyssey "github.com/nlpodyssey/safetensors"
	"github.com/stretchr/testify/require"
)

// fakeReader is a variable that makes this program a reader, which does what it says.
const fakeReader = "DIFFTEST_FAKE_READER"

// libraries parse a whole file and check what they check.
var libraries = map[string]func(file []byte) error{
	"this":       func(file []byte) error { _, err := safetensors.Parse(file); return err },
	"maruel":     func(file []byte) error { _, err := maruel.Parse(file); return err },
	"nlpodyssey": func(file []byte) error { _, err := nlpodyssey.Deserialize(file); return err },
}

func TestMain(m *testing.M) {
	does := os.Getenv(fakeReader)
	if library := libraries[does]; library != nil {
		file, err := os.ReadFile(os.Args[len(os.Args)-1])
		if err != nil {
			panic(err)
		}
		if library(file) != nil {
			os.Exit(1)
		}
		return
	}
	switch does {
	case "accepts":
	case "refuses":
		os.Exit(1)
	case "panics":
		panic("as it should")
	case "is killed":
		self, err := os.FindProcess(os.Getpid())
		fmt.Println(err, self.Kill())
		select {}
	case "hangs":
		time.Sleep(time.Hour)
	default:
		os.Exit(m.Run())
	}
}

// TestArbiter has readers judged that do the same with every file.
func TestArbiter(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	all, err := os.ReadFile("../testdata/cases.jsonl")
	require.NoError(t, err)
	accepted := regexp.MustCompile(`(?m)^.*"v01_minimal".*\n`).Find(all)
	rejected := regexp.MustCompile(`(?m)^.*"overlap_partial".*\n`).Find(all)
	for _, tt := range []struct {
		reader  string
		cases   []byte
		timeout time.Duration
		want    string // the end of the report
	}{
		{"this", all, time.Minute, "321 files, 0 wrong: accepts 0, refuses 0, crashes on 0, hangs on 0\n"},
		{"accepts", all, time.Minute, "321 files, 237 wrong: accepts 237, refuses 0, crashes on 0, hangs on 0\n"},
		{"refuses", all, time.Minute, "321 files, 84 wrong: accepts 0, refuses 84, crashes on 0, hangs on 0\n"},
		{"panics", rejected, time.Minute, "data has no holes and no overlaps: crashes on 1 of 1\n\toverlap_partial\n" +
			"1 files, 1 wrong: accepts 0, refuses 0, crashes on 1, hangs on 0\n"},
		{"is killed", rejected, time.Minute, "1 files, 1 wrong: accepts 0, refuses 0, crashes on 1, hangs on 0\n"},
		{"hangs", accepted, 10 * time.Millisecond, "a file that breaks no rule is read: hangs on 1 of 1\n\tv01_minimal\n" +
			"1 files, 1 wrong: accepts 0, refuses 0, crashes on 0, hangs on 1\n"},
	} {
		t.Run(tt.reader, func(t *testing.T) {
			t.Setenv(fakeReader, tt.reader)
			cases := filepath.Join(t.TempDir(), "cases.jsonl")
			require.NoError(t, os.WriteFile(cases, tt.cases, 0o666))
			var report bytes.Buffer
			err := (&reader{[]string{self, "an", "argument"}, tt.timeout}).run(&report, cases)
			require.Equal(t, tt.want, report.String()[max(0, report.Len()-len(tt.want)):])
			if tt.reader == "this" {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, errWrong)
			}
		})
	}

	err = (&reader{[]string{filepath.Join(t.TempDir(), "absent")}, time.Minute}).run(&bytes.Buffer{}, "../testdata/cases.jsonl")
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NotContains(t, err.Error(), "\n", "once")
}

// TestTheirCI runs the lines of testdata/README.md that the CI of another project would run, on this
// commit and with a reader beside the clone.
func TestTheirCI(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles this program in a clone")
	}
	text, err := os.ReadFile("../testdata/README.md")
	require.NoError(t, err)
	lines := regexp.MustCompile("(?s)```sh\n(git clone [^`]*)```").FindSubmatch(text)
	require.NotNil(t, lines)
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	script := strings.NewReplacer("https://github.com/gosafetensors/safetensors", root, "COMMIT", "HEAD", "python3 $PWD/check.py", "$PWD/check").
		Replace(string(lines[1]))
	folder := t.TempDir()
	program, err := os.ReadFile(self)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "check"), program, 0o777))
	t.Setenv(fakeReader, "this")
	shell := exec.Command("sh", "-ec", script)
	shell.Dir = folder
	report, err := shell.CombinedOutput()
	require.NoError(t, err, "%s", report)
	require.Contains(t, string(report), "321 files, 0 wrong: ")
}

// TestReadersTable checks that what testdata/README.md says of readers is possible: the files that one
// accepts are files that the reference refuses, and the files that it refuses are files that the
// reference reads.
func TestReadersTable(t *testing.T) {
	text, err := os.ReadFile("../testdata/README.md")
	require.NoError(t, err)
	vectors, err := loadVectors("../testdata/cases.jsonl")
	require.NoError(t, err)
	reference := make(map[string]string)
	all := make(map[string]int)
	for _, v := range vectors {
		reference[v.Name] = v.Reference
		all[v.Reference]++
	}
	rows := regexp.MustCompile(`(?m)^\| (.*) \| (\d+) \| (\d+) \| (\d+) \| (.*)\|$`).FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(rows), 3)
	for _, row := range rows {
		accepted, _ := strconv.Atoi(row[2])
		refused, _ := strconv.Atoi(row[3])
		require.LessOrEqual(t, accepted, all["reject"], row[1])
		require.LessOrEqual(t, refused, all["accept"], row[1])
		for _, example := range strings.Split(row[5], ";") {
			for _, name := range regexp.MustCompile("`(.*?)`").FindAllStringSubmatch(example, -1) {
				verdict := reference[name[1]]
				switch {
				case strings.Contains(example, "accepts"):
					require.Equal(t, "reject", verdict, "%s: %s", row[1], name[1])
				case strings.Contains(example, "refuses"):
					require.Equal(t, "accept", verdict, "%s: %s", row[1], name[1])
				default:
					require.NotEmpty(t, verdict, "%s: %s", row[1], name[1])
				}
			}
		}
	}
}

// TestRuleOf names the rule of one vector for each.
func TestRuleOf(t *testing.T) {
	vectors, err := loadVectors("../testdata/cases.jsonl")
	require.NoError(t, err)
	byName := make(map[string]vector)
	tried := make(map[string]int)
	for _, v := range vectors {
		byName[v.Name] = v
		tried[ruleOf(v)]++
		require.Equal(t, v.Want == "accept", ruleOf(v) == sound, v.Name)
	}
	names := []string{"n_1e8_plus1", "overlong_utf8", "bom", "depth_ignored_obj_126", "meta_nested", "dup_escaped_name", "dup_shape",
		"dtype_lower", "shape_1.0", "off_three", "f4_1", "hole", "m07_trailing_junk", "name_lone_low", "lead_space"}
	require.Len(t, names, len(rules))
	for i, r := range rules {
		require.Equal(t, r.name, ruleOf(byName[names[i]]), names[i])
		require.NotZero(t, tried[r.name])
	}
}

// TestComparison: the wrong verdicts in the README are those of the libraries. It prints
// what each gets wrong.
func TestComparison(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	row := regexp.MustCompile(`(?m)^\| wrong verdicts on the 321 files \| (\d+) \| (\d+) \| (\d+) \| (\d+) \(`).FindSubmatch(text)
	require.NotNil(t, row)
	self, err := os.Executable()
	require.NoError(t, err)
	for i, name := range []string{"this", "maruel", "nlpodyssey", "the Rust crate"} {
		t.Run(name, func(t *testing.T) {
			program := self
			if libraries[name] == nil {
				program = requireReference(t)
			}
			t.Setenv(fakeReader, name)
			var report strings.Builder
			if err := (&reader{[]string{program}, time.Minute}).run(&report, "../testdata/cases.jsonl"); err != nil {
				require.ErrorIs(t, err, errWrong)
			}
			t.Log(report.String())
			require.Contains(t, report.String(), fmt.Sprintf("321 files, %s wrong: ", row[i+1]))
		})
	}
}
