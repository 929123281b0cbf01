package remote

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/osfile"
)

// A Client opens files over HTTP. Its zero value is ready to use. Its methods may
// be called concurrently; its fields must not change meanwhile.
type Client struct {
	// HTTP sends the requests. It is not modified. Its CheckRedirect is called
	// after the checks of this package, with the header as it will be
	// sent. If HTTP or its Transport is nil, enough idle connections are kept
	// for all requests in flight.
	HTTP *http.Client

	// Header is sent along with each request to the host of the URL that is
	// opened, and to no other.
	Header http.Header

	// Endpoint is the base URL of the hub. If it is empty, that is the value of
	// the environment variable HF_ENDPOINT or else https://huggingface.co.
	Endpoint string

	// Token authorizes at the hub, also in Open of a URL there; it is sent
	// nowhere else. If it is empty, that is the value of HF_TOKEN or else the
	// content of the file that HF_TOKEN_PATH names, by default token in
	// HF_HOME, by default ~/.cache/huggingface; unless
	// HF_HUB_DISABLE_IMPLICIT_TOKEN is 1. An Authorization in Header precedes it.
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

// Open opens a safetensors file by its http or https URL or, if that ends in
// .index.json, the shards that the index names, beside it. It reads headers
// only. ctx ends all that the File does, not only Open.
//
// An answer of 404 or 410 is an error that is fs.ErrNotExist, one of 401 or 403
// fs.ErrPermission; a file that breaks a rule of the format is a
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
	s, err := c.session(ctx)
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(u.Path, osfile.IndexSuffix) {
		return s.openIndex(u, func(shard, _ string) (*url.URL, error) {
			return u.ResolveReference(&url.URL{Path: shard}), nil
		})
	}
	return s.openFile(u)
}

// inFlight is how many requests of one Open or OpenRepo are under way at once.
const inFlight = 20

// A session is what all requests of one Open or OpenRepo share.
type session struct {
	ctx    context.Context // until Close
	http   *http.Client    // a copy of the caller's
	header http.Header     // for the host of the URL that is opened
	hub    hub             // and what is added for this one
	slots  chan struct{}   // holds an element for each request in flight
	pause  func(context.Context, time.Duration)
	stall  time.Duration
}

func (c *Client) session(ctx context.Context) (*session, error) {
	hub, err := c.hub()
	if err != nil {
		return nil, err
	}
	s := &session{
		ctx:    ctx,
		http:   new(http.Client),
		header: c.Header,
		hub:    hub,
		slots:  make(chan struct{}, inFlight),
		pause:  c.pause,
		stall:  c.stall,
	}
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
	return s, nil
}
