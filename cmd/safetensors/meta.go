package main

import (
	"fmt"
	"maps"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/spf13/cobra"
)

func (c *command) meta() *cobra.Command {
	var remove []string
	var inPlace, asJSON bool
	cmd := c.verb("meta SRC [KEY=VALUE...] [--delete KEY] [--in-place] [--json]", "Print or change metadata", `
Without --in-place, it prints the metadata with the changes applied, and writes nothing.
With it, SRC is a .safetensors file of this machine, or a folder of them or the index of
one, of which every file gets the metadata. Each file is replaced as a whole and
durably.

--json prints the metadata as an object.
`+sources, `
safetensors meta model.safetensors
safetensors meta model.safetensors license=mit --delete format --in-place
`, cobra.MinimumNArgs(1), func(args []string) error {
		pairs, err := parsePairs(args[1:])
		if err != nil {
			return usageError{err}
		}
		return c.changeMeta(args[0], pairs, remove, inPlace, asJSON)
	})
	cmd.Flags().StringArrayVar(&remove, "delete", nil, "remove the `KEY`")
	cmd.Flags().BoolVar(&inPlace, "in-place", false, "change SRC")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a line of JSON")
	return cmd
}

func (c *command) changeMeta(name string, pairs map[string]string, remove []string, inPlace, asJSON bool) error {
	if inPlace && len(pairs)+len(remove) == 0 {
		return usage("--in-place: there is nothing to change")
	}
	src, err := c.opener.Open(name)
	if err != nil {
		return err
	}
	defer src.Close()
	metadata, err := changed(src.Metadata, pairs, remove)
	if err != nil {
		return err
	}
	if inPlace {
		return c.replaceMeta(src, metadata)
	}
	if asJSON {
		if metadata == nil {
			metadata = map[string]string{}
		}
		return term.PrintJSON(c.out, metadata)
	}
	return c.printMetadata(metadata)
}

// changed returns metadata with changes. Where nothing is left of it, it is nil.
func changed(metadata, pairs map[string]string, remove []string) (map[string]string, error) {
	if len(remove) > 0 {
		metadata = maps.Clone(metadata)
	}
	for _, key := range remove {
		if _, ok := metadata[key]; !ok {
			return nil, fmt.Errorf("there is no metadata %q to delete", key)
		}
		delete(metadata, key)
	}
	metadata = withPairs(metadata, pairs)
	if len(metadata) == 0 && len(remove) > 0 {
		return nil, nil
	}
	return metadata, nil
}

// replaceMeta writes each file of a source again, with other metadata.
func (c *command) replaceMeta(src *source.Checkpoint, metadata map[string]string) error {
	var files []source.File
	size := int64(0)
	for _, file := range src.Files {
		if file.Path == "" {
			return fmt.Errorf("%s cannot be changed in place; cp --meta writes a copy", source.Shown(src.Name))
		}
		if strings.HasSuffix(file.Name, ".safetensors") {
			files = append(files, file)
			size += file.Size
		}
	}
	if len(files) == 0 {
		return fmt.Errorf("%s cannot be changed in place; cp --meta writes a copy", source.Shown(src.Name))
	}
	defer c.progress("meta", size)()
	for _, file := range files {
		if err := c.replaceFileMeta(file.Path, metadata); err != nil {
			return err
		}
	}
	return nil
}

// replaceFileMeta replaces a file by one with other metadata.
func (c *command) replaceFileMeta(name string, metadata map[string]string) error {
	one, err := c.opener.Open(name)
	if err != nil {
		return err
	}
	defer one.Close()
	return safetensors.WriteFile(name, one.Tensors, metadata)
}
