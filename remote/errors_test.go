package remote

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// rawServer answers each connection with text, whatever it was asked, and
// returns its URL.
func rawServer(t *testing.T, text string) string {
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			http.ReadRequest(bufio.NewReader(conn))
			conn.Write([]byte(text))
			conn.Close()
		}
	}()
	return "http://" + l.Addr().String()
}

// TestTextOfServersIsBounded has servers send text that is long or would move
// the cursor of a terminal.
func TestTextOfServersIsBounded(t *testing.T) {
	for name, answer := range map[string]func(evil string) string{
		"reason phrase":        func(evil string) string { return "HTTP/1.1 404 " + evil + "\r\n\r\n" },
		"reason phrase of 416": func(evil string) string { return "HTTP/1.1 416 " + evil + "\r\n\r\n" },
		"status line":          func(evil string) string { return evil + "\r\n\r\n" },
		"header line":          func(evil string) string { return "HTTP/1.1 206 Partial Content\r\n" + evil + "\r\n\r\n" },
		"transfer encoding":    func(evil string) string { return "HTTP/1.1 206 OK\r\nTransfer-Encoding: " + evil + "\r\n\r\n" },
		"X-Error-Message":      func(evil string) string { return "HTTP/1.1 401 Unauthorized\r\nX-Error-Message: " + evil + "\r\n\r\n" },
		"Content-Range":        func(evil string) string { return "HTTP/1.1 206 OK\r\nContent-Range: " + evil + "\r\n\r\n" },
		"Content-Encoding":     func(evil string) string { return "HTTP/1.1 200 OK\r\nContent-Encoding: " + evil + "\r\n\r\n" },
		"length of a chunk": func(evil string) string {
			return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + evil + "\r\n"
		},
		"trailer": func(evil string) string {
			return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + evil + "\r\n\r\n"
		},
		"scheme of a redirect": func(evil string) string { return "HTTP/1.1 302 Found\r\nLocation: ftp" + evil + "://h/\r\n\r\n" },
		"redirect to a long URL": func(evil string) string {
			return "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/" + url.PathEscape(evil) + "?secret\r\n\r\n"
		},
	} {
		for kind, evil := range map[string]string{
			"long":    strings.Repeat("x", 20_000), // than a buffer of net/http
			"shorter": strings.Repeat("x", 3000),
			"control": "\x1b[2Jx\u202e",
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				client, _ := newClient()
				_, err := client.Open(t.Context(), rawServer(t, answer(evil))+"/m")
				require.Error(t, err)
				require.Less(t, len(err.Error()), 2000)
				require.False(t, strings.ContainsFunc(err.Error(), func(r rune) bool { return !unicode.IsPrint(r) }), "%q", err)
				require.NotContains(t, err.Error(), "secret")
			})
		}
	}
}

func TestURLsAreCut(t *testing.T) {
	for n, want := range map[int]int{1000: 1000, 1001: 1000 + len("…")} {
		u := &url.URL{Scheme: "http", Host: "h", Path: "/" + strings.Repeat("x", n-len("http://h/"))}
		require.Len(t, redact(u), want)
	}
}

func TestForeignErrorsKeepTheirCause(t *testing.T) {
	for text, want := range map[string]string{
		"short":                  "short",
		"line\nbreak":            `"line\nbreak"`,
		strings.Repeat("x", 200): strings.Repeat("x", 200),
		strings.Repeat("x", 201): `"` + strings.Repeat("x", 200) + `"`,
	} {
		err := &foreign{fmt.Errorf("%s%w", text, empty{})}
		require.EqualError(t, err, want)
		require.ErrorIs(t, err, fs.ErrClosed)
		require.ErrorAs(t, &temporary{error: err}, new(empty))
	}
	require.True(t, errors.Is(&temporary{error: fs.ErrClosed}, fs.ErrClosed))
}

// An empty error has no text.
type empty struct{}

func (empty) Error() string { return "" }
func (empty) Unwrap() error { return fs.ErrClosed }
