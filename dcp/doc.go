// Package dcp reads and writes distributed checkpoints: those that the ranks of a
// PyTorch job save side by side, each its own pieces of the tensors, with
// torch.distributed.checkpoint and its HuggingFaceStorageWriter(save_distributed=True).
//
// # Reading
//
// Open joins the pieces. The result is a [safetensors.File] like any other, with
// whole tensors:
//
//	f, err := dcp.Open("checkpoint")
//	…
//	defer f.Close()
//	err = safetensors.WriteFile("model.safetensors", maps.Collect(f.Tensors()), f.Metadata())
//
// That consolidates a checkpoint of any size in constant memory, as everything here
// is lazy: opening reads the headers, reading a tensor reads its pieces, and a slice
// reads only what it selects of the pieces that have it.
//
// The pieces may tile a tensor in any way: along one dimension or several, in
// different sizes, without elements where there are more ranks than rows. Ranks may
// hold the same piece; the first file that has it is read, the others are not compared
// with it.
//
// # Writing
//
// A rank of a Go job writes its pieces with WriteFile under the name that FileName
// gives it. Part deals a tensor out as PyTorch's placement Shard does, also for a
// mesh of ranks:
//
//	whole, err := dcp.NewPiece(t)
//	…
//	pieces["layers.0.weight"], err = whole.Part(0, rank, ranks)
//	…
//	err = dcp.WriteFile(filepath.Join("checkpoint", dcp.FileName(rank)), pieces, nil)
//
// A PyTorch job of any number of ranks loads such a folder with dcp.load and
// HuggingFaceStorageReader, and a Go job opens one that PyTorch saved. Together these
// cut a checkpoint for another number of ranks: Open, Part and WriteFile.
//
// # What a folder does not say
//
// The format has no list of files, and no shapes of the whole tensors: every
// *.safetensors file in the folder is a part of the checkpoint, and a tensor is as
// large as its pieces reach. So a missing file mostly leaves a hole, which is an error.
// But if the file held the last rows of every tensor, nothing reveals it: compare the
// shapes with the model's. And a file that is left over from another save overlaps the
// new ones at best: save to an empty folder each time, and tell its readers when all
// ranks are done. PyTorch has the same limits.
//
// # Lifetime and concurrency
//
// The File owns the files of the pieces: Close waits for reads in progress and closes
// them. All functions may be called concurrently; ranks in one process may write
// their files side by side. Joined tensors have no View: use Append, WriteTo and the
// writers, which copy. Those that one file holds whole keep theirs. A panic in a
// callback, of an fs.FS for example, is raised again in the caller.
//
// # Untrusted files
//
// Offsets come from a JSON text in the metadata, which is read strictly: duplicate
// names, anything but integers from 0 to the largest int, and other numbers of offsets
// than the tensor has dimensions are errors, and so are holes, overlaps, and pieces
// that differ in dtype or rank. A checkpoint has at most 10,000 files, a tensor at most
// 64 dimensions, and its pieces nest at most 64 deep: a mesh of ranks needs as many
// levels as it has dimensions. Memory is bounded by the headers. Otherwise the promises
// of package safetensors hold.
package dcp
