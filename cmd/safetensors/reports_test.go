package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// A reported is a case of testdata/reports, whose README.md describes the fields.
type reported struct {
	Name     string
	Commands []string
	Must     []condition
}

type condition struct {
	On         int
	Exit       any
	Stdout     string
	Stderr     string
	Says       string
	StdoutNot  string `json:"stdout_not"`
	StderrNot  string `json:"stderr_not"`
	StdoutJSON []any  `json:"stdout_json"`

	Tensors, Are  string
	JSON          string
	Key           any
	Is            any
	Matches       string
	Metadata      string
	OrNone        bool `json:"or_none"`
	There, Absent string
	Lacks, Text   string
	Either        [][]condition
}

// unpack writes the directory of a case from an archive.
func unpack(t *testing.T, data, name, dir string) {
	t.Helper()
	f := must(os.Open(data))
	defer f.Close()
	r := tar.NewReader(must(gzip.NewReader(f)))
	for {
		h, err := r.Next()
		if err == io.EOF {
			return
		}
		require.NoError(t, err)
		rel, ok := strings.CutPrefix(h.Name, "./"+name+"/")
		if !ok || h.Typeflag != tar.TypeReg {
			continue
		}
		path := filepath.Join(dir, filepath.FromSlash(rel))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
		require.NoError(t, os.WriteFile(path, must(io.ReadAll(r)), 0o666))
	}
}

// loaded opens a model as loaders in Python find it: a file, model.safetensors, or the files of the
// index. Shards without an index are not found.
func loaded(name string) (*safetensors.File, error) {
	info, err := os.Stat(name)
	if err != nil || !info.IsDir() {
		return safetensors.Open(name)
	}
	for _, file := range []string{"model.safetensors", "model.safetensors.index.json"} {
		if _, err := os.Stat(filepath.Join(name, file)); err == nil {
			return safetensors.Open(filepath.Join(name, file))
		}
	}
	return nil, fmt.Errorf("no loader finds a model in %s", name)
}

func sameTensors(a, b string) error {
	x, err := loaded(a)
	if err != nil {
		return err
	}
	defer x.Close()
	y, err := safetensors.Open(b)
	if err != nil {
		return err
	}
	defer y.Close()
	if x.Len() != y.Len() {
		return fmt.Errorf("%s has %d tensors, %s %d", a, x.Len(), b, y.Len())
	}
	for name, want := range y.Tensors() {
		got, err := x.Tensor(name)
		if err != nil {
			return err
		}
		if same, err := safetensors.Equal(got, want); !same || err != nil {
			return fmt.Errorf("tensor %q differs: %v", name, err)
		}
	}
	return nil
}

// valueAt returns the value in JSON at some keys.
func valueAt(text []byte, keys any) (any, error) {
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return nil, err
	}
	list, _ := keys.([]any)
	for _, key := range list {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%v is not in the JSON", keys)
		}
		v = m[fmt.Sprint(key)]
	}
	return v, nil
}

// check returns an error unless the condition holds after the commands, in the current directory.
func (c condition) check(results []result) error {
	var r result
	if c.On > 0 {
		r = results[c.On-1]
	}
	finds := func(pattern, text string) bool { return regexp.MustCompile("(?im)" + pattern).MatchString(text) }
	var errs []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format+"; it printed %s%s", append(args, r.stdout, r.stderr)...))
		}
	}
	switch want := c.Exit.(type) {
	case string:
		need(r.code != 0, "command %d succeeded", c.On)
	case float64:
		need(r.code == int(want), "command %d ended with %d", c.On, r.code)
	}
	need(finds(c.Stdout, r.stdout), "standard output lacks %q", c.Stdout)
	need(finds(c.Stderr, r.stderr), "standard error lacks %q", c.Stderr)
	need(finds(c.Says, r.stdout+r.stderr), "the output lacks %q", c.Says)
	need(c.StdoutNot == "" || !finds(c.StdoutNot, r.stdout), "standard output has %q", c.StdoutNot)
	need(c.StderrNot == "" || !finds(c.StderrNot, r.stderr), "standard error has %q", c.StderrNot)
	if c.StdoutJSON != nil {
		got, err := valueAt([]byte(r.stdout), c.StdoutJSON)
		need(err == nil && reflect.DeepEqual(got, c.Is), "%v is %v: %v", c.StdoutJSON, got, err)
	}
	if c.Tensors != "" {
		errs = append(errs, sameTensors(c.Tensors, c.Are))
	}
	if c.JSON != "" {
		text, err := os.ReadFile(c.JSON)
		errs = append(errs, err)
		got, err := valueAt(text, c.Key)
		if c.Matches != "" {
			need(err == nil && finds(c.Matches, fmt.Sprint(got)), "%v is %v: %v", c.Key, got, err)
		} else {
			need(err == nil && reflect.DeepEqual(got, c.Is), "%v is %v: %v", c.Key, got, err)
		}
	}
	if c.Metadata != "" {
		f, err := safetensors.Open(c.Metadata)
		if err != nil {
			return err
		}
		defer f.Close()
		got, ok := f.Metadata()[c.Key.(string)]
		need(c.OrNone && len(f.Metadata()) == 0 || ok && got == c.Is, "metadata %v is %q", c.Key, got)
	}
	exists := func(name string) bool { _, err := os.Stat(name); return err == nil }
	need(c.There == "" || exists(c.There), "%s is not there", c.There)
	need(c.Absent == "" || !exists(c.Absent), "%s is there", c.Absent)
	if c.Lacks != "" {
		text, err := os.ReadFile(c.Lacks)
		need(err == nil && !bytes.Contains(text, []byte(c.Text)), "%s has %q: %v", c.Lacks, c.Text, err)
	}
	if len(c.Either) > 0 {
		errs = append(errs, c.checkEither(results))
	}
	return errors.Join(errs...)
}

func (c condition) checkEither(results []result) error {
	var all []error
	for _, list := range c.Either {
		var errs []error
		for _, c := range list {
			errs = append(errs, c.check(results))
		}
		err := errors.Join(errs...)
		if err == nil {
			return nil
		}
		all = append(all, err)
	}
	return errors.Join(all...)
}

// TestReports runs what users reported, and proves that their conditions hold.
func TestReports(t *testing.T) {
	var reports []reported
	require.NoError(t, json.Unmarshal(must(os.ReadFile("testdata/reports/cases.json")), &reports))
	require.Len(t, reports, 13)
	data := must(filepath.Abs("testdata/reports/cases.tar.gz"))
	for _, r := range reports {
		t.Run(r.Name, func(t *testing.T) {
			dir := t.TempDir()
			unpack(t, data, r.Name, dir)
			t.Chdir(dir)
			var results []result
			for _, line := range r.Commands {
				args := strings.Fields(line)
				require.Equal(t, "st", args[0])
				results = append(results, runs(t, args[1:]...))
			}
			for _, c := range r.Must {
				require.NoError(t, c.check(results), "%+v", c)
			}
		})
	}
}
