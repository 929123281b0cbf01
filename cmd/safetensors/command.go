package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/dest"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/parts"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pattern"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/spf13/cobra"
)

// These are the exit codes.
const (
	exitOK          = 0
	exitFailed      = 1 // a difference, a refusal or an error
	exitUsage       = 2
	exitRefused     = 3   // with --part: the part failed, and another try cannot succeed
	exitInterrupted = 130 // 128 + SIGINT
)

// errDifferent ends a verb with exitFailed. The verb has already printed its findings.
var errDifferent = errors.New("different")

// A command is one run of the program.
type command struct {
	ctx    context.Context
	opener *source.Opener
	out    *bufio.Writer // standard output
	stdout io.Writer     // standard output without the buffer, for data
	stderr io.Writer
	quiet  bool
	json   bool                 // whether to print a line of JSON
	values bool                 // whether to use the numbers of quantised tensors
	page   string               // name of the page to draw, or ""
	args   []string             // the command line
	begun  bool                 // whether the command line was accepted
	noVerb error                // error for the verb of a command line that asks for help
	keyed  []*source.Checkpoint // sources for checkKey
	seams  seams
}

// interruptible returns a context that ends with the parent context, or with the first signal that asks the program to end. The
// program can then remove temporary files and abort uploads. A second SIGINT or SIGTERM ends the
// program at once.
//
// A terminal sends SIGHUP when it is closed. SIGHUP also ends the context, unless the program was
// started with SIGHUP ignored, as by nohup. A second SIGHUP has no effect, because the shell and
// the system each send one.
func interruptible(parent context.Context) (ctx context.Context, stop func()) {
	ctx, stopFirst := signal.NotifyContext(parent, os.Interrupt, syscall.SIGTERM)
	stop = stopFirst
	if !signal.Ignored(syscall.SIGHUP) {
		var stopHangup func()
		ctx, stopHangup = signal.NotifyContext(ctx, syscall.SIGHUP)
		stop = func() {
			stopHangup()
			stopFirst()
		}
	}
	context.AfterFunc(ctx, stopFirst)
	return ctx, stop
}

// exit prints an error and returns its exit code.
func (c *command) exit(cmd *cobra.Command, err error) int {
	switch {
	case err == nil:
		return exitOK
	case c.ctx.Err() != nil:
		fmt.Fprintln(c.stderr, "safetensors: interrupted")
		return exitInterrupted
	case errors.Is(err, errDifferent):
		return exitFailed
	case !c.begun, errors.As(err, new(usageError)), errors.As(err, new(dest.UsageError)), isEmptyPattern(err):
		c.printError(err)
		fmt.Fprintf(c.stderr, "%s --help shows the usage\n", cmd.CommandPath())
		return exitUsage
	}
	c.printError(err)
	if errors.As(err, new(parts.Refusal)) {
		return exitRefused
	}
	return exitFailed
}

// printError prints an error, each line of it with the name of the program.
func (c *command) printError(err error) {
	for line := range strings.SplitSeq(oneLined(err.Error(), err), "\n") { // there may be several errors, some of them from the library
		fmt.Fprintf(c.stderr, "safetensors: %s\n", term.Clean(strings.TrimPrefix(line, "safetensors: ")))
	}
}

// oneLined returns a text that contains the text of err, with the names of files quoted in which there is a newline: the name
// of a file cannot then pass for a line of the program.
func oneLined(text string, err error) string {
	if at, is := err.(*fs.PathError); is && strings.Contains(at.Path, "\n") {
		text = strings.ReplaceAll(text, at.Op+" "+at.Path, at.Op+" "+term.Name(at.Path))
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			text = oneLined(text, inner)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			text = oneLined(text, inner)
		}
	}
	return text
}

// isEmptyPattern reports whether an error is about an empty pattern that no tensor matches. This is an error of the command
// line, as for other empty values. But only the names of the tensors reveal it, because a name may be empty.
func isEmptyPattern(err error) bool {
	var none *pattern.NoMatch
	return errors.As(err, &none) && none.Glob.String() == ""
}

// sources describes SRC in the help of a verb; allSources has the complete description.
const sources = `
SRC is a file, a folder, an index, a URL or -; see: safetensors help sources`

// version returns the version of the installed command, or (devel) for a command that was built in
// a working copy.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// verb returns the command of a verb. Its func f runs after the arguments are checked.
func (c *command) verb(use, short, long, examples string, args cobra.PositionalArgs, f func(args []string) error) *cobra.Command {
	return &cobra.Command{
		Use:                   use,
		Short:                 short,
		Long:                  strings.TrimSpace(short + ".\n\n" + strings.TrimSpace(long)),
		Example:               "  " + strings.ReplaceAll(strings.TrimSpace(examples), "\n", "\n  "),
		Args:                  args,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			c.begun = true
			c.opener.Verb = cmd.Name()
			if err := checkValues(cmd.Flags()); err != nil {
				return err
			}
			if err := c.checkPage(); err != nil {
				return err
			}
			return f(args)
		},
	}
}

// keyOfSome makes --key optional for each of several sources, for a verb that opens them one after another. The verb calls
// keep with each source, and checkKey at its end.
func (c *command) keyOfSome(names []string) { c.opener.KeyOfSome = len(names) > 1 }

// keep keeps a source for checkKey. The source may be closed before that.
func (c *command) keep(src *source.Checkpoint) {
	if c.opener.KeyOfSome && c.opener.Key != "" {
		c.keyed = append(c.keyed, src)
	}
}

// checkKey returns an error if none of several sources has the dict of --key. It notes those that were read without it.
func (c *command) checkKey() error {
	if len(c.keyed) == 0 {
		return nil
	}
	return c.opener.CheckKey(c.keyed...)
}

// arguments returns a check that a verb has at least least arguments, and at most most unless most
// is negative, and that the first one is not empty. The error contains the names of the arguments,
// from the use of the verb, and an argument that a flag has taken as its value.
func arguments(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if n := len(args); n >= least && (most < 0 || n <= most) {
			if n > 0 && args[0] == "" { // for example from a variable of the shell that is not set
				return usage("the first argument is empty: expected the name of a file or a folder, or a URL")
			}
			return nil
		}
		names := strings.Fields(cmd.Use)[1:]
		if flags := slices.IndexFunc(names, func(s string) bool { return strings.ContainsAny(s, "-|") || s == "[flags]" }); flags >= 0 {
			names = names[:flags]
		}
		got := term.Plural(len(args), "argument")
		if len(args) == 0 {
			got = "nothing"
		}
		if len(args) < least {
			got += takenBy(cmd)
		}
		return usage("expected %s, got %s", strings.Join(names, " "), got)
	}
}

// stdinOnce returns an error if standard input is named twice, because it can be read only once.
// All arguments except DST are sources.
func stdinOnce(cmd *cobra.Command, sources []string) error {
	if strings.Contains(cmd.Use, " DST ") {
		sources = sources[:len(sources)-1]
	}
	if i := slices.Index(sources, "-"); i >= 0 && slices.Contains(sources[i+1:], "-") {
		return errors.New("- stands for standard input, which can be read once only")
	}
	return nil
}

// print prints the findings of a verb: as a line of JSON with --json, and otherwise by calling
// text.
func (c *command) print(found any, text func()) error {
	if c.json {
		return term.PrintJSON(c.out, found)
	}
	text()
	_, err := c.out.Write(nil) // returns the error of any earlier write
	return err
}

// progress shows how many of total bytes are read, until stop is called.
func (c *command) progress(title string, total int64) (stop func()) {
	before := c.opener.BytesRead()
	read := func() int64 { return c.opener.BytesRead() - before }
	end := func() {}
	if !c.quiet {
		end = term.Progress(c.stderr, title, total, read)
	}
	return func() {
		end()
		if c.seams.progressed != nil {
			c.seams.progressed(title, total, read())
		}
	}
}

func (c *command) printMetadata(metadata map[string]string) {
	if len(metadata) == 0 {
		return
	}
	columns := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(columns, "METADATA\n")
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		fmt.Fprintf(columns, "%s\t%s\n", term.Name(key), term.Quote(metadata[key], term.ValueLimit))
	}
	columns.Flush()
}
