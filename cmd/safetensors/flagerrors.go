package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pattern"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// otherFlags maps flags of other programs to those that do the same here.
var otherFlags = map[string]string{
	"f": "force", "overwrite": "force", "include": "only", "filter": "only", "exclude": "except", "ignore": "except",
	"precision": "dtype", "shard-size": "max-shard-size", "o": "", "r": "", "R": "",
}

// noNumber matches the error of package pflag for a value that is not a number.
var noNumber = regexp.MustCompile(`(?s)^invalid argument (".*") for "(?:-., )?--([\w-]+)" flag: strconv\.`)

// flagError returns the error of package pflag in the words of this program, with the flag that was
// meant.
func flagError(cmd *cobra.Command, err error) error {
	if m := noNumber.FindStringSubmatch(err.Error()); m != nil {
		kind := "a number"
		if f := cmd.Flags().Lookup(m[2]); f != nil && f.Value.Type() == "int" {
			kind = "a whole number"
		}
		return usage("--%s: expected %s, got %s", m[2], kind, m[1])
	}
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	return usage("%w%s", err, suggestFlag(cmd, unknown.GetSpecifiedName()))
}

// suggestFlag returns a question after the name of a flag that a verb does not have.
func suggestFlag(cmd *cobra.Command, name string) string {
	if meant, ok := otherFlags[name]; ok {
		switch {
		case cmd.Flags().Lookup(meant) != nil:
			return fmt.Sprintf(", did you mean \"--%s\"?", meant)
		case name == "o" && strings.Contains(cmd.Use, " DST"):
			return "; the destination is the last argument"
		case strings.EqualFold(name, "r"):
			return "; a folder needs no flag"
		}
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, "--"+f.Name)
		}
	})
	if len(name) < 2 {
		return ""
	}
	return pattern.Suggest("--"+name, names)
}
