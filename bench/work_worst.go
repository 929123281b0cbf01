package bench

import (
	"strconv"
)

var worstWork = Work{
	Name:  "worst",
	Title: "The worst headers",
	Intro: `Headers of 100,000,000 bytes, the most that the format allows, that are meant to hurt: as many tensors as
fit (without data, with names of few bytes), and one tensor with an unknown field that holds 50 million numbers,
which readers have to skip. Memory is the peak of resident memory beyond the file itself, which is mapped.`,
	Unit: "of header",
	run:  runWorst,
}

func runWorst(b *Bench) error {
	limit := int(b.size(100_000_000, 1_000_000))
	for _, h := range []struct {
		name   string
		header func(limit int) []byte
	}{
		{"as many tensors as fit", mostTensors},
		{"one ignored field", ignoredField},
	} {
		path, err := b.file(h.name, func(path string) error { return sparseFile(path, h.header(limit), 0) })
		if err != nil {
			return err
		}
		if err := b.worstOne(h.name, path); err != nil {
			return err
		}
	}
	return nil
}

func (b *Bench) worstOne(name, path string) error {
	file, err := mapFile(path)
	if err != nil {
		return err
	}
	defer unmap(file)
	all := append(contestants(file),
		b.rust("safetensors", "`SafeTensors::read_metadata`", "parse", path))
	return b.compare(Case{Name: name, Bytes: int64(len(headerOf(file))), Memory: true, Contestants: only(all...)})
}

// mostTensors has nothing but tensors without elements.
func mostTensors(limit int) []byte {
	b := append(make([]byte, 8), '{')
	for i := int64(0); len(b) < limit-64; i++ {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = strconv.AppendInt(b, i, 36)
		b = append(b, `":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}`...)
	}
	return seal(append(b, '}'))
}

// ignoredField has one tensor with a field of zeros.
func ignoredField(limit int) []byte {
	b := append(make([]byte, 8), `{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":[0`...)
	for len(b) < limit-64 {
		b = append(b, ",0"...)
	}
	return seal(append(b, "]}}"...))
}
