package remote

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/prefix"
	"github.com/gosafetensors/safetensors/internal/transport"
	"github.com/gosafetensors/safetensors/internal/variant"
)

// A Client opens files over HTTP. The zero value is ready to use. Methods may be called
// concurrently; the fields must not be changed at the same time.
type Client struct {
	// HTTP sends the requests. It is not modified. Its CheckRedirect is called
	// after the checks of this package, with the header that will be sent. If HTTP
	// or its Transport is nil, the Client uses a transport that keeps enough idle
	// connections for all requests in flight.
	HTTP *http.Client

	// Header is added to each request to the host of the opened URL, and to no
	// other host.
	Header http.Header

	pace pace
}

// Open opens a safetensors file by its URL, with the zero Client.
func Open(ctx context.Context, rawURL string) (*safetensors.File, error) {
	return new(Client).Open(ctx, rawURL)
}

// Open opens a safetensors file by its http or https URL. If that is the URL of an index, Open
// opens the shards that the index names, relative to that URL. The URL of an index ends in
// .index.json, or for a variant such as fp16 in .safetensors.index.fp16.json. Open reads only
// headers. ctx governs not only Open but also the File.
//
// After an answer of 404 or 410 the error wraps [fs.ErrNotExist], after 401 or 403
// [fs.ErrPermission]. A file that breaks a rule of the format is a
// *[safetensors.FormatError].
func (c *Client) Open(ctx context.Context, rawURL string) (*safetensors.File, error) {
	s, u, err := c.session(ctx, rawURL)
	if err != nil {
		return nil, prefix.Add(err)
	}
	if !(variant.Endings{".safetensors"}).IsIndex(u.Path) {
		return prefix.Added(openFile(s, u))
	}
	index, err := download(s, u)
	if err != nil {
		return nil, prefix.Add(err)
	}
	f, err := safetensors.OpenShards(bytes.NewReader(index), func(shard string) (*safetensors.File, error) {
		return openFile(s, u.ResolveReference(&url.URL{Path: shard})) // next to the index
	})
	return f, prefix.Add(openError(u, err))
}

// ReadFile returns the content of a small file next to a model, such as its
// configuration, by its http or https URL. A file above 64 MiB is an error. Retries and
// errors are those of Open, but each try starts from the beginning.
func (c *Client) ReadFile(ctx context.Context, rawURL string) ([]byte, error) {
	s, u, err := c.session(ctx, rawURL)
	if err != nil {
		return nil, prefix.Add(err)
	}
	return prefix.Added(download(s, u))
}

// session returns a new session for one Open, and the parsed URL.
func (c *Client) session(ctx context.Context, rawURL string) (*session, *url.URL, error) {
	u, err := parseURL(rawURL)
	if err == nil {
		err = checkHeader(c.Header)
	}
	if err != nil {
		return nil, nil, err
	}
	s := &session{pace: c.pace.orReal(), ctx: ctx, header: c.Header, slots: make(chan struct{}, transport.InFlight)}
	s.http = *cmp.Or(c.HTTP, new(http.Client))
	s.http.Transport = vetted{cmp.Or(s.http.Transport, transport.Default())}
	return s, u, nil
}

// checkHeader refuses names and values that net/http refuses to send, because every try would fail.
// The usual cause is a token read from a file, with the newline at its end.
func checkHeader(h http.Header) error {
	const token = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" // RFC 9110, section 5.6.2
	for name, values := range h {
		if name == "" || strings.Trim(name, token) != "" {
			return fmt.Errorf("invalid header name %q", name)
		}
		for _, v := range values {
			if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
				return fmt.Errorf("the value of header %q has a control character, such as a newline", name)
			}
		}
	}
	return nil
}

// openFile opens the file at a URL.
func openFile(s *session, u *url.URL) (*safetensors.File, error) {
	o, err := newObject(s, u)
	if err != nil {
		return nil, openError(u, err)
	}
	f, err := safetensors.NewFile(o, o.size)
	o.opened()
	return f, openError(u, err)
}

// maxDownload is the largest size in bytes of a file that is downloaded as a whole. It equals the
// limit of safetensors.OpenShards for an index.
const maxDownload = 64 << 20

// download returns the content of the file at a URL. It accepts no compression, because a body of
// 64 KiB could expand to maxDownload.
func download(s *session, u *url.URL) ([]byte, error) {
	o := &object{session: s, url: u, size: -1, most: maxDownload, noRanges: true}
	err := o.fetch([]part{{}})
	switch {
	case errors.Is(err, errNoRanges):
		return nil, openError(u, fmt.Errorf("it has more than %d bytes", maxDownload))
	case err != nil:
		return nil, openError(u, err)
	}
	return *o.head.Load(), nil
}
