package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/dest"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/parts"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pattern"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/spf13/cobra"
)

// The exit codes.
const (
	exitOK          = 0
	exitFailed      = 1 // different, refused, or an error
	exitUsage       = 2
	exitRefused     = 3   // of a part: another try does not help
	exitInterrupted = 130 // 128 + SIGINT
)

// errDifferent ends a verb that has said what it found, with exitFailed.
var errDifferent = errors.New("different")

// A usageError is a command line that makes no sense.
type usageError struct{ error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// A command is one run of the program.
type command struct {
	ctx    context.Context
	opener *source.Opener
	out    *bufio.Writer // standard output
	stdout io.Writer     // the same, for data
	stderr io.Writer
	quiet  bool
	json   bool   // print a line of JSON
	values bool   // take quantised tensors as numbers
	page   string // to be drawn, "" for none
	begun  bool   // the command line was understood
}

// run runs the command line and returns the exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	c := &command{ctx: ctx, out: bufio.NewWriter(stdout), stdout: stdout, stderr: stderr}
	c.opener = &source.Opener{Session: storage.Session{Context: ctx}, Stdin: stdin, Note: func(text string) {
		fmt.Fprintf(stderr, "safetensors: note: %s\n", term.Clean(text))
	}}
	root := c.root()
	root.SetArgs(args)
	root.SetOut(c.out)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if flushed := c.out.Flush(); err == nil && flushed != nil {
		c.begun, err = true, flushed // nothing is wrong with the command line, of --help either
	}
	return c.exit(cmd, err)
}

// exit reports an error and returns the exit code of it.
func (c *command) exit(cmd *cobra.Command, err error) int {
	switch {
	case err == nil:
		return exitOK
	case c.ctx.Err() != nil:
		fmt.Fprintln(c.stderr, "safetensors: interrupted")
		return exitInterrupted
	case errors.Is(err, errDifferent):
		return exitFailed
	case !c.begun, errors.As(err, new(usageError)), errors.As(err, new(dest.UsageError)):
		fmt.Fprintf(c.stderr, "safetensors: %s\n%s --help shows the usage\n", term.Clean(err.Error()), cmd.CommandPath())
		return exitUsage
	}
	for line := range strings.SplitSeq(err.Error(), "\n") { // several errors, some of the library
		fmt.Fprintf(c.stderr, "safetensors: %s\n", term.Clean(strings.TrimPrefix(line, "safetensors: ")))
	}
	if errors.As(err, new(parts.Refusal)) {
		return exitRefused
	}
	return exitFailed
}

// helpWidth is how long the lines of the help may be, in characters.
const helpWidth = 90

// sources says in the help of a verb what SRC is, allSources all that it can be.
const sources = `
SRC is a file, a folder, an index, a URL or -: safetensors help sources has them all.`

const allSources = `SRC is a .safetensors file, a folder, an index of shards (*.index.json), https://...,
hf://OWNER/NAME[@REVISION][/FILE] (from the local cache if it is there), s3://...,
gs://..., azblob://..., file:///... or - for standard input. It may also be a NumPy
archive (.npz), a NumPy array (.npy), a PyTorch file (.pt, .pth, .bin, .ckpt; the pickle
is read, never executed) or a bintensors file (.bt), or a folder of a PyTorch job's
distributed checkpoint, whose pieces are joined.`

func (c *command) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "safetensors",
		Short:         "Look into safetensors files, check, compare, convert and copy them",
		Long:          "Look into safetensors files, check, compare, convert and copy them.\n\n" + allSources,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version(),
		RunE: func(cmd *cobra.Command, args []string) error {
			return usage("expected a command")
		},
	}
	root.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		var verbs []string
		for _, verb := range cmd.Commands() {
			verbs = append(verbs, verb.Name())
		}
		return usage("there is no command %q%s", args[0], pattern.Suggest(args[0], verbs))
	}
	root.Flags().Bool("version", false, "print the version")
	root.SetVersionTemplate("safetensors {{.Version}}\n")
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", fmt.Sprintf(".FlagUsagesWrapped %d", helpWidth)))
	root.PersistentFlags().BoolVarP(&c.quiet, "quiet", "q", false, "do not show progress")
	root.PersistentFlags().StringVar(&c.opener.Key, "key", "", "of a PyTorch file that holds several dicts of tensors, the `NAME` of one: state_dict, or optimizer.state.0")
	root.AddCommand(c.ls(), c.show(), c.stats(), c.diff(), c.check(), c.hash(), c.verify(), c.sign(), c.cp(), c.merge(), c.meta(), &cobra.Command{Use: "sources", Short: "What SRC can be", Long: allSources})
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "stats", "diff":
			cmd.Flags().StringVar(&c.page, "html", "", "write a `PAGE` for browsers too")
			fallthrough
		case "show":
			cmd.Flags().BoolVar(&c.values, "dequantize", false, "take quantised tensors as the numbers they stand for")
			fallthrough
		case "ls", "hash", "verify", "cp":
			cmd.Flags().StringVar(&c.opener.Variant, "variant", "", "of a folder, take the variant `NAME`: fp16 of x.fp16.safetensors next to x.safetensors")
			fallthrough
		case "check", "meta":
			cmd.Flags().BoolVar(&c.json, "json", false, "print a line of JSON")
		}
	}
	c.addCompletions(root)
	root.InitDefaultHelpCmd()
	help, _, _ := root.Find([]string{"help"})
	help.Args = func(_ *cobra.Command, args []string) error {
		if found, _, err := root.Find(args); err != nil || found != root {
			return err
		}
		return root.Args(root, args)
	}
	return root
}

// version returns the version that the command was installed as, (devel) of one that was
// built in a working copy.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

func (c *command) verb(use, short, long, examples string, args cobra.PositionalArgs, f func(args []string) error) *cobra.Command {
	return &cobra.Command{
		Use:                   use,
		Short:                 short,
		Long:                  strings.TrimSpace(short + ".\n\n" + strings.TrimSpace(long)),
		Example:               "  " + strings.ReplaceAll(strings.TrimSpace(examples), "\n", "\n  "),
		Args:                  args,
		DisableFlagsInUseLine: true,
		RunE: func(_ *cobra.Command, args []string) error {
			c.begun = true
			if err := c.checkPage(); err != nil {
				return err
			}
			return f(args)
		},
	}
}

// arguments checks that a verb has at least least arguments and at most most, unless that is
// negative. The error has their names, from the use of the verb.
func arguments(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if n := len(args); n >= least && (most < 0 || n <= most) {
			return nil
		}
		names := strings.Fields(cmd.Use)[1:]
		if flags := slices.IndexFunc(names, func(s string) bool { return strings.ContainsAny(s, "-|") || s == "[flags]" }); flags >= 0 {
			names = names[:flags]
		}
		return usage("expected %s, not %s", strings.Join(names, " "), term.Plural(len(args), "argument"))
	}
}

// stdinOnce refuses standard input for two of the sources, which all arguments are but DST: it can
// be read once only.
func stdinOnce(cmd *cobra.Command, sources []string) error {
	if strings.Contains(cmd.Use, " DST ") {
		sources = sources[:len(sources)-1]
	}
	if i := slices.Index(sources, "-"); i >= 0 && slices.Contains(sources[i+1:], "-") {
		return errors.New("- stands for standard input, which can be read once only")
	}
	return nil
}

// print prints what a verb found: as a line of JSON, or by a func.
func (c *command) print(found any, text func()) error {
	if c.json {
		return term.PrintJSON(c.out, found)
	}
	text()
	_, err := c.out.Write(nil) // which returns the error of any write before
	return err
}

// progress shows how much of total bytes is read, until stop is called.
func (c *command) progress(title string, total int64) (stop func()) {
	if c.quiet {
		return func() {}
	}
	before := c.opener.BytesRead()
	return term.Progress(c.stderr, title, total, func() int64 { return c.opener.BytesRead() - before })
}
