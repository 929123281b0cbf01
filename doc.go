// Package safetensors reads and writes files in the safetensors format, which
// holds the weights of neural networks.
//
// # Use
//
// A [File] is a table of named tensors. [Open] maps a file and reads only its
// header; [Load] reads all of it into memory; [Parse] takes bytes already in
// memory, [NewFile] any [io.ReaderAt], and [OpenFS] any [fs.FS].
//
//	f, err := safetensors.Open("model.safetensors")
//	if err != nil {
//		return err
//	}
//	defer f.Close()
//	t, err := f.Tensor("model.embed_tokens.weight")
//
// A [Tensor] is a small value: a dtype, a shape and a reference to its data. There
// are three ways to read it:
//
//	weights, err := safetensors.View[float32](t)        // in place, if t is F32
//	weights, err := safetensors.Append[float32](nil, t) // copied, exactly converted
//	n, err := t.WriteTo(w)                              // as raw bytes
//
// [Tensor.Slice] selects part of a tensor; [Tensor.Convert] changes its float
// dtype; [Concat] joins tensors. All are lazy: data is read when it is copied or
// written, and only the data needed. Rank 3 of 8 gets its columns of a matrix,
// rounded to BF16, by
//
//	t, err = t.Part(1, 3, 8)
//	t, err = t.Convert(safetensors.BF16)
//
// A checkpoint is a map[string]Tensor. [WriteFile] writes one, atomically and
// durably, maps.Collect(f.Tensors()) returns one, and [FileOf] makes a File of one: to
// merge, filter, rename or convert checkpoints is to change a map. [NewTensor] wraps a Go slice,
// [NewTensorAt] an io.ReaderAt, and [NewTensorFunc] a func that computes the
// elements when they are written, so that a model larger than memory can be
// converted or merged. [Create] writes a file tensor by tensor. [WriteShards]
// writes several files with an index, which [Open] opens as one.
//
// # Memory and lifetime
//
// Tensors refer to their File. A File from Open is a memory mapping. Do not use a
// view of it after [File.Close] and do not write to it; if the file is truncated
// while mapped, reading the view crashes the program. Views of Load, Parse and
// NewTensor are ordinary memory.
//
// The copying operations ([Append], [Tensor.WriteTo], [Write], [WriteFile]) are
// safe in all of these cases: after Close they return an error wrapping
// [fs.ErrClosed]; Close waits for those in progress; a truncated file is an error.
// Nothing is unmapped automatically: a File that is not closed costs address
// space and a file descriptor.
//
// Everything but a [Writer] may be used concurrently.
//
// # Untrusted files
//
// Nothing in a file is executed, and a file is checked as a whole before any of
// its tensors is handed out. The verdict is that of the reference implementation
// (the Rust crate of https://github.com/huggingface/safetensors), made stricter
// where the format's text asks for more or a file would be ambiguous: the header
// starts with its brace, and tensor names and metadata keys are unique. A refusal
// is a [FormatError] that names the tensor, the rule and the place.
//
// Allocations are bounded by the bytes present, never by the sizes a header
// claims. A header has at most 100,000,000 bytes, and its table takes a few times
// as much at most. Names and metadata can be any UTF-8, control characters
// included: quote them before they go to a terminal or become file names.
//
// # Format
//
// A file is a header length (8 bytes, little-endian), a header of that length (a
// JSON object, padded with spaces), and a data buffer. The header gives for each
// tensor its dtype, its shape and the offsets in the data buffer where its bytes
// start and end, and under the name __metadata__ free-form strings. Elements are
// little-endian and in row-major order; those of less than a byte are packed, the
// first in the low bits. The tensors fill the data buffer without overlaps and
// holes, in any order.
package safetensors
