package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pattern"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// otherFlags maps flags of other programs to those that do the same here.
var otherFlags = map[string]string{
	"f": "force", "overwrite": "force", "include": "only", "filter": "only", "exclude": "except", "ignore": "except",
	"precision": "dtype", "shard-size": "max-shard-size", "tolerance": "rtol", "head": "slice", "range": "slice", "j": "json",
	"i": "in-place", "S": "sort", "unset": "delete", "remove": "delete", "rm": "delete", "r": "", "R": "",
	"t": "tensors", "y": "force", "yes": "force", "recursive": "", "grep": "only", "match": "only", "pattern": "only", "L": "depth",
	"max-depth": "depth", "cast": "dtype", "to": "dtype", "shard": "max-shard-size", "split": "max-shard-size", "adapter": "lora",
	"keep": "only", "select": "only", "drop": "except", "skip": "except", "metadata": "meta", "no-meta": "without-meta", "no-metadata": "without-meta",
	"deep": "values", "full": "values",
}

// otherWays maps a verb and a flag that it does not have to advice: how to do the same without a flag.
var otherWays = map[string]string{
	"cp dry-run": "; ls SRC lists what would be copied, also with --only and --except",
	"cp n":       keepsFiles, "cp no-clobber": keepsFiles, "merge n": keepsFiles, "merge no-clobber": keepsFiles,
	"cp a": copiesFiles, "cp archive": copiesFiles, "cp resume": goesOn, "cp resume-download": goesOn, "cp continue": goesOn,
	"diff brief":   "; the exit code says whether they differ: diff A B >/dev/null",
	"meta dry-run": "; nothing is written without --in-place", "meta n": "; nothing is written without --in-place",
	"meta get": "; meta SRC prints all keys",
	"meta set": "; write KEY=VALUE without a flag", "meta add": "; write KEY=VALUE without a flag",
	"hash c": comparesSums, "hash check": comparesSums,
	"show only": "; the NAME of a tensor follows SRC, without a flag", "show all": "; --json prints all elements",
	"merge slerp": "; write --method slerp", "merge task": "; write --method task", "merge t": "; the numbers of slerp are --weights 1-T,T",
	"stats o": writesPage, "stats out": writesPage, "stats output": writesPage,
	"diff o": writesPage, "diff out": writesPage, "diff output": writesPage,
	"cp half": "; write --dtype f16", "cp fp16": "; write --dtype f16", "cp bf16": "; write --dtype bf16", "cp fp32": "; write --dtype f32",
}

// everyWay maps a flag that no verb has to advice, as otherWays does for one verb.
var everyWay = map[string]string{
	"revision": "; the revision is a part of the URL: hf://OWNER/NAME@REVISION",
	"token":    "; the token of the hub is read from HF_TOKEN",
	"jq":       "; --json prints JSON, which a pipe leads to jq",
	"progress": showsProgress, "verbose": showsProgress,
}

// flagValues maps flags to the values that they accept, with an example, for the error of a flag without its value.
var flagValues = map[string]string{
	"dequantize": "bf16, f16 or f32, as in --dequantize bf16",
	"dtype":      "a dtype such as bf16, f16 or f32, as in --dtype bf16",
	"quantize":   "fp8-block, fp8-channel, nvfp4, mxfp4, int4 or int8, as in --quantize fp8-block",
	"method":     "linear, slerp or task, as in --method slerp",
	"only":       "a PATTERN of names, as in --only '*norm*'",
	"except":     "a PATTERN of names, as in --except '*norm*'",
	"rename":     "s/REGEXP/REPLACEMENT/, as in --rename 's/^module\\.//'",
	"part":       "K/N, as in --part 1/4",
	"meta":       "KEY=VALUE, as in --meta format=pt",
	"hub":        "OWNER/NAME[@REVISION], as in --hub openai-community/gpt2",

	"max-shard-size": "a SIZE, as in --max-shard-size 5GB",
}

// destinations are flags of other programs whose value is the last argument here.
var destinations = []string{"o", "out", "output", "outfile", "output-dir", "dst", "dest", "local-dir"}

const (
	keepsFiles  = "; nothing is replaced without --force"
	copiesFiles = "; --with-files also copies the small files next to the weights"

	goesOn        = "; the same command goes on where it ended"
	comparesSums  = "; safetensors verify compares with sums"
	writesPage    = "; --html PAGE writes a page, and > FILE redirects the text"
	showsProgress = "; progress is shown without a flag"
)

// flagError returns the error of package pflag in the words of this program, with the flag that was
// meant. line is the command line.
func flagError(cmd *cobra.Command, err error, line []string) error {
	if !cmd.HasParent() { // a word before the flag is not a verb: package cobra would have found it
		if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
			return err
		}
	}
	var missing *pflag.ValueRequiredError
	var invalid *pflag.InvalidValueError
	var noFlag *pflag.InvalidSyntaxError
	switch {
	case errors.As(err, &missing):
		kind, _ := pflag.UnquoteUsage(missing.GetFlag())
		name := missing.GetFlag().Name
		return usage("--%s needs a value: %s", name, cmp.Or(flagValues[name], kind))
	case errors.As(err, &invalid):
		return usage("--%s: %w", invalid.GetFlag().Name, wrongValue(invalid))
	case errors.As(err, &noFlag):
		return usage("%s is not a flag", noFlag.GetSpecifiedFlag())
	}
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	name := unknown.GetSpecifiedName()
	if rest := unknown.GetSpecifiedShortnames(); rest != "" {
		return usage("unknown flag: %s", suggestLetter(cmd, name, rest, line))
	}
	if verb := verbWith(cmd, name, line); verb != "" {
		return usage("%w: it follows the verb, as in safetensors %s --%s", err, verb, name)
	}
	return usage("%w%s", err, suggestFlag(cmd, name))
}

// wrongValue returns the error for the value of a flag that cannot be parsed, without the name of the flag.
func wrongValue(invalid *pflag.InvalidValueError) error {
	switch invalid.GetFlag().Value.Type() {
	case "bool":
		return fmt.Errorf("expected no value, got %q", invalid.GetValue())
	case "int":
		return fmt.Errorf("expected a whole number, got %q", invalid.GetValue())
	case "float64":
		return fmt.Errorf("expected a number, got %q", invalid.GetValue())
	}
	return fmt.Errorf("%w, got %q", invalid.Unwrap(), invalid.GetValue())
}

// A single is the value of a flag that may be given once. It counts how often it is given.
type single struct {
	pflag.Value
	given int
}

func (s *single) Set(text string) error {
	s.given++
	return s.Value.Set(text)
}

// limitValues makes checkValues refuse a second value of a flag, which would replace the first. Flags with
// several values, and flags without a value, may be repeated; the help says so of the former.
func limitValues(f *pflag.Flag) {
	_, several := f.Value.(pflag.SliceValue)
	switch {
	case several:
		f.Usage += "; may be repeated"
	case f.NoOptDefVal == "":
		f.Value = &single{Value: f.Value}
	}
}

// valuesOf returns the values of a flag.
func valuesOf(f *pflag.Flag) []string {
	if several, ok := f.Value.(pflag.SliceValue); ok {
		return several.GetSlice()
	}
	return []string{f.Value.String()}
}

// checkValues returns an error if the value of a flag is empty, as when a variable of a shell is not
// set, or if a flag with a single value is given twice. Names of tensors and keys of metadata may be
// empty.
func checkValues(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		kind, _ := pflag.UnquoteUsage(f)
		if s, ok := f.Value.(*single); ok && s.given > 1 {
			err = usage("--%s is given twice", f.Name)
		} else if slices.Contains(valuesOf(f), "") && kind != "PATTERN" && kind != "KEY" {
			err = usage("--%s: its value is empty", f.Name)
		}
	})
	return err
}

// verbWith returns a verb that has a flag, if cmd is the program itself: preferably a verb in the
// command line. Otherwise it returns "".
func verbWith(cmd *cobra.Command, name string, line []string) (found string) {
	if cmd.HasParent() {
		return ""
	}
	for _, verb := range verbsWith(cmd, name) {
		if found == "" || slices.Contains(line, verb) {
			found = verb
		}
	}
	return found
}

// verbsWith returns the sorted verbs of the program that have a flag.
func verbsWith(program *cobra.Command, name string) (verbs []string) {
	for _, verb := range program.Commands() {
		if verb.Flags().Lookup(name) != nil {
			verbs = append(verbs, verb.Name())
		}
	}
	return verbs
}

// suggestLetter returns the word with an unknown flag of one letter, followed by a suggestion. Package
// pflag reads a word such as -xvf letter by letter: letter is the first unknown one, and rest is the
// end of the word from there on. If the whole word is the name of a flag after a single dash, as in
// programs that use package flag, suggestLetter suggests that flag.
func suggestLetter(cmd *cobra.Command, letter, rest string, line []string) string {
	word := "-" + rest
	for _, arg := range line {
		if strings.HasPrefix(arg, "-") && !strings.HasPrefix(arg, "--") && strings.HasSuffix(arg, rest) {
			word = arg
			break
		}
	}
	name, _, _ := strings.Cut(word[1:], "=")
	switch lower := strings.ToLower(letter); {
	case len(name) > 1 && cmd.Flags().Lookup(name) != nil:
		return fmt.Sprintf("%s, did you mean \"--%s\"?", word, name)
	case len(name) > 1 && verbWith(cmd, name, line) != "":
		return fmt.Sprintf("%s, did you mean \"safetensors %s --%s\"?", word, verbWith(cmd, name, line), name)
	case cmd.Name() == "ls" && strings.Trim(name, "laAh1") == "":
		return word + "; ls shows everything without a flag"
	case letter != lower && cmd.Flags().ShorthandLookup(lower) != nil && otherFlags[letter] == "":
		return fmt.Sprintf("%s, did you mean \"-%s\"?", word, lower)
	}
	return word + suggestFlag(cmd, letter)
}

// suggestFlag returns a question or advice after the name of a flag that a verb does not have.
func suggestFlag(cmd *cobra.Command, name string) string {
	if way, ok := otherWays[cmd.Name()+" "+name]; ok {
		return way
	}
	if way, ok := everyWay[name]; ok {
		return way
	}
	if slices.Contains(destinations, name) {
		switch {
		case cmd.Flags().Lookup("out") != nil:
			return ", did you mean \"--out\"?"
		case strings.Contains(cmd.Use, " DST"):
			return "; the destination is the last argument"
		}
	}
	if meant, ok := otherFlags[name]; ok {
		switch {
		case cmd.Flags().Lookup(meant) != nil:
			return fmt.Sprintf(", did you mean \"--%s\"?", meant)
		case strings.EqualFold(name, "r") || name == "recursive":
			return "; a folder needs no flag"
		}
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if len(name) < 2 {
		return ""
	}
	begin := slices.DeleteFunc(slices.Clone(names), func(known string) bool { return !strings.HasPrefix(known, name) })
	near := pattern.Nearest(name, names)
	if len(begin) == 1 && len(name) > 2 { // the user has cut the name short
		near = begin[0]
	}
	switch {
	case near != "":
		return fmt.Sprintf(", did you mean \"--%s\"?", near)
	case !cmd.HasParent():
		return ""
	}
	if verbs := verbsWith(cmd.Parent(), name); len(verbs) > 0 {
		return fmt.Sprintf("; it is a flag of %s", strings.Join(verbs, ", "))
	}
	return ""
}

// takenBy returns a text about the first flag that has the name of a file as its value, although it
// does not expect one: its own value was left out. It returns "" if there is none.
func takenBy(cmd *cobra.Command) (text string) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		kind, _ := pflag.UnquoteUsage(f)
		for _, value := range valuesOf(f) {
			if _, err := os.Stat(value); err == nil && text == "" && slices.Contains([]string{"DTYPE", "PATTERN", "SCHEME", "SIZE", "RANGES", "ORDER"}, kind) {
				text = fmt.Sprintf("; --%s has taken %s as its %s", f.Name, term.Name(value), kind)
			}
		}
	})
	return text
}

// A usageError reports an invalid command line.
type usageError struct{ error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// looksLikeSource reports whether a word is a URL, or the name of a file that exists or has the ending
// of a format that is read.
func looksLikeSource(word string) bool {
	f := format.ByName(word)
	_, err := os.Stat(word)
	return err == nil || storage.IsURL(word) || f != nil && f.Open != nil || f == format.Safetensors
}

// otherSource returns an error if a word that no tensor matches looks like a second source of a verb
// that takes one.
func otherSource(verb, word string) error {
	if !looksLikeSource(word) {
		return nil
	}
	return usage("%s takes one SRC, and %s is another file; diff compares two", verb, storage.Shown(word))
}
