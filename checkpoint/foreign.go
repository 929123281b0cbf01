package checkpoint

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/internal/prefix"
	"github.com/gosafetensors/safetensors/internal/variant"
)

// foreignError returns the error for a directory that holds a format that this package does not read, or only the state of
// a training job. It returns nil for other directories.
func foreignError(l listing) error {
	switch i := slices.IndexFunc(l.names, variant.IsState); {
	case l.any(l.isCTranslate2):
		return errors.New("no .safetensors file in it, and \"model.bin\" is of CTranslate2: ctranslate2 reads it")
	case l.any(l.isOpenVINO):
		return fmt.Errorf("no .safetensors file in it, and %s is of OpenVINO: optimum-intel reads it", quoted(l.names[slices.IndexFunc(l.names, l.isOpenVINO)]))
	case i >= 0 && !l.any(isWeights):
		return prefix.Absent{Err: fmt.Errorf("only the state of a training job is in it, such as %s, no model", quoted(l.names[i]))}
	}
	for _, f := range foreign {
		if i := slices.IndexFunc(l.names, f.match); i >= 0 {
			return fmt.Errorf("no .safetensors file in it, and %s is of %s", quoted(l.names[i]), f.format)
		}
	}
	return nil
}

// A foreignFormat is a format that this package does not read.
type foreignFormat struct {
	match  func(name string) bool // reports whether a file with this name has the format
	format string                 // name of the format, and a program that reads it, for errors
}

// foreign lists the foreign formats that are recognized by the name of one file.
var foreign = []foreignFormat{
	{func(name string) bool {
		return strings.Contains(name, "zero_pp_rank_") || strings.HasSuffix(name, "_model_states.pt")
	}, "DeepSpeed: its zero_to_fp32.py converts the checkpoint to a file of torch.save"},
	{ending(".gguf"), "GGUF: llama.cpp reads it"},
	{ending(".nemo"), "NeMo: it is a tar archive, which holds a checkpoint"},
	{ending(".h5"), "Keras and TensorFlow: from_tf=True of transformers reads it"},
	{ending(".msgpack"), "Flax: from_flax=True of transformers reads it"},
	{ending(".onnx"), "ONNX: onnxruntime reads it"},
	{ending(".npz"), "NumPy: numpy.load reads it"},
	{func(name string) bool { return name == "_CHECKPOINT_METADATA" || name == "manifest.ocdbt" }, "Orbax of JAX: orbax.checkpoint reads it"},
	{func(name string) bool { return name == "latest_checkpointed_iteration.txt" }, "Megatron-LM: its tools/checkpoint/convert.py reads it"},
	{func(name string) bool { return strings.Contains(name, ".data-00000-of-") }, "TensorFlow: tf.train.load_checkpoint reads it"},
}

// ending returns a func that reports whether the name of a file ends in e.
func ending(e string) func(string) bool {
	return func(name string) bool { return strings.HasSuffix(name, e) }
}

// isCTranslate2 reports whether a file is of CTranslate2, whose converters save a vocabulary beside it.
func (l listing) isCTranslate2(name string) bool {
	return name == "model.bin" && l.any(func(other string) bool {
		stem, ending, _ := strings.Cut(other, ".")
		return slices.Contains([]string{"vocabulary", "shared_vocabulary", "source_vocabulary", "target_vocabulary"}, stem) && (ending == "txt" || ending == "json")
	})
}

// isOpenVINO reports whether a file is of OpenVINO, which saves the graph of the model beside it.
func (l listing) isOpenVINO(name string) bool {
	stem, is := strings.CutSuffix(name, ".bin")
	return is && l.has(stem+".xml")
}
