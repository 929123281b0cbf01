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
	"strconv"
	"strings"
	"time"
)

const (
	maxTries     = 8                // tries of a request in a row that receive less than leastTry each
	maxDials     = 3                // tries of a host that has never answered; together they take less than a second
	leastTry     = 1 << 10          // bytes after which the count of tries restarts
	goodTry      = 64 << 10         // bytes after which a failed try is followed by another without a pause
	firstPause   = time.Second / 4  // pause before the second try; doubled before each later one
	longestPause = 10 * time.Second // longest pause, unless the server asks for more
	longestAsked = time.Minute      // longest pause that a server can ask for
	stallTimeout = 30 * time.Second // time without a byte after which a try is canceled
)

// A temporary is an error after which another try may succeed.
type temporary struct {
	error
	after time.Duration // pause that the server asks for
	short bool          // whether nothing failed, but the answer was shorter than requested
	busy  bool          // whether the server refuses requests for now, with 429 or 503
	dial  bool          // whether no connection could be made
}

func (t *temporary) Unwrap() error { return t.error }

// A pace decides how long tries wait. The zero value waits in real time; tests replace it.
type pace struct {
	pause func(ctx context.Context, d time.Duration) // waits for d, or until ctx is done
	stall time.Duration                              // time without a byte after which a try is canceled
}

// orReal returns p with real pauses and timeouts where p has none.
func (p pace) orReal() pace {
	if p.pause == nil {
		p.pause = pause
	}
	p.stall = cmp.Or(p.stall, stallTimeout)
	return p
}

// retry calls try, which returns the number of bytes it received, until try succeeds,
// fails for good, or has failed too often. failed counts the failures in a row. A try that
// receives leastTry bytes resets the count, so that the bytes still missing bound the number
// of tries. The next try follows without a pause if the server merely sent less than
// requested, or if goodTry bytes were received before the failure.
//
// If a server is busy, retry does not give up as long as the server serves other requests of this
// Open, because a server at its limit refuses some of many requests again and again. It gives up
// early on a host that accepts no connection, unless that host has served a request before and may
// be restarting.
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

// backOff returns the pause after a number of failures. Half of it is random, so
// that clients that failed at the same time return at different times.
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

// An exchange is one try of a request, and reads the body of its answer. It cancels the request
// when no byte arrives for a while.
type exchange struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	stall  time.Duration // time without a byte after which ctx is canceled
	watch  *time.Timer   // cancels ctx after stall
	body   io.ReadCloser // the body of the answer, or nil before there is one
}

// exchange starts an exchange, which the caller must close.
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

// cause returns errStalled if the exchange was canceled because it stalled, otherwise err.
func (x *exchange) cause(err error) error {
	if err != nil && context.Cause(x.ctx) == errStalled {
		return errStalled
	}
	return err
}

// Read reads the body of the answer. Every error except io.EOF is temporary.
func (x *exchange) Read(p []byte) (int, error) {
	x.watch.Reset(x.stall)
	n, err := x.body.Read(p)
	x.watch.Stop() // the time until the caller reads again does not count as a stall of the server
	if n < 0 || n > len(p) {
		return 0, fmt.Errorf("the body returned %d of %d bytes", n, len(p))
	}
	if err != nil && err != io.EOF {
		err = &temporary{error: &foreign{err}}
	}
	return n, err
}

// sendError returns the error of a request that got no answer. The error is temporary unless the
// host does not exist, does not speak TLS or has the wrong certificate, or the transport
// has already retried.
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

// retryable reports whether a request whose answer has this status may succeed later.
func retryable(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status >= 500
}

// rateLimitReset returns the number of seconds until the limit resets, as digits, from a RateLimit
// header (draft-ietf-httpapi-ratelimit-headers), or "" if the header does not contain it. The
// Hugging Face Hub sends "resolvers";r=0;t=55.
func rateLimitReset(header string) string {
	for _, parameter := range strings.Split(header, ";")[1:] {
		if text, ok := strings.CutPrefix(strings.TrimLeft(parameter, " \t"), "t="); ok {
			if digits := text[:len(text)-len(strings.TrimLeft(text, "0123456789"))]; digits != "" {
				return digits
			}
		}
	}
	return ""
}

// askedPause returns the pause that an answer asks for before the next request.
// Retry-After holds seconds or a date (RFC 9110, section 10.2.3). Answers of any status
// may carry RateLimit, but only 429 means that the limit is reached.
func askedPause(resp *http.Response, now time.Time) time.Duration {
	text := resp.Header.Get("Retry-After")
	if text == "" && resp.StatusCode == http.StatusTooManyRequests {
		text = rateLimitReset(resp.Header.Get("RateLimit"))
	}
	if n, err := strconv.ParseUint(text, 10, 32); err == nil {
		return time.Duration(n) * time.Second
	}
	if date, err := http.ParseTime(text); err == nil {
		return date.Sub(now)
	}
	return 0
}
