package main

import (
	"cmp"
	"crypto/sha256"
	"hash"
	"io"
	"runtime"
	"slices"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/manifest"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/report"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/internal/parallel"
)

// An unreadSums is the JSON that hash prints for a source without sums, because some tensors cannot
// be read.
type unreadSums struct {
	File   string          `json:"file"`
	Unread []report.Unread `json:"unread"`
}

// sums computes the sums of files and tensors, concurrently on all processors. If names is nil, the manifest has no
// list of tensors.
func (c *command) sums(src *source.Checkpoint, files []storage.File, names []string) (*manifest.Manifest, error) {
	m := &manifest.Manifest{Files: make([]manifest.Entry, len(files))}
	if names != nil {
		m.Tensors = make([]manifest.Entry, len(names))
	}
	var jobs []job
	for i, file := range files {
		jobs = append(jobs, job{file.Size, func() error {
			sums, err := hashFile(file, sha256.New(), 0)
			if err == nil {
				m.Files[i] = manifest.Entry{Name: file.Name, Sum: manifest.Sum(sums[0])}
			}
			return err
		}})
	}
	for i, name := range names {
		t := src.Tensors[name]
		jobs = append(jobs, job{t.Size(), func() error {
			h := sha256.New()
			io.WriteString(h, t.String()+"\n")
			_, err := t.WriteTo(h)
			m.Tensors[i] = manifest.Entry{Name: name, DType: t.DType(), Shape: t.Shape(), Type: t.String(), Sum: manifest.Sum(h.Sum(nil))}
			if err != nil {
				err = c.opener.Named(src.Name, err)
			}
			return err
		}})
	}
	err := c.work(jobs)
	if err == nil && len(names) > 0 {
		err = src.Unchanged()
	}
	return m, err
}

// hashFiles returns the result of hashFile for each file. If newHash returns nil for a file, the
// file is not read.
func (c *command) hashFiles(files []storage.File, size int64, newHash func(storage.File) hash.Hash) (sums [][][]byte, err error) {
	sums = make([][][]byte, len(files))
	var jobs []job
	for i, file := range files {
		if h := newHash(file); h != nil {
			jobs = append(jobs, job{file.Size, func() (err error) {
				sums[i], err = hashFile(file, h, size)
				return err
			}})
		}
	}
	return sums, c.work(jobs)
}

// hashFile returns the sum of a file, or the sums of its pieces of size bytes if size is not 0. It is
// an error if the file has changed since the source was opened: the sum may be that of a mixture.
func hashFile(file storage.File, h hash.Hash, size int64) (sums [][]byte, err error) {
	r, err := file.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	buf := make([]byte, min(256<<10, max(file.Size, 512))) // small enough for a processor's cache
	if size == 0 {
		n, err := io.CopyBuffer(struct{ io.Writer }{h}, struct{ io.Reader }{r}, buf)
		if err == nil {
			err = file.CheckRead(n)
		}
		return [][]byte{h.Sum(nil)}, err
	}
	total := int64(0)
	for err == nil {
		var n int64
		h.Reset()
		n, err = io.CopyBuffer(struct{ io.Writer }{h}, io.LimitReader(r, size), buf)
		if n == 0 {
			break
		}
		total += n
		sums = append(sums, h.Sum(nil))
	}
	if err == nil {
		err = file.CheckRead(total)
	}
	return sums, err
}

// A job is work that reads size bytes.
type job struct {
	size int64
	do   func() error
}

// work does jobs concurrently on all processors, and shows the progress.
func (c *command) work(jobs []job) error {
	total := int64(0)
	for _, j := range jobs {
		total += j.size
	}
	defer c.progress("hash", total)()
	slices.SortStableFunc(jobs, func(a, b job) int { return cmp.Compare(b.size, a.size) }) // the largest first, so that all processors finish at about the same time
	return parallel.Do(runtime.GOMAXPROCS(0), int64(len(jobs)), func(i int64) error { return jobs[i].do() })
}
