package remote

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/osfile"
)

// A Client opens files over HTTP. The zero value is ready to use. Methods may be
// called concurrently; fields must not change meanwhile.
type Client struct {
	// HTTP sends the requests. It is not modified. Its CheckRedirect is called
	// after the checks of this package, with the header as it will be
	// sent. If HTTP or its Transport is nil, enough idle connections are kept
	// for all requests in flight.
	HTTP *http.Client

	// Header is added to each request to the host of the opened URL, and to no
	// other host.
	Header http.Header

	// Endpoint is the base URL of the hub. The default is the environment
	// variable HF_ENDPOINT, else https://huggingface.co.
	Endpoint string

	// Token authorizes requests to the hub, also those of Open. It is sent
	// nowhere else, and an Authorization in Header overrides it. The default is
	// HF_TOKEN, else the content of the file HF_TOKEN_PATH, which defaults to
	// token in HF_HOME, which defaults to ~/.cache/huggingface. There is no
	// default if HF_HUB_DISABLE_IMPLICIT_TOKEN is 1.
	Token string

	pause func(ctx context.Context, d time.Duration) // waits for d or the end of ctx; nil: in real time
	stall time.Duration                              // how long a request may bring nothing; 0: stallTimeout
}

// Open opens a safetensors file by its URL, with the zero Client.
func Open(ctx context.Context, rawURL string) (*safetensors.File, error) {
	return new(Client).Open(ctx, rawURL)
}

// OpenRepo opens a model on the hub, with the zero Client.
func OpenRepo(ctx context.Context, repo, revision string) (*safetensors.File, error) {
	return new(Client).OpenRepo(ctx, repo, revision)
}

// OpenRepoFile opens a file of a repository on the hub, with the zero Client.
func OpenRepoFile(ctx context.Context, repo, revision, name string) (*safetensors.File, error) {
	return new(Client).OpenRepoFile(ctx, repo, revision, name)
}

// Open opens a safetensors file by its http or https URL. If the URL ends in
// .index.json, Open opens the shards that the index names, next to it. It reads
// headers only. ctx governs the File too, not only Open.
//
// After an answer of 404 or 410 the error wraps fs.ErrNotExist, after 401 or 403
// fs.ErrPermission. A file that breaks a rule of the format is a
// *safetensors.FormatError.
func (c *Client) Open(ctx context.Context, rawURL string) (*safetensors.File, error) {
	f, err := c.open(ctx, rawURL)
	return f, prefixed(err)
}

func (c *Client) open(ctx context.Context, rawURL string) (*safetensors.File, error) {
	u, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	s := c.session(ctx)
	if !strings.HasSuffix(u.Path, osfile.IndexSuffix) {
		return s.openFile(u)
	}
	x, err := s.download(u)
	if err != nil {
		return nil, err
	}
	return s.openShards(x, func(shard string) *url.URL {
		return u.ResolveReference(&url.URL{Path: shard})
	})
}

// inFlight limits the concurrent requests of one Open or OpenRepo.
const inFlight = 20

// A session is the state that all requests of one Open or OpenRepo share.
type session struct {
	ctx    context.Context // until Close
	http   *http.Client    // a copy of the caller's
	header http.Header     // for the host of the opened URL
	hub    hub             // which adds its token
	hubErr error           // why there is no hub
	slots  chan struct{}   // holds an element for each request in flight
	pause  func(context.Context, time.Duration)
	stall  time.Duration
	served atomic.Int64 // tries that brought what they were sent for
}

func (c *Client) session(ctx context.Context) *session {
	s := &session{
		ctx:    ctx,
		http:   new(http.Client),
		header: c.Header,
		slots:  make(chan struct{}, inFlight),
		pause:  c.pause,
		stall:  c.stall,
	}
	s.hub, s.hubErr = c.hub()
	if c.HTTP != nil {
		*s.http = *c.HTTP
	}
	if s.http.Transport == nil {
		s.http.Transport = transport()
	}
	s.http.Transport = vetted{s.http.Transport}
	if s.pause == nil {
		s.pause = pause
	}
	if s.stall == 0 {
		s.stall = stallTimeout
	}
	return s
}
