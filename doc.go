// Package safetensors reads and writes files in the safetensors format, in which
// the weights of neural networks are shipped.
//
// # Use
//
// A [File] is a table of named tensors. [Open] maps a file and reads its header
// only; [Load] reads all of it into memory; [Parse] takes bytes that are in
// memory already, and [NewFile] any [io.ReaderAt].
//
//	f, err := safetensors.Open("model.safetensors")
//	if err != nil {
//		return err
//	}
//	defer f.Close()
//	t, err := f.Tensor("model.embed_tokens.weight")
//
// A [Tensor] is a small value: a dtype, a shape and where its elements are. Its
// elements are seen in three ways:
//
//	weights, err := safetensors.View[float32](t)        // in place, if t is F32
//	weights, err := safetensors.Append[float32](nil, t) // copied, exactly converted
//	n, err := t.WriteTo(w)                              // as raw bytes
//
// [Tensor.Slice] selects a part and [Tensor.Convert] another float dtype. Both
// are lazy: only what is needed is read, when it is copied or written. Rank 3 of
// 8 gets its columns of a matrix, rounded to BF16, by
//
//	n := t.Shape[1] / 8
//	t, err = t.Slice(safetensors.All(), safetensors.Span(3*n, 4*n))
//	t, err = t.Convert(safetensors.BF16)
//
// A checkpoint is a map[string]Tensor. [WriteFile] writes one, atomically and
// durably, and maps.Collect(f.Tensors()) is one: to merge, filter, rename or
// convert checkpoints is to change a map. [NewTensor] makes a tensor of a slice,
// and a [Writer] writes data that is computed on the way.
//
// # Memory and lifetime
//
// Nothing is copied that need not be. Tensors refer to their File, and the Files
// of Open to a mapping: a view of it must not be used after [File.Close], nor be
// written to, and reading it is a fault that ends the program if somebody
// truncates the file meanwhile. Views of Load, Parse and NewTensor are ordinary
// memory.
//
// What copies ([Append], [Tensor.WriteTo], [Write], [WriteFile]) is safe in all
// of these cases: after Close it fails with an error that is [fs.ErrClosed],
// Close waits for it, and a truncated file is an error. Nothing is unmapped
// behind your back: a File that is not closed costs address space.
//
// Everything but a [Writer] may be used concurrently.
//
// # Untrusted files
//
// Nothing in a file is executed, and a file is checked as a whole before any of
// its tensors is handed out. The verdict is that of the reference implementation
// (the Rust crate of https://github.com/huggingface/safetensors), made stricter
// where the format's text asks for more or a file would be ambiguous: the header
// begins with its brace, and no name and no metadata key is there twice. What is
// refused is a [FormatError] that names the tensor, the rule and the place.
//
// Memory is allocated for what is there, never for what a header claims; a header
// has at most 100,000,000 bytes, and its table takes a few times as much at most.
// Names and metadata can be any UTF-8, control characters included: quote them
// before they go to a terminal or become file names.
//
// # Format
//
// A file is a header length (8 bytes, little-endian), a header of that length (a
// JSON object, padded with spaces), and a data buffer. The header has for each
// tensor its dtype, its shape and where in the data buffer its bytes begin and
// end, and under the name __metadata__ free-form strings. Elements are
// little-endian and in row-major order; those of less than a byte are packed,
// the first in the low bits. The tensors fill the data buffer without overlaps
// and holes, in any order.
package safetensors
