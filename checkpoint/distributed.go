package checkpoint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/variant"
)

// judgeDistributed compares a checkpoint of torch.distributed.checkpoint, whose tensors are in .distcp files, with the
// safetensors files beside it. This package opens the first, and libraries that read models open the others. It
// notes a finding unless each tensor of these files is in the checkpoint, too, with the same data. There, all names may
// have the same prefix, because a job may save a model as a part of its state.
func (d *directory) judgeDistributed() error {
	f, err := Opener{Skip: func(string, error) {}}.OpenFS(d.in.FS, d.path(d.dir))
	if err != nil {
		return d.opens(d.dir)
	}
	defer f.Close()
	for _, name := range d.names {
		if !isSafetensors(name) || d.modes[name].IsDir() {
			continue
		}
		if done, err := d.judgeBesideDistributed(f, name); done || err != nil {
			return err
		}
	}
	return nil
}

// judgeBesideDistributed does the work of judgeDistributed for one safetensors file, of which f is the checkpoint beside it.
// done reports whether the other files need not be compared, because there is a finding.
func (d *directory) judgeBesideDistributed(f *safetensors.File, name string) (done bool, err error) {
	beside, err := safetensors.OpenFS(d.in.FS, d.path(d.at(name)))
	if err != nil {
		return true, d.opens(d.at(name))
	}
	defer beside.Close()
	before := prefixWithin(f, beside)
	for tensor, x := range beside.Tensors() {
		why := "its data differ"
		y, err := f.Tensor(before + tensor)
		if err != nil {
			why = "only the second has it"
		} else if equal, err := safetensors.Equal(x, y); equal || err != nil {
			if err != nil {
				return false, err
			}
			continue
		}
		d.note(Ambiguous, tensor, fmt.Sprintf("the checkpoint of torch.distributed.checkpoint and %s beside it are two checkpoints: the tensor %s differs (%s)",
			quoted(d.at(name)), quoted(tensor), why), d.metadataFile(), d.at(name))
		return true, nil
	}
	return false, nil
}

// metadataFile returns the name of a file that describes the .distcp files.
func (d *directory) metadataFile() string {
	return d.at(d.names[slices.IndexFunc(d.names, variant.IsMetadata)])
}

// prefixWithin returns the prefix, such as "model.", that the checkpoint of a job has before the names of a model. It
// judges by the first name of the model, and returns "" if the checkpoint has that name itself, or none that ends with it.
func prefixWithin(job, model *safetensors.File) string {
	for first := range model.Tensors() {
		if _, err := job.Tensor(first); err == nil {
			break
		}
		for name := range job.Tensors() {
			if prefix, ok := strings.CutSuffix(name, "."+first); ok {
				return prefix + "."
			}
		}
		break
	}
	return ""
}
