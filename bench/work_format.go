package bench

import "fmt"

var formatWork = Work{
	Name:  "format",
	Title: "JSON beside a binary header",
	Intro: `bintensors replaces the JSON of safetensors by a binary header in order to be read faster.
The same tables, read from JSON by this package and from binary by bintensors.`,
	Chart: "",
	run:   runFormat,
}

func runFormat(b *Bench) error {
	inputs, err := b.headerInputs()
	if err != nil {
		return err
	}
	for _, in := range inputs {
		file, err := mapFile(in.path)
		if err != nil {
			return err
		}
		all := append(contestants(file)[:1],
			b.rust("bintensors", "`BinTensors::read_metadata` of the binary header; lookup by name", "bintensors", in.path),
			b.rust("safetensors", "`SafeTensors::read_metadata` of the JSON", "parse", in.path))
		err = b.compare(Case{
			Name:        fmt.Sprintf("%s, %s", in.name, size(int64(len(headerOf(file))))),
			Contestants: only(all...),
		})
		unmap(file)
		if err != nil {
			return err
		}
	}
	return nil
}
