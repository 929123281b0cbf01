package remote

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"time"
)

const (
	maxTries     = 8                // of a request that brings less than leastTry
	maxDials     = 3                // of one to a host that has never answered: they take less than a second
	leastTry     = 1 << 10          // bytes after which the count of tries restarts
	goodTry      = 64 << 10         // bytes after which a failed try is followed by another without a pause
	firstPause   = time.Second / 4  // before the second try; doubled before each later one
	longestPause = 10 * time.Second // unless the server asks for more
	longestAsked = time.Minute      // if it does
	stallTimeout = 30 * time.Second
)

// A temporary error is worth another try.
type temporary struct {
	error
	after time.Duration // the wait that the server asks for
	short bool          // nothing went wrong: the answer holds less than was asked for
	busy  bool          // the server refuses for now, with 429 or 503
	dial  bool          // there was no connection to send the request on
}

func (t *temporary) Unwrap() error { return t.error }

// A pace is how tries wait; the zero value waits in real time. Tests have others.
type pace struct {
	pause func(ctx context.Context, d time.Duration) // waits for d or the end of ctx
	stall time.Duration                              // how long a request may bring nothing
}

func (p pace) orReal() pace {
	if p.pause == nil {
		p.pause = pause
	}
	p.stall = cmp.Or(p.stall, stallTimeout)
	return p
}

// retry calls try, which returns the number of bytes it brought, until it succeeds,
// fails for good or has failed too often, which failed counts. A try that brings
// leastTry bytes does not count, so the bytes still missing bound the number of tries.
// The next one follows without a pause if the server merely sends less than it is asked
// for, or if goodTry bytes came before the failure.
//
// A request is not given up on a busy server that has served another one of this
// Open meanwhile: at its limit it refuses some of many requests again and again. A host
// that takes no connection is given up soon, unless it has served one before: then it
// may be restarting.
func (s *session) retry(failed *int, try func() (int64, error)) error {
	seen := s.served.Load()
	for {
		n, err := try()
		if err == nil || n >= leastTry {
			s.served.Add(1)
		}
		if err == nil {
			return nil
		}
		if done := s.ctx.Err(); done != nil {
			if !errors.Is(err, done) {
				err = fmt.Errorf("%w: %w", done, err)
			}
			return err
		}
		var t *temporary
		if !errors.As(err, &t) {
			return err
		}
		if n >= leastTry {
			*failed = 0
			if t.short || n >= goodTry {
				continue
			}
		}
		if now := s.served.Load(); t.busy && now != seen {
			seen, *failed = now, min(*failed, maxTries-2)
		}
		limit := maxTries
		if t.dial && s.served.Load() == 0 {
			limit = maxDials
		}
		if *failed++; *failed >= limit {
			return fmt.Errorf("%w (tried %d times)", err, *failed)
		}
		s.pause(s.ctx, max(backOff(*failed), min(t.after, longestAsked)))
	}
}

// backOff returns the wait after a number of failures. Half of it is random, so
// that clients that failed together come back apart.
func backOff(failed int) time.Duration {
	d := min(firstPause<<(failed-1), longestPause)
	return d/2 + rand.N(d/2)
}

// pause waits for d, or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// An exchange is one try, and the body of its answer. It is canceled when nothing arrives
// for a while.
type exchange struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	stall  time.Duration
	watch  *time.Timer   // cancels after stall
	body   io.ReadCloser // as it arrives; nil: there is no answer yet
}

func (s *session) exchange() *exchange {
	x := &exchange{stall: s.stall}
	x.ctx, x.cancel = context.WithCancelCause(s.ctx)
	x.watch = time.AfterFunc(s.stall, func() { x.cancel(errStalled) })
	return x
}

// Close ends the exchange.
func (x *exchange) Close() error {
	if x.body != nil {
		x.body.Close()
	}
	x.watch.Stop()
	x.cancel(nil)
	return nil
}

var errStalled = &temporary{error: errors.New("the connection stalled")}

// cause returns the cause of an error of the exchange.
func (x *exchange) cause(err error) error {
	if err != nil && context.Cause(x.ctx) == errStalled {
		return errStalled
	}
	return err
}

// Read reads the body of the answer. Its errors are temporary.
func (x *exchange) Read(p []byte) (int, error) {
	x.watch.Reset(x.stall)
	n, err := x.body.Read(p)
	x.watch.Stop() // a slow reader is no stalled server
	if err != nil && err != io.EOF {
		err = &temporary{error: &foreign{err}}
	}
	return n, err
}

// sendError returns the error of a request without an answer. It is temporary unless the
// host does not exist, does not speak TLS or has the wrong certificate, or the transport
// has retried already.
func sendError(err error) error {
	var dns *net.DNSError
	var cert *tls.CertificateVerificationError
	var own interface{ Tried() bool }
	if errors.As(err, &dns) && dns.IsNotFound || errors.As(err, &cert) || errors.Is(err, http.ErrSchemeMismatch) ||
		errors.As(err, &own) && own.Tried() {
		return &foreign{err}
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	var op *net.OpError
	dial := errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect")
	return &temporary{error: &foreign{err}, dial: dial}
}

// retryable reports whether a request may succeed later, by the status of its
// answer.
func retryable(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status >= 500
}

// rateLimit finds the seconds until the limit resets in a RateLimit header
// (draft-ietf-httpapi-ratelimit-headers). The Hugging Face Hub sends
// "resolvers";r=0;t=55.
var rateLimit = regexp.MustCompile(`;\s*t=(\d+)`)

// askedPause returns the wait that an answer asks for before the next request.
// Retry-After holds seconds or a date (RFC 9110, section 10.2.3). Answers of any status
// may carry RateLimit; only with 429 is the limit reached.
func askedPause(resp *http.Response, now time.Time) time.Duration {
	text := resp.Header.Get("Retry-After")
	if text == "" && resp.StatusCode == http.StatusTooManyRequests {
		if m := rateLimit.FindStringSubmatch(resp.Header.Get("RateLimit")); m != nil {
			text = m[1]
		}
	}
	if n, err := strconv.ParseUint(text, 10, 32); err == nil {
		return time.Duration(n) * time.Second
	}
	if date, err := http.ParseTime(text); err == nil {
		return date.Sub(now)
	}
	return 0
}
