// Package remote opens safetensors files over HTTP, and whole repositories of
// hubs, without downloading them.
//
// # Use
//
// The result is a [safetensors.File] like any other. Open reads only the header;
// the bytes of a tensor are fetched when they are read:
//
//	f, err := remote.Open(ctx, "https://example.org/model.safetensors")
//	…
//	defer f.Close()
//	t, err := f.Tensor("model.embed_tokens.weight")
//	…
//	t, err = t.Slice(safetensors.Span(0, 1000))
//	…
//	rows, err := safetensors.Append[float32](nil, t)
//
// OpenRepo opens a model on the Hugging Face Hub, or on a server that has its
// paths, in one file or in many shards. OpenRepoFile opens any other file of a
// repository, or an index in a folder of it:
//
//	f, err := remote.OpenRepo(ctx, "mistralai/Mistral-7B-v0.3", "main")
//	…
//	fmt.Println(f.ParameterCount())
//	f, err = remote.OpenRepoFile(ctx, "stabilityai/sdxl-turbo", "", "unet/diffusion_pytorch_model.fp16.safetensors")
//
// CachedRepo finds a repository that the Python tools have downloaded, and sends
// no requests:
//
//	dir, err := remote.CachedRepo("mistralai/Mistral-7B-v0.3", "main")
//	…
//	f, err := safetensors.Open(dir)
//
// The package-level functions suit most programs. A [Client] carries its own
// *http.Client, header or token. Its http.RoundTripper sees every request, which
// is enough for progress, metrics and rate limits.
//
// The context given to Open, OpenRepo or OpenRepoFile governs the File as long as
// it is used: once the context is done, all requests end and all reads fail with
// its error. A deadline meant for opening alone would end the File too.
//
// View needs the data in memory and fails with errors.ErrUnsupported; Append and
// WriteTo copy.
//
// # Requests and consistency
//
// Opening a file costs one request if its header has at most 100,000 bytes, else
// two. OpenRepo sends two more for a sharded model: for the single file that is
// missing, and for the index. A server that answers 416 because a file is shorter
// than the first request is asked again for less. Redirects add to that, once per
// file: the final URL is remembered until the server refuses it, as signed URLs
// expire.
//
// Each File has up to 20 requests in flight. Reads that are close together, such
// as the rows of a slice or the tensors that several goroutines read, are merged
// into one request across gaps of up to 256 KiB; one request covers up to 8 MiB.
// Bodies go straight into the memory of the caller, gaps are dropped: a request
// takes 32 KiB of memory. To read many small tensors, use many goroutines or one
// Write.
//
// Reads always see the file that was opened. The first answer pins its size and
// its ETag, or Last-Modified if it has no ETag. Later requests carry If-Match or
// If-Unmodified-Since, later answers are compared, and a difference is an error
// wrapping [ErrChanged]. If a server sends neither, only a change of size is
// detected. All shards of a repository are from the commit of the index, if the
// hub names it.
//
// The server must support range requests, unless the file is shorter than the
// first request. A server that does not is detected on the first answer, and
// nothing more is downloaded.
//
// # Retries
//
// A request is tried up to 8 times if it is answered with 408, 425, 429 or 5xx, or
// if its connection breaks or brings nothing for 30 seconds. Exponential back-off
// with jitter waits from a quarter of a second to ten seconds. A wait that a
// Retry-After or RateLimit header asks for is honoured up to a minute. The bytes that
// arrived are kept: the next try starts where the last one ended, and the count
// restarts after a try that brought 1 KiB or more. If that was an answer shorter
// than its request, as servers may give, or 64 KiB, there is no wait.
// A request that is refused with 429 or 503 is not given up while others of the same
// Open are served.
//
// # Security
//
// The header, token and user information of a URL go to the host of that URL and
// to no other, not even a subdomain or another port, and not from https to http.
// A redirect to another host is followed without them. Cookies are left
// to the jar of the *http.Client. The hub's token is sent to the hub's endpoint
// only, whatever else is opened. Errors name URLs without user information and
// query, where signatures are; they quote a server's text and shorten it.
//
// Answers are untrusted input: each is checked against its request, and the
// header like that of any file. Names that a server, a caller or a cache gives
// lead out of neither the repository nor the cache.
package remote
