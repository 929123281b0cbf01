// Package dcp reads and writes distributed checkpoints, to which each rank of a PyTorch
// job saves its own pieces of the tensors, with torch.distributed.checkpoint. It reads both
// formats, .metadata with .distcp files and the safetensors files of
// HuggingFaceStorageWriter(save_distributed=True), and writes the second.
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
// That consolidates a checkpoint of any size in constant memory, because everything is
// lazy: opening reads the headers, reading a tensor reads its pieces, and a slice reads
// only what it selects of them.
//
// Pieces may tile a tensor in any way: along several dimensions, in different sizes,
// some of them empty, as where there are more ranks than rows. Ranks may save the same
// piece. The first file that has it is read; the copies are not compared.
//
// # Writing
//
// A rank of a Go job writes its pieces with WriteFile, to the file that FileName names.
// Shard cuts a tensor as PyTorch's placement Shard does, also for a mesh of ranks:
//
//	whole, err := dcp.NewPiece(t)
//	…
//	pieces["layers.0.weight"], err = whole.Shard(0, rank, ranks)
//	…
//	err = dcp.WriteFile(filepath.Join("checkpoint", dcp.FileName(rank)), pieces, nil)
//
// A PyTorch job of any number of ranks loads such a directory with dcp.load and
// HuggingFaceStorageReader, and a Go job opens one that PyTorch saved. Open, Shard and
// WriteFile together cut a checkpoint for another number of ranks.
//
// # Missing and stale files
//
// A .metadata lists files and shapes: what is missing is an error. The format in safetensors
// files has neither a list of files nor the shapes of the whole tensors. Every
// *.safetensors file in the directory is a part of the checkpoint, and a tensor is as
// large as its pieces reach. A missing file mostly leaves a hole, which is an error; but
// if the file held the last rows of every tensor, nothing reveals it: compare shapes
// with the model's. A stale file of another save may overlap the new ones or fit
// between them. So save to an empty directory each time, and let readers open it when
// all ranks are done. PyTorch has the same limits.
//
// # Lifetime and concurrency
//
// The File owns the files of the pieces: Close waits for reads in progress and closes
// them. All functions may be called concurrently, as by ranks in one process. Joined
// tensors have no View; Append, WriteTo and the writers copy them. A tensor that one
// file holds whole keeps its View. A panic in a callback, such as a method of an
// [fs.FS], is raised again in the caller.
//
// # Untrusted files
//
// Offsets come from a JSON text in the metadata. It is read strictly: duplicate names
// are errors, and so are offsets that are not integers from 0 to [math.MaxInt], or not
// one for each dimension. Holes, overlaps, and pieces that differ in dtype or rank are
// errors, too. A checkpoint has at most 10,000 files, a tensor at most 64 dimensions,
// and pieces nest at most 64 deep; a mesh of ranks needs a level for each of its
// dimensions. Memory is bounded by the headers. Otherwise the promises of package
// safetensors hold.
//
// A .metadata is a pickle, and .distcp files are files of torch.save: they are read as package
// torch does, as data. Chunks that overlap, leave holes, share bytes, or lie outside of their
// tensor or their file are errors, though PyTorch loads them. The pickle may have 100 MB and 28
// million opcodes, enough for 300,000 chunks, which take up to 3 GB. A chunk is looked into
// when its tensor is first read; what it holds must be what .metadata says.
package dcp
