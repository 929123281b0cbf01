package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

// A dataSum is the sum of the data of a file, without its header.
type dataSum struct {
	Name string `json:"name"`
	Sum  string `json:"sha256"`
}

// printDataSums prints the sums of the data of all safetensors files of some sources. If one source
// fails, it prints the sums of those before it.
func (c *command) printDataSums(names []string) error {
	var all [][]dataSum
	count := make(map[string]int) // number of files with each name
	var failed error
	for _, name := range names {
		var sums []dataSum
		if sums, failed = c.dataSums(name); failed != nil {
			break
		}
		if c.json {
			if err := term.PrintJSON(c.out, struct {
				File string    `json:"file"`
				Data []dataSum `json:"data"`
			}{name, sums}); err != nil {
				return err
			}
			continue
		}
		all = append(all, sums)
		for _, s := range sums {
			count[s.Name]++
		}
	}
	for i, sums := range all {
		for _, s := range sums {
			shown := term.Name(s.Name)
			if count[s.Name] > 1 {
				shown = fileOf(names[i], s.Name, len(sums))
			}
			fmt.Fprintf(c.out, "%s  %s\n", s.Sum, shown)
		}
	}
	_, err := c.out.Write(nil) // returns the error of any earlier write
	return cmp.Or(failed, err)
}

// fileOf returns a text that identifies one of the files of a source: the source, and the name of the file if
// the source has others.
func fileOf(source, name string, files int) string {
	if files == 1 {
		return storage.Shown(source)
	}
	return storage.Shown(source) + ": " + term.Name(name)
}

func (c *command) dataSums(name string) ([]dataSum, error) {
	src, _, err := c.openAll(name, c.opener.OpenFiles) // also checks the header of each file
	if err != nil {
		return nil, err
	}
	defer src.Close()
	var files []storage.File
	for _, file := range src.Files {
		switch {
		case storage.IsIndex(file.Name):
		case src.Format == nil && format.ByName(file.Name) != nil && format.ByName(file.Name) != format.Safetensors, src.Format != nil && src.Format != format.Safetensors, src.Joined && format.ByName(file.Name) != format.Safetensors:
			return nil, fmt.Errorf("%s is not a safetensors file; --data leaves out the header that such files have", fileOf(name, file.Name, len(src.Files)))
		default:
			files = append(files, file)
		}
	}
	sums := make([]dataSum, len(files))
	var jobs []job
	for i, file := range files {
		jobs = append(jobs, job{file.Size, func() (err error) {
			sums[i], err = dataSumOf(file)
			return err
		}})
	}
	return sums, c.work(jobs)
}

// dataSumOf returns the sum of the bytes after the header of a safetensors file.
func dataSumOf(file storage.File) (dataSum, error) {
	r, err := file.Open()
	if err != nil {
		return dataSum{}, err
	}
	defer r.Close()
	var length [8]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return dataSum{}, err
	}
	header, err := io.CopyN(io.Discard, r, int64(binary.LittleEndian.Uint64(length[:]))) // Open has checked the length
	if err != nil {
		return dataSum{}, err
	}
	h := sha256.New()
	data, err := io.CopyBuffer(struct{ io.Writer }{h}, struct{ io.Reader }{r}, make([]byte, 256<<10))
	if err == nil {
		err = file.CheckRead(int64(len(length)) + header + data)
	}
	if err != nil {
		return dataSum{}, err
	}
	return dataSum{file.Name, hex.EncodeToString(h.Sum(nil))}, nil
}
