// Package remote opens safetensors files over HTTP without downloading them.
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
// Models on the Hugging Face Hub are opened by package hub.
//
// The package-level function suits most programs. A [Client] carries its own
// *http.Client or header. Its http.RoundTripper sees every request, which is enough
// for progress, metrics and rate limits.
//
// The context given to Open governs the File as long as it is used: once the context
// is done, all requests end and all reads fail with its error. A deadline meant for
// opening alone would end the File too.
//
// View needs the data in memory and fails with errors.ErrUnsupported; Append and
// WriteTo copy.
//
// # Requests and consistency
//
// Opening a file costs one request if its header has at most 100,000 bytes, else
// two. A server that answers 416 because a file is shorter than the first request is
// asked again for less. Redirects add to that, once per file: the final URL is
// remembered until the server refuses it, as signed URLs expire.
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
// detected.
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
// restarts after a try that brought 1 KiB or more. There is no wait after a try that
// brought 64 KiB, or after an answer that was merely shorter than requested. A request
// that is refused with 429 or 503 is not given up while others of the same Open are
// served. A host that refuses the connection, and has not answered before, is tried 3
// times within a second.
//
// # Security
//
// The header and the user information of a URL go to the host of that URL and to no
// other, not even a subdomain or another port, and not from https to http. A redirect
// to another host is followed without them. Cookies are left to the jar of the
// *http.Client. Errors name URLs without user information and query, where signatures
// are; they quote a server's text and shorten it.
//
// Answers are untrusted input: each is checked against its request, and the
// header like that of any file.
package remote
