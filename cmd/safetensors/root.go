package main

import (
	"fmt"
	"strings"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pattern"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/spf13/cobra"
)

// helpWidth is the largest width of the help in characters.
const helpWidth = 90

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

// verbs returns the funcs that build the verbs, by the names of the verbs.
func (c *command) verbs() map[string]func() *cobra.Command {
	return map[string]func() *cobra.Command{
		"ls": c.ls, "show": c.show, "stats": c.stats, "diff": c.diff, "check": c.check, "hash": c.hash, "verify": c.verify,
		"sign": c.sign, "cp": c.cp, "merge": c.merge, "meta": c.meta, "version": c.printVersion,
		"sources": func() *cobra.Command {
			return &cobra.Command{Use: "sources", Short: "What SRC can be", Long: allSources}
		},
	}
}

// execute runs the command line. If it begins with a verb, execute builds only this verb, because
// building all of them would take a tenth of the time that a short command needs. An error of the
// command line may suggest another verb, or a flag of one, so execute then starts again with all
// verbs.
func (c *command) execute() (*cobra.Command, error) {
	if len(c.args) > 0 {
		if build := c.verbs()[c.args[0]]; build != nil {
			root := c.root(build())
			root.CompletionOptions.DisableDefaultCmd = true
			if cmd, err := c.executeWith(root); err == nil || c.begun {
				return cmd, err
			}
		}
	}
	return c.executeWith(c.whole())
}

func (c *command) executeWith(root *cobra.Command) (*cobra.Command, error) {
	root.SetArgs(c.args)
	root.SetOut(c.out)
	root.SetErr(c.stderr)
	return root.ExecuteContextC(c.ctx)
}

// whole returns the root with all verbs, and with those that package cobra adds.
func (c *command) whole() *cobra.Command {
	var all []*cobra.Command
	for _, build := range c.verbs() {
		all = append(all, build())
	}
	root := c.root(all...)
	c.addCompletions(root)
	root.InitDefaultHelpCmd()
	helpVerb, _, _ := root.Find([]string{"help"})
	c.refuseShells(root)
	helpVerb.Args = func(_ *cobra.Command, args []string) error {
		if found, _, err := root.Find(args); err != nil || found != root {
			return err
		}
		return root.Args(root, args)
	}
	return root
}

// root returns the program with these verbs.
func (c *command) root(verbs ...*cobra.Command) *cobra.Command {
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
		return usage("there is no verb %q%s", args[0], suggestVerb(args[0], verbs))
	}
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if cmd == root {
			c.noVerb = root.ValidateArgs(root.Flags().Args())
		}
		if c.noVerb == nil {
			help(cmd, args)
		}
	})
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return flagError(cmd, err, c.args) })
	root.Flags().BoolP("version", "v", false, "print the version")
	root.SetVersionTemplate("safetensors {{.Version}}\n")
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", fmt.Sprintf(".FlagUsagesWrapped %d", helpWidth)))
	root.PersistentFlags().BoolVarP(&c.quiet, "quiet", "q", false, "do not show progress")
	root.PersistentFlags().StringVar(&c.opener.Key, "key", "", "read the dict `NAME` of a PyTorch file that has several: state_dict, or optimizer.state.0; if there are several SRC, a file that has its tensors at the top level ignores it")
	root.AddCommand(verbs...)
	for _, cmd := range verbs {
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
		case "check", "merge", "meta", "sign", "version":
			cmd.Flags().BoolVar(&c.json, "json", false, "print a line of JSON")
		}
	}
	root.PersistentFlags().VisitAll(limitValues)
	for _, cmd := range verbs {
		cmd.Flags().VisitAll(limitValues)
	}
	return root
}

func (c *command) printVersion() *cobra.Command {
	return &cobra.Command{
		Use: "version [--json]", Short: "Print the version", DisableFlagsInUseLine: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("version takes no argument, and got %q", args[0])
			}
			return nil
		},
		Long: "Print the version.\n\n--json prints one line:\n  {\"version\": \"...\"}",
		RunE: func(*cobra.Command, []string) error {
			found := struct {
				Version string `json:"version"`
			}{version()}
			return c.print(found, func() { fmt.Fprintf(c.out, "safetensors %s\n", found.Version) })
		},
	}
}

// refuseShells makes the verb completion refuse a shell that it does not have. Package cobra prints the help instead, and
// exits with 0, so that a script would write the help into the file of the completion.
func (c *command) refuseShells(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	verb, _, _ := root.Find([]string{"completion"})
	var shells []string
	for _, shell := range verb.Commands() {
		shells = append(shells, shell.Name())
		script := shell.RunE
		shell.RunE = func(cmd *cobra.Command, args []string) error {
			c.begun = true // a failed write is not an error of the command line
			return script(cmd, args)
		}
	}
	verb.Args, verb.DisableFlagsInUseLine = cobra.ArbitraryArgs, true
	verb.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usage("there is no completion for %q, only for %s", args[0], strings.Join(shells, ", "))
		}
		return cmd.Help()
	}
}

// otherVerbs maps names of verbs in other programs to a verb here, and the flag that is needed.
var otherVerbs = map[string]string{
	"info": "ls", "list": "ls", "inspect": "ls", "header": "ls", "keys": "ls", "names": "ls", "size": "ls", "du": "ls", "count": "ls", "tree": "ls --tree",
	"print": "show", "view": "show", "cat": "show", "head": "show", "dump": "show", "slice": "show --slice RANGES", "describe": "stats", "histogram": "stats", "plot": "stats --html PAGE",
	"compare": "diff", "cmp": "diff", "equal": "diff", "validate": "check", "lint": "check", "scan": "check", "test": "check",
	"sum": "hash", "sha256": "hash", "md5": "hash", "checksum": "hash",
	"download": "cp", "get": "cp", "pull": "cp", "copy": "cp", "sync": "cp", "mv": "cp", "convert": "cp", "export": "cp",
	"join": "cp", "consolidate": "cp", "combine": "cp", "concat": "cp", "unshard": "cp", "index": "cp",
	"cast": "cp --dtype DTYPE", "split": "cp --max-shard-size SIZE", "shard": "cp --max-shard-size SIZE", "reshard": "cp --max-shard-size SIZE",
	"extract": "cp --only PATTERN", "filter": "cp --only PATTERN", "select": "cp --only PATTERN",
	"prune": "cp --except PATTERN", "strip": "cp --except PATTERN", "rename": "cp --rename s/REGEXP/REPLACEMENT/", "quantize": "cp --quantize SCHEME",
	"quantise": "cp --quantize SCHEME", "dequantize": "cp --dequantize DTYPE", "dequantise": "cp --dequantize DTYPE",
	"lora": "merge --lora ADAPTER", "average": "merge", "metadata": "meta", "set": "meta",
}

// suggestVerb returns a question with a verb, to be printed after a word that is not a verb: the
// verb with the same purpose, or ls for the name of a file, or the verb with the most similar
// spelling. For the words for an upload it returns a text about cp and the program of the hub. It
// returns "" if there is nothing to suggest.
func suggestVerb(word string, verbs []string) string {
	if word == "upload" || word == "push" {
		return ": cp writes to buckets (s3://, gs://, azblob://); for the hub: hf upload OWNER/NAME FOLDER"
	}
	if verb, known := otherVerbs[word]; known {
		return fmt.Sprintf(", did you mean %q?", verb)
	}
	if looksLikeSource(word) {
		return fmt.Sprintf(", did you mean \"ls %s\"?", storage.Word(word))
	}
	return pattern.Suggest(word, verbs)
}
