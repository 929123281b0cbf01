// Package remote opens safetensors files over HTTP, and whole repositories of
// hubs, without downloading them.
//
// # Use
//
// A file from here is a [safetensors.File] like any other. Open reads its header
// only, bytes of tensors are fetched when they are asked for:
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
// paths, be it one file or many shards:
//
//	f, err := remote.OpenRepo(ctx, "mistralai/Mistral-7B-v0.3", "main")
//	…
//	fmt.Println(f.ParameterCount())
//
// The package-level functions suit most programs. A [Client] holds an
// *http.Client, a header or a token of one's own.
//
// The context given to Open or OpenRepo governs the File for as long as it is
// used: once it is done, all requests end and all reads fail with its error. A
// context with a deadline for opening only would end the File too.
//
// View needs the data in memory and fails with errors.ErrUnsupported; Append and
// WriteTo copy.
//
// # Requests and consistency
//
// Opening a file costs one request if its header is not longer than 100,000
// bytes, else two. For a sharded model OpenRepo sends two more: for the single
// file that is not there, and for the index. Redirects come on top, once a file:
// where they lead is remembered until it is refused there, as signed URLs expire.
//
// Up to 20 requests are in flight for each Open or OpenRepo. Reads that are near
// one another, such as the rows of a slice or the tensors that several goroutines
// read while others are in flight, are merged into one request across gaps of up
// to 256 KiB; one request covers up to 8 MiB. Bodies go straight into the memory
// that is to be filled, gaps nowhere: what is in flight takes 32 KiB a request.
// Many small tensors are best read by many goroutines, or by one Write.
//
// The file that was opened stays the file that is read. The first answer pins
// its size and its ETag, or Last-Modified if it has none; later requests carry
// If-Match or If-Unmodified-Since, later answers are compared, and a difference
// is an error that is [ErrChanged]. A server that sends none of the two is
// trusted not to change a file without changing its size. OpenRepo takes all
// shards from the commit that the index came from, if the hub names it.
//
// The server must support range requests, unless the file is not longer than
// the first request. One that does not is found out by its first answer, and
// nothing more is downloaded.
//
// # Retries
//
// Requests that fail for the moment are tried again, up to 8 times, with
// exponential back-off and jitter from a quarter of a second to ten seconds:
// those answered with 408, 425, 429 or 5xx, and those whose connection breaks or
// brings nothing for 30 seconds. The wait that a Retry-After or RateLimit header
// asks for is honoured up to a minute. What had arrived is kept: the next try
// begins at the byte where the last one ended, and the count starts anew when a
// try brought 64 KiB or more.
//
// # Security
//
// The header, token and user information of a URL go to the host that the URL
// names and to no other, be it a subdomain or another port, and not from https
// to http: where a redirect leads elsewhere, the request goes on without them.
// Cookies are left to the jar of the *http.Client. The hub's token is sent to
// the hub's endpoint only, whatever else is opened. Errors name URLs without
// user information and query, where signatures are.
//
// What the server sends is checked as untrusted input: every answer against the
// request, the header as that of any file.
package remote
