// Package torch reads the files of torch.save: .pt, .pth, .bin and .ckpt. Nothing in them is
// executed.
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
// That converts a file of any size, because tensors are lazy: opening reads the pickle and a
// few bytes of each storage. Training saves several dicts in one file: [Keys] lists them, and
// [Opener] takes one of them.
//
// Both formats of torch.save are read: the zip archive, and the stream of pickles that
// PyTorch wrote before 1.6, back to 0.2. TorchScript and older files are refused. The methods
// of the result may be called concurrently, as all functions here.
//
// # Which tensors
//
// A tensor in a dict, list or tuple within the selected one is named by its path,
// such as "state.0.exp_avg"; a tensor that is all of the file, "tensor". A module, as
// torch.save(model) saves, is the dict that its state_dict returns, without what the program
// changes in that by hooks, or by methods of its classes such as get_extra_state. Those that
// PyTorch, bitsandbytes or HQQ quantised are errors. Tensors that are the same view of one
// storage are equal for [safetensors.Tie], unless their elements repeat or overlap.
//
// Entries without tensors become metadata, a string as it is, the rest as JSON: numbers,
// bools, None, and containers of these. Any other entry, such as an object of the program, is
// an error, or left out by Opener.Skip. Attributes, such as the _metadata of a state dict, are
// left out, and so is requires_grad.
//
// # Memory
//
// Tensors have no View. Reading one takes memory for its bytes if it is stored transposed, and
// for all of its storage if that is compressed, as torch.save never does: such storages stay in
// memory, up to 256 MiB or two of them. Elements that repeat or overlap (expand, unfold) are
// gathered block by block.
//
// # Untrusted files
//
// A pickle is a program. It is read as data, by an interpreter that cannot call, import or
// look up anything: a call of a function or class that it does not know stays an
// object that says what would have been called. It knows those that make ordered dicts,
// shapes, tensors and parameters, and no others.
//
// Elements lie in their storage, storages in the file, and members of an archive do not
// overlap. A pickle has at most 100 MB and 4 million opcodes, which take up to half a
// gigabyte of memory, a tensor at most 64 dimensions. The tensors of a file have at most 1024
// times its bytes, or 1 GiB. A compressed storage above 256 MiB that packs better than 1:32 is
// refused. An index has the limits of [safetensors.OpenShards].
//
// A file may still hold other weights than those that PyTorch would load, for example where
// Python code in it would change them after loading.
package torch
