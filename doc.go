// Package safetensors reads and writes files in the safetensors format, which holds
// the weights of neural networks.
//
// # Use
//
// Open maps a file and reads only its header; Load reads a whole file into memory. Parse takes
// bytes, Read an [io.Reader], NewFile an [io.ReaderAt], and OpenFS a name in an [fs.FS].
//
//	f, err := safetensors.Open("model.safetensors")
//	if err != nil {
//		return err
//	}
//	defer f.Close()
//	weights, err := safetensors.Elements[float32](f, "model.embed_tokens.weight", -1, 4096)
//
// A Tensor is a dtype, a shape and a reference to data:
//
//	t, err := f.Tensor("model.embed_tokens.weight")
//	inPlace, err := safetensors.View[float32](t)       // if t is F32; read only
//	copied, err := safetensors.Append([]float32{}, t)  // exactly converted
//
// Slice, Part, Transpose, Convert and Concat are lazy: only the data needed is read, when it
// is copied or written.
//
// A checkpoint is a map[string]Tensor: change the map to merge, filter or rename tensors.
// maps.Collect(f.Tensors()) returns such a map; WriteFile and WriteShards write one, atomically
// and durably. NewTensor wraps a slice; NewTensorFunc computes elements as they are written, for
// models larger than memory.
//
// # Other packages
//
//   - [github.com/gosafetensors/safetensors/checkpoint] opens whatever a model's directory
//     holds, lists the models of a pipeline, and judges whether all readers see the same model.
//   - [github.com/gosafetensors/safetensors/torch] reads files of torch.save: .bin, .pt, .pth.
//   - [github.com/gosafetensors/safetensors/dcp] reads what the ranks of a job wrote:
//     torch.distributed.checkpoint, and rank files of torch.save.
//   - [github.com/gosafetensors/safetensors/quant] dequantises and quantises models.
//   - [github.com/gosafetensors/safetensors/hub] opens models in repositories of a hub, and in its
//     cache; [github.com/gosafetensors/safetensors/remote] opens files over HTTP.
//
// # Memory and lifetime
//
// A File from Open is a mapping. Using a view of it after Close, or after the file was
// truncated, crashes the program; copies (Append, WriteTo, Write) return an error.
//
// # Untrusted files
//
// The whole header is checked first. Every file that the reference implementation, the Rust crate
// of https://github.com/huggingface/safetensors, refuses is refused, and so are ambiguous files
// that it accepts. The error is a [FormatError]. Allocations are limited by the bytes that are
// present, not by sizes that the file claims. Names and metadata can be any UTF-8: quote them
// before they go to a terminal or become file names.
//
// # Format
//
// A file is a header length (8 bytes, little-endian), a header (JSON, padded with
// spaces), and a data buffer. The header has dtype, shape and data offsets of each
// tensor, and free-form strings under __metadata__. Elements are little-endian and in
// row-major order; those below a byte are packed, the first in the low bits. The tensors
// fill the data buffer without overlaps or gaps.
package safetensors
