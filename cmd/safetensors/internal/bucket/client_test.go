package bucket

import (
	"bytes"
	"compress/gzip"
	"crypto/sha1"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A kind is one of the things that open a store.
type kind struct {
	scheme string
	tls    bool // what it goes to must be https
	login  bool // it goes to another server than the store, which answers with a token
	set    func(t *testing.T, endpoint string) (rawURL string)
}

// kinds are what may not go elsewhere: of each store, and of each server of tokens.
func kinds(t *testing.T) map[string]kind {
	amazon := func(environment ...string) func(*testing.T, string) string {
		return func(t *testing.T, endpoint string) string {
			setAll(t, append(environment, "AWS_ENDPOINT_URL_S3", "ENDPOINT"), endpoint)
			return "s3://models/x?endpoint=" + endpoint
		}
	}
	azure := func(environment ...string) func(*testing.T, string) string {
		return func(t *testing.T, endpoint string) string {
			setAll(t, environment, endpoint)
			u := must(url.Parse(endpoint))
			domain := strings.TrimPrefix(u.Host, "127.")
			t.Setenv("AZURE_STORAGE_DOMAIN", domain)
			return "azblob://models/x?storage_account=127&domain=" + domain + "&protocol=" + u.Scheme
		}
	}
	server := httptest.NewServer(says(200, `{"access_token":"verysecrettoken","token_type":"Bearer","expires_in":3600,"expires_on":"4102444800"}`, "Content-Type", "application/json"))
	t.Cleanup(server.Close)
	tokens := server.URL
	file := filepath.Join(t.TempDir(), "proof")
	require.NoError(t, os.WriteFile(file, []byte("verysecretproof"), 0o600))
	return map[string]kind{
		"s3 key":          {"s3", false, false, amazon("AWS_SECRET_ACCESS_KEY", "verysecretkey")},
		"s3 session":      {"s3", false, false, amazon("AWS_SESSION_TOKEN", "verysecretsession")},
		"s3 container":    {"s3", false, true, amazon("AWS_ACCESS_KEY_ID", "", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "ENDPOINT", "AWS_CONTAINER_AUTHORIZATION_TOKEN", "verysecretcontainer")},
		"s3 web identity": {"s3", false, true, amazon("AWS_ACCESS_KEY_ID", "", "AWS_WEB_IDENTITY_TOKEN_FILE", file, "AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/x", "AWS_REGION", "us-east-1", "AWS_ENDPOINT_URL_STS", "ENDPOINT")},
		"s3 login": {"s3", false, true, func(t *testing.T, endpoint string) string {
			home := t.TempDir()
			for name, text := range map[string]string{
				"config": "[profile sso]\nsso_start_url = start\nsso_region = us-east-1\nsso_account_id = 123456789012\nsso_role_name = x\nregion = us-east-1\n",
				fmt.Sprintf(".aws/sso/cache/%x.json", sha1.Sum([]byte("start"))): `{"accessToken":"verysecretlogin","expiresAt":"2100-01-01T00:00:00Z"}`,
			} {
				require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(home, name)), 0o700))
				require.NoError(t, os.WriteFile(filepath.Join(home, name), []byte(text), 0o600))
			}
			setAll(t, []string{"HOME", home, "USERPROFILE", home, "AWS_CONFIG_FILE", filepath.Join(home, "config"), "AWS_ACCESS_KEY_ID", "", "AWS_ENDPOINT_URL_SSO", "ENDPOINT", "AWS_ENDPOINT_URL_S3", "ENDPOINT"}, endpoint)
			return "s3://models/x?profile=sso&endpoint=" + endpoint
		}},
		"gs token": {"gs", false, false, func(t *testing.T, endpoint string) string {
			t.Setenv("STORAGE_EMULATOR_HOST", endpoint)
			t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", serviceAccount(t, tokens))
			return "gs://models/x?endpoint=" + endpoint
		}},
		"gs service account": {"gs", false, true, func(t *testing.T, endpoint string) string {
			t.Setenv("STORAGE_EMULATOR_HOST", endpoint)
			t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", serviceAccount(t, endpoint))
			return "gs://models/x?endpoint=" + endpoint
		}},
		"azblob key":       {"azblob", false, false, azure("AZURE_STORAGE_KEY", "dmVyeXNlY3JldGtleQ==")},
		"azblob signature": {"azblob", false, false, azure("AZURE_STORAGE_SAS_TOKEN", "?sv=1&sig=verysecret%2Bsignature")},
		"azblob connection": {"azblob", false, false, func(t *testing.T, endpoint string) string {
			t.Setenv("AZURE_STORAGE_CONNECTION_STRING", "BlobEndpoint="+endpoint+"/a;SharedAccessSignature=sv=1&sig=verysecret%2Bsignature")
			return "azblob://models/x"
		}},
		"azblob token":   {"azblob", true, false, azure("IDENTITY_ENDPOINT", tokens, "IDENTITY_HEADER", "verysecretheader")},
		"azblob machine": {"azblob", true, true, azure("IDENTITY_ENDPOINT", "ENDPOINT/machine", "IDENTITY_HEADER", "verysecretheader")},
		"azblob application": {"azblob", true, true, azure("AZURE_AUTHORITY_HOST", "ENDPOINT", "AZURE_TENANT_ID", "adfs",
			"AZURE_CLIENT_ID", "me", "AZURE_CLIENT_SECRET", "verysecretclient", "AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")},
		"azblob workload": {"azblob", true, true, azure("AZURE_AUTHORITY_HOST", "ENDPOINT", "AZURE_TENANT_ID", "adfs",
			"AZURE_CLIENT_ID", "me", "AZURE_FEDERATED_TOKEN_FILE", file, "AZURE_TOKEN_CREDENTIALS", "WorkloadIdentityCredential")},
	}
}

func setAll(t *testing.T, environment []string, endpoint string) {
	for i := 0; i < len(environment); i += 2 {
		t.Setenv(environment[i], strings.ReplaceAll(environment[i+1], "ENDPOINT", endpoint))
	}
}

// A listener is a server that keeps what it gets.
type listener struct {
	*httptest.Server
	mu  sync.Mutex
	got []string // signatures and tokens, one for each request
}

// listen starts a listener, which answers with what answer says for the kth request.
func listen(t *testing.T, start func(http.Handler) *httptest.Server, answer func(w http.ResponseWriter, r *http.Request, echo string)) *listener {
	l := new(listener)
	l.Server = start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<10))
		io.Copy(io.Discard, r.Body)
		echo := r.URL.RawQuery + " " + string(body)
		for name, values := range r.Header {
			echo += fmt.Sprintf(" %s %s", name, values[0])
		}
		l.mu.Lock()
		l.got = append(l.got, r.Header.Get("Authorization")+" "+r.URL.Query().Get("sig"))
		l.mu.Unlock()
		answer(w, r, echo)
	}))
	t.Cleanup(l.Close)
	return l
}

func (l *listener) requests() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.got
}

// everything asks a store for everything there is to ask, and returns the errors.
func everything(t *testing.T, rawURL string, login bool) (errs []error) {
	b, key := openAt(t, rawURL)
	errs = append(errs, b.Head(key))
	if login { // at what is asked first
		return errs
	}
	_, err := b.List("")
	errs = append(errs, err)
	_, err = b.Start(key, 10)
	errs = append(errs, err, b.Create(key, []byte("body")), b.Delete(key))
	return append(errs, b.Write(key, 0, twoParts))
}

// twoParts writes an object that needs two parts.
func twoParts(w io.Writer) error {
	_, err := w.Write(make([]byte, partSize+1))
	return err
}

// TestSecretsStay: whatever a redirect says, nothing goes to another port, another host or
// from https to http, not even the address of where it was; and no error has a secret, though
// the answers repeat all that the server got.
func TestSecretsStay(t *testing.T) {
	for name, k := range kinds(t) {
		for place, to := range map[string]string{"port": "127.0.0.1", "host": "localhost", "http": "127.0.0.1"} {
			for _, status := range []int{301, 302, 307, 308, 401} {
				if k.tls && runtime.GOOS != "linux" { // elsewhere a variable does not say whom to trust
					continue
				}
				if testing.Short() && status != 307 && status != 401 || k.login && status == 302 { // each takes some tries
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%d", name, place, status), func(t *testing.T) {
					fresh(t)
					start := httptest.NewServer
					if k.tls || place == "http" && runtime.GOOS == "linux" {
						start = httptest.NewTLSServer
					}
					elsewhere := listen(t, httptest.NewServer, func(http.ResponseWriter, *http.Request, string) {})
					_, port, _ := strings.Cut(strings.TrimPrefix(elsewhere.URL, "http://"), ":")
					store := listen(t, start, func(w http.ResponseWriter, r *http.Request, echo string) {
						w.Header().Set("Location", "http://"+to+":"+port+r.URL.RequestURI())
						w.Header().Set("X-Ms-Error-Code", r.Header.Get("Authorization"))
						w.WriteHeader(status)
						text, _ := json.Marshal(echo)
						fmt.Fprintf(w, "<Error><Code>Odd</Code><Message>%s</Message></Error>", strings.NewReplacer("<", "", "&", " ").Replace(string(text)))
					})
					for i, err := range everything(t, k.set(t, store.URL), k.login) {
						require.Error(t, err, "%d", i)
						text := err.Error()
						require.NotContains(t, text, "verysecret")
						require.NotContains(t, text, "\n")
						for _, got := range store.requests() {
							for _, field := range strings.FieldsFunc(got, func(c rune) bool { return strings.ContainsRune(" ,=:", c) }) {
								if len(field) > 40 {
									require.NotContains(t, text, field)
								}
							}
						}
					}
					require.NotEmpty(t, store.requests())
					require.Empty(t, elsewhere.requests())
				})
			}
		}
	}
}

// TestAnswersAreBounded: pages of a list and errors that do not end, or that a little gzip
// becomes, take little memory.
func TestAnswersAreBounded(t *testing.T) {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	item := strings.Repeat("<Contents><Key>dir/x</Key></Contents>", 1<<15)
	io.WriteString(z, "<R><Name>models</Name>")
	for range 60 {
		io.WriteString(z, item)
	}
	io.WriteString(z, "</R>")
	z.Close()
	for name, answer := range map[string]http.HandlerFunc{
		"gzip":     says(200, bomb.String(), "Content-Encoding", "gzip"),
		"page":     endless(200, "<R><Name>models</Name>", item),
		"error":    endless(403, "<Error><Message>", item),
		"elements": says(200, "<R><Name>models</Name>"+strings.Repeat("<Contents/>", 1<<17)+"</R>"),
	} {
		for scheme := range stores {
			t.Run(name+" "+scheme, func(t *testing.T) {
				server := httptest.NewServer(answer)
				t.Cleanup(server.Close)
				fresh(t)
				t.Setenv("AWS_MAX_ATTEMPTS", "1")
				b, key := at(t, scheme, server.URL, "dir")
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				_, err := b.List(key)
				runtime.ReadMemStats(&after)
				if name != "elements" || scheme == "azblob" {
					require.Error(t, err)
				}
				if name == "page" {
					require.ErrorContains(t, err, "the answer is longer than 8 MiB")
				}
				require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<30))
				t.Log((after.TotalAlloc-before.TotalAlloc)>>20, err)
			})
		}
	}
}

// TestDiscreet: a client logs the error of a request that brings no answer, if it logs at all.
func TestDiscreet(t *testing.T) {
	r := must(http.NewRequest(http.MethodGet, "http://127.0.0.1:1/models?sig=verysecret", nil))
	_, err := discreet{newClient(connections())}.Do(r)
	require.ErrorContains(t, err, "dial")
	require.NotContains(t, err.Error(), "verysecret")
}

// endless answers with start, then with more for ever.
func endless(status int, start, more string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, start)
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, more); err != nil {
				return
			}
		}
	}
}

// TestOtherAnswers: what is not done is not said to be done by 200 and a page of a login.
func TestOtherAnswers(t *testing.T) {
	for _, page := range []string{"<html></html>", "<html>", "no XML", ""} {
		for scheme := range stores {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				switch {
				case scheme != "azblob" && r.URL.Query().Has("uploads"):
					says(200, "<R><UploadId>id</UploadId></R>")(w, r)
				case scheme != "azblob" && r.URL.Query().Has("partNumber"):
					says(200, "", "ETag", `"1"`)(w, r)
				case scheme == "azblob" && r.URL.Query().Get("comp") == "block":
					w.WriteHeader(201)
				case r.Method == http.MethodHead, r.Method == http.MethodDelete:
					w.WriteHeader(404)
				default:
					says(200, page)(w, r)
				}
			}))
			t.Cleanup(server.Close)
			fresh(t)
			t.Setenv("AWS_MAX_ATTEMPTS", "1")
			b, key := at(t, scheme, server.URL, "x")
			require.Error(t, b.Write(key, 0, twoParts), "%s %q", scheme, page)
			require.Error(t, b.Write(key, 0, func(w io.Writer) error { return nil }), "%s %q", scheme, page)
			require.Error(t, b.Create(key, nil), "%s %q", scheme, page)
			require.Error(t, errorOf(b.List("dir")), "%s %q", scheme, page)
		}
	}
}

// TestHostileKeys: a name that no file should have is refused, and shown in quotes.
func TestHostileKeys(t *testing.T) {
	for text, shown := range map[string]string{
		"dir/a&#10;b": `"dir/a\nb"`, "dir/..": "dir/..", "dir/.": "dir/.", "dir//": "dir//", "dir/a&#133;b/": `"dir/a\u0085b/"`,
	} {
		for scheme, list := range map[string]string{
			"s3":     "<R><Name>models</Name><Contents><Key>KEY</Key></Contents></R>",
			"azblob": "<R><Blobs><Blob><Name>KEY</Name></Blob></Blobs></R>",
		} {
			b, _ := answering(t, scheme, says(200, strings.Replace(list, "KEY", text, 1)))
			require.EqualError(t, errorOf(b.List("dir")), scheme+"://models/dir: the key "+shown+" is not the name of a file")
		}
	}
	b, _ := answering(t, "s3", says(404, ""))
	_, _, err := Open(t.Context(), "s3://models/a%0Ab")
	require.EqualError(t, err, `the key "a\nb" has control characters`)
	require.EqualError(t, errorOf(b.Start("dir/a\nb", 1)), `"s3://models/dir/a\nb": file does not exist: 404 Not Found`)
}
