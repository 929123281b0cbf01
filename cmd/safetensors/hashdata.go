package main

import (
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

// printDataSums prints the sums of the data of all safetensors files of some sources.
func (c *command) printDataSums(names []string) error {
	for _, name := range names {
		sums, err := c.dataSums(name)
		if err != nil {
			return err
		}
		if err := c.print(struct {
			File string    `json:"file"`
			Data []dataSum `json:"data"`
		}{name, sums}, func() {
			for _, s := range sums {
				fmt.Fprintf(c.out, "%s  %s\n", s.Sum, term.Name(s.Name))
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

func (c *command) dataSums(name string) ([]dataSum, error) {
	src, _, err := c.openAll(name, c.opener.Open) // also checks the header of each file
	if err != nil {
		return nil, err
	}
	defer src.Close()
	var files []storage.File
	for _, file := range src.Files {
		switch {
		case storage.IsIndex(file.Name):
		case src.Format == nil && format.ByName(file.Name) != nil && format.ByName(file.Name) != format.Safetensors, src.Format != nil && src.Format != format.Safetensors, src.Joined:
			shown := storage.Shown(name)
			if len(src.Files) > 1 {
				shown += ": " + term.Name(file.Name)
			}
			return nil, fmt.Errorf("%s is not a safetensors file, which alone has a header before its data", shown)
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
