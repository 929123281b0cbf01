// Package hub opens models in repositories of the Hugging Face Hub, or of a server
// that has its paths, without downloading them.
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
// Both read headers only; tensors are fetched when they are read. Requests, retries
// and the context are those of package remote, and so are the errors.
//
// CacheDir finds a repository that the Python tools have downloaded, and sends
// nothing:
//
//	dir, err := hub.CacheDir("mistralai/Mistral-7B-v0.3", "main")
//	…
//	f, err := safetensors.Open(dir)
//
// The package-level functions suit most programs. A [Client] carries its own
// *http.Client, endpoint or token.
//
// # Requests and consistency
//
// For a sharded model, Open sends two requests more than for the shards: for the
// single file that is missing, and for the index.
//
// The first answer of the hub names the commit that a branch or a tag stands for. All
// later requests of the File are for that commit: its shards belong together, and a
// push to the branch does not disturb it.
//
// # Environment
//
// HF_ENDPOINT, HF_TOKEN, HF_TOKEN_PATH, HF_HUB_DISABLE_IMPLICIT_TOKEN, HF_HOME,
// XDG_CACHE_HOME and HF_HUB_CACHE mean what they mean to the Python tools. With
// HF_HUB_OFFLINE=1 nothing is sent: Open and OpenFile open what the cache holds.
//
// # Security
//
// The token goes to the endpoint and to no other host. Names that a server, a caller
// or a cache gives lead out of neither the repository nor the cache.
package hub
