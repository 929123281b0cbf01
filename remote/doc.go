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
// Package hub opens models on the Hugging Face Hub.
//
// The package-level function suits most programs. A [Client] can have its own
// *http.Client and header, and also reads small files next to a model. Metrics and rate
// limits can be added in its [http.RoundTripper], which sees every request; use
// [safetensors.Watch] to show progress.
//
// The context given to Open governs the File as long as it is used: once the context
// is done, all requests end, and reads that need one fail with its error. A deadline
// meant for opening alone would end the File, too.
//
// View needs the data in memory and fails with [errors.ErrUnsupported]; Elements, Append
// and WriteTo copy.
//
// # Requests and consistency
//
// Opening a file costs one request if its header has at most 100,000 bytes, otherwise
// two. If a server answers 416 because the file is shorter than the requested range, the
// next request asks for the whole file. Redirects add to that, once per file: the File
// remembers the final URL until the server refuses it, because signed URLs expire.
//
// Each File has up to 20 requests in flight. Reads that are close together, such as the
// rows of a slice or the tensors that several goroutines read, are merged into one
// request: across gaps of up to 256 KiB, up to 8 MiB in all. Bodies go straight into the
// memory of the caller, without the gaps, so that a request takes 32 KiB of memory. To
// read many small tensors, use many goroutines or one Write.
//
// Reads always see the file that was opened. The first answer pins its size and
// its ETag, or Last-Modified if it has no ETag. Later requests carry If-Match or
// If-Unmodified-Since, later answers are compared, and a difference is an error
// wrapping [ErrChanged]. If a server sends neither, only a change of size is
// detected.
//
// The server must support range requests, unless the file is shorter than the
// first request. If it does not, the first answer shows that, and nothing more is
// downloaded.
//
// # Retries
//
// A request is tried up to 8 times if the answer is 408, 425, 429 or 5xx, or if the
// connection breaks or stalls for 30 seconds. The waits grow from a quarter of a second to ten
// seconds; each is shortened at random, by at most half. A server can ask for a wait of up to a
// minute with Retry-After, or with RateLimit in an answer of 429.
//
// The next try starts where the last one ended. The count restarts after a try that
// received 1 KiB. There is no wait after a try that received 64 KiB, or after an answer of
// at least 1 KiB that was merely shorter than requested.
//
// A request that a server refuses with 429 or 503 is repeated as long as other requests of
// the same Open are served. A host that accepts no connection, and has not answered before,
// is tried 3 times within a second. A transport that retries by itself returns an error with
// a method Tried() bool that returns true: then the request is not sent again.
//
// # Security
//
// The Client's header and the user information of a URL go to the host of that URL and
// to no other, not even a subdomain or another port, and not from https to http.
// Redirects to another host are followed without them. Cookies are left to the jar of
// the *http.Client. Errors contain URLs without user information and query, which may hold
// signatures; they quote a server's text and shorten it.
//
// Answers are untrusted input: each is checked against its request, and the header of
// the file is validated like that of any other file.
package remote
