package main

import (
	"cmp"
	"crypto/sha256"
	"hash"
	"io"
	"runtime"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/manifest"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/internal/parallel"
)

// sums computes the sums of files and tensors, as many concurrently as there are
// processors.
func (c *command) sums(src *source.Checkpoint, files []source.File, names []string) (*manifest.Manifest, error) {
	m := &manifest.Manifest{Files: make([]manifest.Entry, len(files)), Tensors: make([]manifest.Entry, len(names))}
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
		jobs = append(jobs, job{t.Size(), func() (err error) {
			m.Tensors[i] = manifest.Entry{Name: name, Type: t.String()}
			m.Tensors[i].Sum, err = tensorSum(t)
			return err
		}})
	}
	return m, c.work("hash", jobs)
}

// hashFiles returns the sums of files as hashFile does.
func (c *command) hashFiles(files []source.File, size int64, newHash func(source.File) (hash.Hash, error)) (sums [][][]byte, err error) {
	sums = make([][][]byte, len(files))
	jobs := make([]job, len(files))
	for i, file := range files {
		jobs[i] = job{file.Size, func() error {
			h, err := newHash(file)
			if err == nil {
				sums[i], err = hashFile(file, h, size)
			}
			return err
		}}
	}
	return sums, c.work("hash", jobs)
}

// hashFile returns the sum of a file, or those of its pieces of a size.
func hashFile(file source.File, h hash.Hash, size int64) (sums [][]byte, err error) {
	r, err := file.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	step := 256 << 10 // fits into a cache
	if file.Path == "" {
		step = 4 << 20 // a request each
	}
	buf := make([]byte, min(int64(step), max(file.Size, 512)))
	if size == 0 {
		_, err = io.CopyBuffer(struct{ io.Writer }{h}, struct{ io.Reader }{r}, buf)
		return [][]byte{h.Sum(nil)}, err
	}
	for err == nil {
		var n int64
		h.Reset()
		n, err = io.CopyBuffer(struct{ io.Writer }{h}, io.LimitReader(r, size), buf)
		if n == 0 {
			break
		}
		sums = append(sums, h.Sum(nil))
	}
	return sums, err
}

func tensorSum(t safetensors.Tensor) (sum manifest.Sum, err error) {
	h := sha256.New()
	io.WriteString(h, t.String()+"\n")
	_, err = t.WriteTo(h)
	h.Sum(sum[:0])
	return sum, err
}

// A job is work on some bytes.
type job struct {
	size int64
	do   func() error
}

// work does jobs, as many concurrently as there are processors, and shows the progress.
func (c *command) work(title string, jobs []job) error {
	total := int64(0)
	for _, j := range jobs {
		total += j.size
	}
	defer c.progress(title, total)()
	slices.SortStableFunc(jobs, func(a, b job) int { return cmp.Compare(b.size, a.size) }) // the longest first, so that all end together
	return parallel.Do(runtime.GOMAXPROCS(0), int64(len(jobs)), func(i int64) error { return jobs[i].do() })
}
