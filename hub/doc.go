// Package hub opens models in repositories of the Hugging Face Hub, or of a server
// with the same paths, without downloading them.
//
// # Use
//
// Open opens a model, in one file or in many shards. OpenFile opens any other file of
// a repository, or the index of a directory in it:
//
//	f, err := hub.Open(ctx, "mistralai/Mistral-7B-v0.3", "main")
//	…
//	defer f.Close()
//	fmt.Println(f.ParameterCount())
//	f, err = hub.OpenFile(ctx, "stabilityai/sdxl-turbo", "", "unet/diffusion_pytorch_model.fp16.safetensors")
//
// Both read headers only; tensors are fetched when they are read. Requests, retries,
// the context and errors are those of package remote: the context given to Open governs
// the File as long as it is used, and View fails with [errors.ErrUnsupported].
//
// CacheDir finds a repository that the Python tools have downloaded, and sends
// nothing:
//
//	dir, err := hub.CacheDir("mistralai/Mistral-7B-v0.3", "main")
//	…
//	f, err := safetensors.Open(dir)
//
// The package-level functions suit most programs. A [Client] carries its own
// *http.Client, endpoint or token; it also lists the files of a repository and reads
// small ones, such as config.json. Its FS is for functions that take an [fs.FS], such as
// OpenFS of package torch.
//
// # Requests and consistency
//
// A sharded model costs two requests more than its shards: one for the single file,
// which is missing, and one for the index. If neither is there, Open lists the files and
// chooses as safetensors.OpenFS does, which costs one request more.
//
// The first answer of the hub names the commit of a branch or tag. All later requests of
// the File are for that commit: its shards belong together, and a push to the branch
// does not disturb it.
//
// # Environment
//
// HF_ENDPOINT, HF_TOKEN, HF_TOKEN_PATH, HF_HUB_DISABLE_IMPLICIT_TOKEN, HF_HOME,
// XDG_CACHE_HOME and HF_HUB_CACHE have the meaning that the Python tools give them. With
// HF_HUB_OFFLINE=1 nothing is sent: Open, OpenFile and ReadFile take files from the
// cache, and the context governs nothing.
//
// # Security
//
// The token goes to the endpoint and to no other host. No name that a server, a caller
// or a cache gives leads out of the repository or the cache.
package hub
