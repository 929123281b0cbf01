// Package dcp reads and writes distributed checkpoints, in which each rank of a PyTorch job has
// saved its own pieces of the tensors. It reads both formats of torch.distributed.checkpoint: a
// .metadata with .distcp files, and the safetensors files of
// HuggingFaceStorageWriter(save_distributed=True). It writes the second. It also reads files that
// ranks saved with torch.save, such as model_world_size_8_rank_3.pt.
//
// # Reading
//
// Open joins the pieces. The result is a [safetensors.File] like any other, with whole tensors:
//
//	f, err := dcp.Open("checkpoint")
//	…
//	defer f.Close()
//	err = safetensors.WriteFile("model.safetensors", maps.Collect(f.Tensors()), f.Metadata())
//
// That consolidates a checkpoint of any size in constant memory, because everything is lazy:
// opening reads the headers, reading a tensor reads its pieces, and a slice reads only the selected
// part of them.
//
// Pieces may tile a tensor in any way: along several dimensions, in different sizes, and some of
// them empty, as when there are more ranks than rows. Ranks may save the same piece. Then the piece
// in the first file is read, and its copies are not compared.
//
// # Files of torch.save
//
// Each rank that calls torch.save(model.state_dict()) with FSDP or DTensor leaves a file:
// model_world_size_8_rank_3.pt (verl, SkyRL, oumi), model_rank_3_of_8.pt, model.rank_3.pth (dinov2) or
// model_3.pt (torchtitan). Other files of the ranks next to those of the model, such as optim and extra_state,
// are ignored. Each file describes the mesh of ranks that the rank was in, and how a tensor is
// divided: by Shard, _StridedShard and Replicate on meshes of up to 8 dimensions, by PyTorch 2.1 to
// 2.15, or as the shards of FSDP1. That description, and not the name of a file, determines where a
// piece belongs, and which file is missing.
//
// A plain tensor, or a part that several ranks have, must be equal in all of them, bit for bit.
// Open compares parts of up to 64 KiB; larger parts are compared when they are read. Entries
// without tensors become metadata if they are equal in all files, and are left out otherwise.
//
// Some files are refused: sums that are pending (Partial); the flat parameters of FSDP1, because
// their files do not describe which tensors they contain; tensors that PyTorch up to 2.4 divided
// twice along one dimension, because the files do not contain the order; tensors divided by a mesh
// whose ranks do not ascend, because FSDP2 and distribute_tensor then divide them in different
// orders; and files of several saves in one directory.
//
// # Writing
//
// A rank of a Go job writes its pieces with WriteFile, to the file that FileName names. Shard cuts
// a tensor as PyTorch's placement Shard does, even for a mesh of ranks:
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
// A .metadata lists files and shapes, so that a missing file is an error. Ranks that save with
// use_collectives=False each write such a file of their own, for example __3.metadata. These files list
// the shapes, but not the ranks: if both files of each of the last ranks are missing, nothing reveals it
// unless a tensor has a hole. Chunks that several of these ranks saved must be equal. They are compared
// when they are read.
//
// The format in safetensors files lists neither the files nor the shapes of the whole tensors. Every
// *.safetensors file in the directory is a part of the checkpoint, and a tensor is as large as its pieces
// reach. A missing file mostly leaves a hole, which is an error. But if the file held the last rows of
// every tensor, nothing reveals it: compare shapes with those of the model. A stale file of another save
// may overlap the new ones or fit between them. So save to an empty directory each time, and let
// readers open it only after all ranks are done. PyTorch has the same limits.
//
// # Lifetime and concurrency
//
// The File owns the files of the pieces: Close waits for reads in progress and closes the files.
// All functions may be called concurrently, for example by ranks in one process. Joined tensors
// have no View; Append, WriteTo and the writers copy them. A tensor that one file holds as a whole
// keeps its View. A panic in a callback, such as a method of an [fs.FS], is raised again in the
// caller.
//
// # Untrusted files
//
// Offsets come from a JSON text in the metadata, which is read strictly: duplicate names are
// errors. Each dimension must have one offset, an integer from 0 to [math.MaxInt]. Holes, overlaps,
// and pieces that differ in dtype or rank are also errors. A checkpoint may have at most 10,000
// files, a tensor at most 64 dimensions, and pieces may nest at most 64 deep; a mesh of ranks needs
// a level for each of its dimensions. The headers bound the memory. Apart from that, the promises
// of package safetensors hold.
//
// Files of ranks are read one after another. They may have at most 524,288 parts of tensors, which
// take about half a gigabyte. The meshes and sizes that they claim are compared with the parts that
// they contain before any memory is allocated for them.
//
// A .metadata is a pickle, and .distcp files are files of torch.save. Both are read as data, as in
// package torch. Chunks that overlap, leave holes, share bytes, or lie outside of their tensor or
// their file are errors, though PyTorch loads them. The pickle may have at most 100 MB and 28
// million opcodes, enough for 300,000 chunks, and reading it takes at most 3 GB of memory. A chunk
// is opened when its tensor is first read; its dtype and shape must be those in the .metadata.
package dcp
