// Package torch reads the files of torch.save: .pt, .pth, .bin and .ckpt. It executes no code that
// they contain.
//
// # Use
//
// A file opens as a [safetensors.File] like any other:
//
//	f, err := torch.Open("pytorch_model.bin")
//	…
//	defer f.Close()
//	err = safetensors.WriteFile("model.safetensors", maps.Collect(f.Tensors()), f.Metadata())
//
// Give the written file "format": "pt" if it has any metadata, from the file of torch.save or from
// [safetensors.Tie]: accelerate and huggingface_hub refuse a file whose metadata lacks this key.
//
// That converts a file of any size, because tensors are lazy: opening reads the pickle and a few
// bytes of each storage. A training program may save several dicts in one file: [Keys] lists them,
// and [Opener] takes one of them.
//
// Both formats of torch.save are read: the zip archive, and the stream of pickles that PyTorch 0.2
// to 1.5 wrote. TorchScript and older files are refused. All functions of this package and all
// methods of the File may be called concurrently.
//
// # Which tensors
//
// A tensor in a dict, list or tuple within the selected one is named by its path, such as
// "state.0.exp_avg". If the whole file is one tensor, its name is "tensor". A module, as
// torch.save(model) saves it, is read as the dict that its state_dict returns, without changes that
// the program makes by hooks, or by methods of its classes such as get_extra_state. A module that
// PyTorch, bitsandbytes or HQQ has quantised is an error. [safetensors.Tie] recognizes tensors that
// are the same view of one storage, unless their elements repeat or overlap.
//
// Entries without tensors become metadata: a string unchanged, and numbers, bools, None and
// containers of these and of strings as JSON. Any other entry, such as an object of the
// program, is an error, or is left out if Opener.Skip is set. Attributes, such as the _metadata of
// a state dict, are left out, and so is requires_grad.
//
// # Memory
//
// Tensors have no View. Reading a tensor takes memory for its bytes if it is stored transposed. It
// takes memory for the whole storage if that is compressed, as torch.save never does: such storages
// stay in memory, up to 256 MiB in a process, or a single larger one. Elements that repeat or
// overlap (expand, unfold) are gathered block by block.
//
// # Untrusted files
//
// A pickle is a program. This package reads it as data, with an interpreter that cannot call,
// import or look up anything: a call of a function or class that it does not know becomes an object
// that records the call. It knows the functions that make ordered dicts, shapes, tensors and
// parameters, and no others.
//
// Elements must lie in their storage, storages in the file, and members of an archive must not
// overlap. A pickle may have at most 100 MB and 4 million opcodes, a tensor at most 64 dimensions.
// Opening takes up to half a gigabyte of memory for all files of an index together, and a few
// seconds. The tensors of a file may together be 1,024 times as large as the file, or 1 GiB if that
// is more. A compressed storage above 256 MiB that is more than 32 times as large as its compressed
// form is refused. An index has the limits of [safetensors.OpenShards].
//
// A file may still give other weights than PyTorch would load, for example if Python code in it
// would change them after loading. A file of a big-endian machine gives the numbers that were saved.
// PyTorch on a little-endian machine gives others for uint16, uint32 and uint64, whose bytes it does
// not swap.
package torch
