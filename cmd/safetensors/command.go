package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/dest"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/parts"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pattern"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
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

// A usageError reports an invalid command line.
type usageError struct{ error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// A command is one run of the program.
type command struct {
	ctx    context.Context
	opener *source.Opener
	out    *bufio.Writer // standard output
	stdout io.Writer     // standard output without the buffer, for data
	stderr io.Writer
	quiet  bool
	json   bool     // whether to print a line of JSON
	values bool     // whether to use the numbers of quantised tensors
	page   string   // name of the page to draw, or ""
	args   []string // the command line
	begun  bool     // whether the command line was accepted
}

// run executes a command line and returns the exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return runThrough(nil, args, stdin, stdout, stderr)
}

// runThrough is like run, but also sets the field Through of the storage.Session. Tests use it to
// inject faults into file systems.
func runThrough(through func(fs.FS) fs.FS, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := interruptible()
	defer stop()
	c := &command{ctx: ctx, args: args, out: bufio.NewWriter(stdout), stdout: stdout, stderr: stderr}
	c.opener = &source.Opener{Session: storage.Session{Context: ctx, Through: through}, Stdin: stdin, Note: func(text string) {
		fmt.Fprintf(stderr, "safetensors: note: %s\n", term.Clean(text))
	}}
	root := c.root()
	root.SetArgs(args)
	root.SetOut(c.out)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if flushed := c.out.Flush(); err == nil && flushed != nil {
		c.begun, err = true, flushed // a failed write is not an error of the command line, even for --help
	}
	return c.exit(cmd, err)
}

// interruptible returns a context that ends with the first signal that asks the program to end. The
// program can then remove temporary files and abort uploads. A second SIGINT or SIGTERM ends the
// program at once.
//
// A terminal sends SIGHUP when it is closed. SIGHUP also ends the context, unless the program was
// started with SIGHUP ignored, as by nohup. A second SIGHUP has no effect, because the shell and
// the system each send one.
func interruptible() (ctx context.Context, stop func()) {
	ctx, stopFirst := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
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
	case !c.begun, errors.As(err, new(usageError)), errors.As(err, new(dest.UsageError)):
		fmt.Fprintf(c.stderr, "safetensors: %s\n%s --help shows the usage\n", term.Clean(err.Error()), cmd.CommandPath())
		return exitUsage
	}
	for line := range strings.SplitSeq(err.Error(), "\n") { // there may be several errors, some of them from the library
		fmt.Fprintf(c.stderr, "safetensors: %s\n", term.Clean(strings.TrimPrefix(line, "safetensors: ")))
	}
	if errors.As(err, new(parts.Refusal)) {
		return exitRefused
	}
	return exitFailed
}

// helpWidth is the largest width of the help in characters.
const helpWidth = 90

// sources describes SRC in the help of a verb; allSources has the complete description.
const sources = `
SRC is a file, a folder, an index, a URL or -; see: safetensors help sources`

const allSources = `SRC is one of these:
  a file     .safetensors; .pt, .pth, .bin or .ckpt of PyTorch, whose pickle is read,
             never executed; .npz or .npy of NumPy; .bt of bintensors
  an index   *.safetensors.index.json or *.bin.index.json: its shards are one model
  a folder   one model: a file or shards of safetensors or, without these, of PyTorch;
             or what the ranks of a PyTorch job wrote, whose pieces are joined: a
             distributed checkpoint (.metadata, *.distcp), files such as
             model_world_size_8_rank_3.pt
  a URL      https://..., s3://..., gs://..., azblob://..., file:///...,
             hf://OWNER/NAME[@REVISION][/FILE] (from the local cache if it is there)
  -          standard input

cp and merge write files, folders and buckets (s3://, gs://, azblob://). For the hub,
write a folder; then: hf upload OWNER/NAME FOLDER`

func (c *command) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "safetensors",
		Short:         "Look into safetensors files, check, compare, convert and copy them",
		Long:          "Look into safetensors files, check, compare, convert and copy them.\n\n" + allSources,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version(),
		RunE:          func(cmd *cobra.Command, args []string) error { return cmd.Help() },
	}
	root.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		var verbs []string
		for _, verb := range cmd.Commands() {
			verbs = append(verbs, verb.Name())
		}
		return usage("there is no command %q%s", args[0], suggestVerb(args[0], verbs))
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return flagError(cmd, err, c.args) })
	root.Flags().BoolP("version", "v", false, "print the version")
	root.SetVersionTemplate("safetensors {{.Version}}\n")
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", fmt.Sprintf(".FlagUsagesWrapped %d", helpWidth)))
	root.PersistentFlags().BoolVarP(&c.quiet, "quiet", "q", false, "do not show progress")
	root.PersistentFlags().StringVar(&c.opener.Key, "key", "", "read the dict `NAME` of a PyTorch file that has several: state_dict, or optimizer.state.0")
	root.AddCommand(c.ls(), c.show(), c.stats(), c.diff(), c.check(), c.hash(), c.verify(), c.sign(), c.cp(), c.merge(), c.meta(), &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs, DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(c.out, "safetensors %s\n", version())
			return err
		},
	}, &cobra.Command{Use: "sources", Short: "What SRC can be", Long: allSources})
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "stats", "diff":
			cmd.Flags().StringVar(&c.page, "html", "", "also write a `PAGE` for browsers, a file that ends in .html")
			fallthrough
		case "show":
			cmd.Flags().BoolVar(&c.values, "dequantize", false, "read quantised tensors as the numbers that they stand for")
			fallthrough
		case "ls", "hash", "verify", "cp":
			cmd.Flags().StringVar(&c.opener.Variant, "variant", "", "read the variant `NAME` of a folder: fp16 is x.fp16.safetensors next to x.safetensors")
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

// otherVerbs maps names of verbs in other programs to a verb here, and the flag that is needed.
var otherVerbs = map[string]string{
	"info": "ls", "list": "ls", "inspect": "ls", "header": "ls", "keys": "ls", "names": "ls", "size": "ls", "tree": "ls --tree",
	"print": "show", "cat": "show", "head": "show", "dump": "show", "describe": "stats", "histogram": "stats", "plot": "stats --html PAGE",
	"compare": "diff", "validate": "check", "lint": "check", "scan": "check", "sum": "hash", "sha256": "hash", "checksum": "hash",
	"download": "cp", "upload": "cp", "get": "cp", "pull": "cp", "push": "cp", "copy": "cp", "convert": "cp", "join": "cp", "consolidate": "cp",
	"cast": "cp --dtype DTYPE", "split": "cp --max-shard-size SIZE", "shard": "cp --max-shard-size SIZE", "extract": "cp --only PATTERN",
	"prune": "cp --except PATTERN", "rename": "cp --rename s/REGEXP/REPLACEMENT/", "quantize": "cp --quantize SCHEME",
	"quantise": "cp --quantize SCHEME", "dequantize": "cp --dequantize DTYPE", "dequantise": "cp --dequantize DTYPE",
	"lora": "merge --lora ADAPTER", "average": "merge", "metadata": "meta",
}

// suggestVerb returns a question with a verb, to be printed after a word that is not a verb: the
// verb with the same purpose, or ls for the name of a file, or the verb with the most similar
// spelling. It returns "" if there is none.
func suggestVerb(word string, verbs []string) string {
	if verb, known := otherVerbs[word]; known {
		return fmt.Sprintf(", did you mean %q?", verb)
	}
	_, err := os.Stat(word)
	if f := format.ByName(word); err == nil || storage.IsURL(word) || f != nil && f.Open != nil || f == format.Safetensors {
		return fmt.Sprintf(", did you mean \"ls %s\"?", storage.Shown(word))
	}
	return pattern.Suggest(word, verbs)
}

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
		RunE: func(_ *cobra.Command, args []string) error {
			c.begun = true
			if err := c.checkPage(); err != nil {
				return err
			}
			return f(args)
		},
	}
}

// arguments returns a check that a verb has at least least arguments, and at most most unless most
// is negative. The error contains the names of the arguments, from the use of the verb, and an
// argument that a flag has taken as its value.
func arguments(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if n := len(args); n >= least && (most < 0 || n <= most) {
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
	if c.quiet {
		return func() {}
	}
	before := c.opener.BytesRead()
	return term.Progress(c.stderr, title, total, func() int64 { return c.opener.BytesRead() - before })
}
