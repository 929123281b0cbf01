package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"time"
)

const (
	maxTries     = 8                // of a request that brings less than goodTry
	goodTry      = 64 << 10         // bytes after which the count of tries starts anew
	firstPause   = time.Second / 4  // before the second try; doubled for each one after it
	longestPause = 10 * time.Second // where the server does not ask for more
	longestAsked = time.Minute      // where it does
	stallTimeout = 30 * time.Second
)

// A temporary error is one after which trying again makes sense.
type temporary struct {
	error
	after time.Duration // how long the server asks to wait
}

func (t *temporary) Unwrap() error { return t.error }

// retry calls try, which returns how many bytes it brought, until it succeeds,
// fails for good or has failed too often. As each try that does not count has
// brought goodTry bytes, the number of tries is bounded by the bytes to come.
func (s *session) retry(try func() (int64, error)) error {
	for failed := 0; ; {
		n, err := try()
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
		if n >= goodTry {
			failed = 0
			continue
		}
		if failed++; failed == maxTries {
			return fmt.Errorf("%w (tried %d times)", err, maxTries)
		}
		s.pause(s.ctx, max(backOff(failed), min(t.after, longestAsked)))
	}
}

// backOff returns how long to wait after so many failures: the second half of
// the wait is random, so that clients that failed together come back apart.
func backOff(failed int) time.Duration {
	d := min(firstPause<<(failed-1), longestPause)
	return d/2 + rand.N(d/2)
}

// pause waits for d, or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// An exchange is one try. It ends when nothing arrives for a while.
type exchange struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	stall  time.Duration
	watch  *time.Timer // cancels after stall
}

func (s *session) begin() *exchange {
	x := &exchange{stall: s.stall}
	x.ctx, x.cancel = context.WithCancelCause(s.ctx)
	x.watch = time.AfterFunc(s.stall, func() { x.cancel(errStalled) })
	return x
}

func (x *exchange) end() {
	x.watch.Stop()
	x.cancel(nil)
}

var errStalled = &temporary{error: errors.New("the connection stalled")}

// cause returns what lies behind an error of the exchange.
func (x *exchange) cause(err error) error {
	if err != nil && context.Cause(x.ctx) == errStalled {
		return errStalled
	}
	return err
}

// body returns the body of an answer. Its errors are temporary.
func (x *exchange) body(resp *http.Response) io.Reader { return &watched{resp.Body, x} }

type watched struct {
	io.Reader
	*exchange
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	w.watch.Reset(w.stall)
	if err != nil && err != io.EOF {
		err = &temporary{error: err}
	}
	return n, err
}

// sendError returns the error of a request that got no answer. What is wrong
// for good is told apart: a host that does not exist or does not speak TLS, a
// certificate that does not match.
func sendError(err error) error {
	var u *url.Error
	if errors.As(err, &u) { // its text holds the URL, with the secrets in it
		err = u.Err
	}
	var dns *net.DNSError
	var cert *tls.CertificateVerificationError
	if errors.As(err, &dns) && dns.IsNotFound || errors.As(err, &cert) || errors.Is(err, http.ErrSchemeMismatch) {
		return err
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return &temporary{error: err}
}

// retryable reports whether a request answered with a status may later succeed.
func retryable(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status >= 500
}

// rateLimit finds the seconds until the limit is lifted in a RateLimit header
// (draft-ietf-httpapi-ratelimit-headers), which is how the Hugging Face Hub says
// it: "resolvers";r=0;t=55.
var rateLimit = regexp.MustCompile(`;\s*t=(\d+)`)

// askedPause returns how long an answer asks to wait before the next request.
// Retry-After has seconds or a date (RFC 9110, section 10.2.3).
func askedPause(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	if m := rateLimit.FindStringSubmatch(h.Get("RateLimit")); text == "" && m != nil {
		text = m[1]
	}
	if n, err := strconv.ParseUint(text, 10, 32); err == nil {
		return time.Duration(n) * time.Second
	}
	if date, err := http.ParseTime(text); err == nil {
		return date.Sub(now)
	}
	return 0
}
