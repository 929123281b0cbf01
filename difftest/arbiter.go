package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/parallel"
)

// A reader is a program that gets the name of a file as its last argument. It exits with
// 0 if it accepts the file, with 1 if it refuses it.
type reader struct {
	command []string
	timeout time.Duration
}

// An outcome is what a reader does with a file.
type outcome string

const (
	accepts outcome = "accepts"
	refuses outcome = "refuses"
	crashes outcome = "crashes on" // any other exit status, or a signal
	hangs   outcome = "hangs on"   // was stopped when the time for a file was over
)

// read returns an error if the program cannot be run at all.
func (r *reader) read(file string) (outcome, error) {
	ctx, cancel := context.WithTimeout(context.Background(), r.timeout)
	defer cancel()
	arguments := append(r.command[1:len(r.command):len(r.command)], file)
	err := exec.CommandContext(ctx, r.command[0], arguments...).Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return accepts, nil
	case ctx.Err() != nil:
		return hangs, nil
	case !errors.As(err, &exit):
		return "", err
	case exit.ExitCode() == 1:
		return refuses, nil
	}
	return crashes, nil
}

// readAll has the reader judge all vectors, as many at once as there are processors.
func (r *reader) readAll(vectors []vector) ([]outcome, error) {
	folder, err := os.MkdirTemp("", "difftest")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	outcomes := make([]outcome, len(vectors))
	return outcomes, parallel.Do(runtime.NumCPU(), int64(len(vectors)), func(i int64) error {
		// Some names differ only in case, which is one file on some systems.
		file := filepath.Join(folder, fmt.Sprintf("%d-%s.safetensors", i, vectors[i].Name))
		err := os.WriteFile(file, vectors[i].File, 0o666)
		if err == nil {
			outcomes[i], err = r.read(file)
		}
		return err
	})
}

// rules are those of the format, by what this package says of a file that breaks one. The
// first that matches counts.
var rules = []struct {
	name   string
	reason *regexp.Regexp // what FormatError.Reason says of it
}{
	{"the header length is at most 100,000,000 and ends within the file", regexp.MustCompile(`^file of|^header length`)},
	{"the header is valid UTF-8", regexp.MustCompile(`not valid UTF-8$`)},
	{"the header is one object, between white space", regexp.MustCompile(`^expected (an object,|the end of) the header`)},
	{"objects and arrays are nested at most 127 levels deep", regexp.MustCompile(`nested deeper`)},
	{"the metadata are an object of strings, and there once", regexp.MustCompile(`metadata`)},
	{"tensor names are unique, however they are escaped", regexp.MustCompile(`^duplicate tensor name`)},
	{"an entry is an object with a dtype, a shape and data offsets, each once", regexp.MustCompile(`the entry|^duplicate field`)},
	{"a dtype is one of the strings that the format knows", regexp.MustCompile(`dtype`)},
	{"a shape is an array of integers of at most 63 bits", regexp.MustCompile(`a dimension|the shape`)},
	{"data offsets are two integers of at most 63 bits", regexp.MustCompile(`a data offset|the data offsets|^expected '[],]',`)},
	{"data offsets hold exactly the elements, which are whole bytes", regexp.MustCompile(`^data offsets .* (hold|end before)|whole bytes|overflows`)},
	{"data has no holes and no overlaps", regexp.MustCompile(`the tensors before it end at`)},
	{"the data buffer ends with the last tensor", regexp.MustCompile(`the data buffer`)},
	{"names, values and punctuation are JSON", regexp.MustCompile(`.`)},
	{sound, nil},
}

// sound is the rule of files that must be accepted.
const sound = "a file that breaks no rule is read"

// ruleOf returns the rule that a vector tries.
func ruleOf(v vector) string {
	_, err := safetensors.Parse(v.File)
	var broken *safetensors.FormatError
	if v.Want == "reject" && errors.As(err, &broken) {
		for _, r := range rules {
			if r.reason.MatchString(broken.Reason) {
				return r.name
			}
		}
	}
	return sound
}

// errWrong is the error of run for a reader that is wrong.
var errWrong = errors.New("the reader and testdata/cases.jsonl disagree")

// run has the reader judge the vectors of a file. It writes what is wrong to w, by rule, and
// then the counts.
func (r *reader) run(w io.Writer, cases string) error {
	vectors, err := loadVectors(cases)
	if err != nil {
		return err
	}
	outcomes, err := r.readAll(vectors)
	if err != nil {
		return err
	}
	type mistake struct {
		rule string
		outcome
	}
	tried, names, counts := make(map[string]int), make(map[mistake][]string), make(map[outcome]int)
	wanted := map[string]outcome{"accept": accepts, "reject": refuses}
	for i, v := range vectors {
		m := mistake{ruleOf(v), outcomes[i]}
		tried[m.rule]++
		if m.outcome != wanted[v.Want] {
			names[m] = append(names[m], v.Name)
			counts[m.outcome]++
		}
	}
	for _, rule := range rules {
		for _, o := range []outcome{accepts, refuses, crashes, hangs} {
			if found := names[mistake{rule.name, o}]; found != nil {
				fmt.Fprintf(w, "%s: %v %d of %d\n\t%s\n", rule.name, o, len(found), tried[rule.name], strings.Join(found, " "))
			}
		}
	}
	wrong := counts[accepts] + counts[refuses] + counts[crashes] + counts[hangs]
	fmt.Fprintf(w, "%d files, %d wrong: accepts %d, refuses %d, crashes on %d, hangs on %d\n",
		len(vectors), wrong, counts[accepts], counts[refuses], counts[crashes], counts[hangs])
	if wrong > 0 {
		return errWrong
	}
	return nil
}
