package source

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/checkpoint"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/variant"
)

// An advised is an error of the library whose text has other advice at its end.
type advised struct {
	text string
	err  error
}

func (e advised) Error() string { return e.text }
func (e advised) Unwrap() error { return e.err }

// A JSONFile is the error for a source that is a JSON file, such as config.json.
type JSONFile struct {
	Name   string // name of the source
	advice string // advice for the end of the error, about the folder if that holds a model
}

func (e *JSONFile) Error() string { return "this is a JSON file, which has no weights" + e.advice }

// Unwrap returns a FormatError with the text of e.
func (e *JSONFile) Unwrap() error { return &safetensors.FormatError{Offset: -1, Reason: e.Error()} }

// WithoutAdvice returns the error without the advice at its end.
func (e *JSONFile) WithoutAdvice() error { return &JSONFile{Name: e.Name} }

// jsonFile returns the error for a JSON file with this name in a folder.
func jsonFile(verb, name string, fsys *storage.FS) error {
	e := &JSONFile{Name: name}
	entries, err := fsys.Entries()
	if err == nil && slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return !e.IsDir() && isModel(e.Name()) }) {
		folder := filepath.Dir(name)
		if storage.IsURL(name) {
			folder = name[:strings.LastIndexByte(name, '/')]
		}
		e.advice = fmt.Sprintf(", did you mean %s?", onCommandLine(verb, folder))
		if line := onCommandLine(verb, folder); strings.Contains(line, " ") {
			e.advice = fmt.Sprintf(", did you mean \"%s\"?", line)
		}
	}
	return e
}

// onCommandLine returns the command line of a verb with the source of this name. Some verbs need further operands or
// flags, which onCommandLine does not know. For these verbs, it returns only the word for the source.
func onCommandLine(verb, name string) string {
	word := storage.Word(name)
	switch verb {
	case "diff", "merge", "verify":
		return word
	case "cp":
		word += " DST"
	case "show":
		word += " NAME"
	}
	return verb + " " + word
}

// howToName replaces the advice in the error for a folder with several files or models by how to name them on the command
// line of a verb. The advice to join files is given only if canJoin returns true for the texts with which their names begin
// and end.
func howToName(verb, folder string, canJoin func(begin, end string) bool, err error) error {
	below := func(name string) string { return strings.TrimRight(storage.Bare(folder), "/") + "/" + name }
	advise := func(format string, args ...any) error { return advised{fmt.Sprintf(format, args...), err} }
	if members := new(variant.Members); errors.As(err, &members) {
		reason := members.Err
		if at := new(fs.PathError); errors.As(reason, &at) {
			reason = at.Err
		}
		return advise("%v; name one of its models: %s", reason, onCommandLine(verb, below(members.Names[0])))
	}
	several := new(variant.Several)
	if !errors.As(err, &several) {
		return err
	}
	if storage.IsIndex(several.Names[0]) || storage.IsTorchIndex(several.Names[0]) || storage.IsURL(folder) { // each index is a whole model, and a shell cannot expand a pattern in a URL
		return advise("%s; name one: %s", several.Found(), onCommandLine(verb, below(several.Names[0])))
	}
	which, begin, end := "them", "", filepath.Ext(several.Names[0])
	if i := slices.IndexFunc(several.Names, isNumbered); i >= 0 && !slices.ContainsFunc(several.Names, storage.IsIndex) {
		shard, _ := variant.ParseShard(several.Names[i])
		which, begin, end = "those of one model", shard.Stem, "-of-"+shard.Count+shard.Ending
	}
	one, files := filepath.Join(folder, several.Names[0]), filesWord(folder, begin, end)
	joins := canJoin(begin, end)
	switch {
	case verb == "cp" && joins:
		return advise("%s; to join %s, name them: cp %s NEW", several.Found(), which, files)
	case slices.Contains([]string{"ls", "hash", "check"}, verb):
		text := fmt.Sprintf("%s; name %s: %s %s", several.Found(), which, verb, files)
		if joins {
			text += fmt.Sprintf("; or join them: cp %s NEW", files)
		}
		return advise("%s", text)
	case joins:
		return advise("%s; name one: %s; or join %s: cp %s NEW", several.Found(), onCommandLine(verb, one), which, files)
	}
	return advise("%s; name one: %s", several.Found(), onCommandLine(verb, one))
}

// canJoin reports whether cp joins the files of a folder whose names begin and end with these texts: no two of them have a
// tensor of the same name. It returns false if one of them cannot be opened. It also returns false for more than 100 files,
// because reading all headers would take long.
func canJoin(fsys *storage.FS, begin, end string) bool {
	const most = 100
	entries, err := fsys.Entries()
	if err != nil {
		return false
	}
	seen, opened := make(map[string]bool), 0
	for _, e := range entries {
		rest, begins := strings.CutPrefix(e.Name(), begin)
		if !begins || !strings.HasSuffix(rest, end) || strings.HasPrefix(e.Name(), ".") { // a shell leaves out hidden files
			continue
		}
		if opened++; opened > most {
			return false
		}
		f, err := checkpoint.Opener{Skip: func(string, error) {}}.OpenFS(fsys, e.Name())
		if err != nil {
			return false
		}
		joins := true
		for name := range f.Tensors() {
			joins, seen[name] = joins && !seen[name], true
		}
		f.Close()
		if !joins {
			return false
		}
	}
	return true
}

// filesWord returns a word of a command line, which a shell expands to the files of a folder whose names begin and end with
// these texts.
func filesWord(folder, begin, end string) string {
	word := strings.TrimSuffix(filepath.Join(folder, begin+"*"), "*")
	if word != "" {
		word = term.FileWord(word)
	}
	return word + "*" + end
}

// orFiles returns err, the error for a folder without a model. If the folder has files that are sources of their own, such as
// x.npz, or folders with models, and no weights in a format of models, orFiles returns an error that says how to name one of them.
func orFiles(verb, folder string, fsys *storage.FS, err error) error {
	entries, unlisted := fsys.Entries()
	if unlisted != nil {
		return err
	}
	var names []string
	for _, e := range entries {
		switch f := format.ByName(e.Name()); {
		case isModel(e.Name()), strings.HasSuffix(e.Name(), ".distcp"), variant.IsMetadata(e.Name()):
			return err
		case !e.IsDir() && f != nil && f.Open != nil:
			names = append(names, e.Name())
		}
	}
	found := variant.List(names, 5, term.Name)
	if len(names) == 0 && !storage.IsURL(folder) { // elsewhere, each folder would cost a request
		names = withModels(fsys, entries)
		found = "models in " + variant.List(names, 5, term.Name)
	}
	if len(names) == 0 {
		return err
	}
	first := storage.Bare(strings.TrimRight(folder, "/")) + "/" + names[0]
	return advised{fmt.Sprintf("no .safetensors file in it, but %s; name one: %s", found, onCommandLine(verb, first)), err}
}

// withModels returns the names of the folders among some entries in which a file is named as a model is. It looks into the
// folder snapshots, too, in which the cache of a hub has a folder for each revision of a model.
func withModels(fsys *storage.FS, entries []fs.DirEntry) (names []string) {
	const snapshots = "snapshots"
	left := 100 // folders to look into
	var look func(in string, entries []fs.DirEntry)
	look = func(in string, entries []fs.DirEntry) {
		for _, e := range entries {
			if !e.IsDir() || strings.HasPrefix(e.Name(), ".") || left == 0 {
				continue
			}
			left--
			name := path.Join(in, e.Name())
			below, _ := fsys.ReadDir(name)
			if slices.ContainsFunc(below, func(e fs.DirEntry) bool { return isModel(e.Name()) }) {
				names = append(names, name)
			} else if name == snapshots {
				look(snapshots, below)
			}
		}
	}
	look("", entries)
	return names
}

// isNumbered reports whether a file is a shard, judging by its name.
func isNumbered(name string) bool {
	_, ok := variant.ParseShard(name)
	return ok
}
