package bench

import (
	"fmt"
)

var parseWork = Work{
	Name:  "parse",
	Title: "Parse a header",
	Intro: `A file is mapped and its header is in memory: from there to the table of tensors.
The headers have the names, dtypes and shapes of real models (DeepSeek-V3 with BF16 where
the model has F8_E4M3, which not everyone knows); the data behind them is a hole in the file.`,
	Unit:  "of header",
	Chart: "Header parsed (MB/s; longer is better)",
	run:   runParse,
}

// A headerInput is a file that is nothing but a header and a hole.
type headerInput struct {
	name string
	path string
}

// headerInputs are the four headers of the works "parse" and "format".
func (b *Bench) headerInputs() ([]headerInput, error) {
	var inputs []headerInput
	for _, h := range []struct {
		name  string
		table func() table
	}{
		{"gpt2", gpt2},
		{"llama-70B", llama70B},
		{"DeepSeek-V3", func() table { return deepSeekV3(int(b.size(256, 8))) }},
		{"1M tensors", func() table { return manyExperts(int(b.size(1_000_000, 10_000))) }},
	} {
		path, err := b.file(h.name+".safetensors", func(path string) error {
			header, dataSize := h.table().header()
			return sparseFile(path, header, dataSize)
		})
		if err != nil {
			return nil, err
		}
		inputs = append(inputs, headerInput{name: h.name, path: path})
	}
	return inputs, nil
}

func runParse(b *Bench) error {
	inputs, err := b.headerInputs()
	if err != nil {
		return err
	}
	for _, in := range inputs {
		if err := b.parseOne(in); err != nil {
			return err
		}
	}
	return nil
}

func (b *Bench) parseOne(in headerInput) error {
	file, err := mapFile(in.path)
	if err != nil {
		return err
	}
	defer unmap(file)
	all := append(contestants(file),
		b.rust("safetensors", "`SafeTensors::read_metadata`: validates all but duplicate names; lookup by name", "parse", in.path),
		b.python("safetensors", "`safe_open`: the same in Rust, and opens and maps the file", "parse", in.path))
	all = append(all, headerLimits(file)...)
	header := int64(len(headerOf(file)))
	return b.compare(Case{
		Name:        fmt.Sprintf("%s, %s", in.name, size(header)),
		Bytes:       header,
		Memory:      true,
		Contestants: only(all...),
	})
}
