package bucket

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"
)

// must returns v, of a call that cannot fail in the test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// List returns the names in a folder, those of folders with a slash at their end.
func (b *Bucket) List(folder string) (names []string, err error) {
	entries, err := fs.ReadDir(b, path.Clean(folder))
	for _, e := range entries {
		if names = append(names, e.Name()); e.IsDir() {
			names[len(names)-1] += "/"
		}
	}
	return names, err
}

// errorOf returns the error of a call.
func errorOf[T any](_ T, err error) error { return err }

// TestMain has the tests trust servers of httptest, and wait for next to nothing.
func TestMain(m *testing.M) {
	server := httptest.NewTLSServer(nil)
	trusted := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	server.Close()
	dir, err := os.MkdirTemp("", "")
	if err == nil {
		file := filepath.Join(dir, "trusted.pem")
		err = os.WriteFile(file, trusted, 0o600)
		os.Setenv("SSL_CERT_FILE", file)
	}
	if err != nil {
		panic(err)
	}
	firstPause = time.Millisecond
	status := m.Run()
	os.RemoveAll(dir)
	os.Exit(status)
}

// fresh has the clients find keys of Amazon, and nothing else of this machine.
func fresh(t *testing.T) {
	t.Helper()
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		for _, prefix := range []string{"AWS_", "AZURE_", "IDENTITY_", "MSI_", "GOOGLE_", "STORAGE_", "HTTP", "http"} {
			if strings.HasPrefix(name, prefix) {
				t.Setenv(name, "") // which restores it
				os.Unsetenv(name)
			}
		}
	}
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "accesskey", "AWS_SECRET_ACCESS_KEY": "secretkey", "AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
		"AWS_EC2_METADATA_DISABLED": "true", "AZURE_TOKEN_CREDENTIALS": "prod",
	} {
		t.Setenv(name, value)
	}
}

// serve starts a store that answers with answers, in this order, and returns its URL and
// the requests that it has got.
func serve(t *testing.T, answers ...http.HandlerFunc) (endpoint string, requests func() []*http.Request) {
	t.Helper()
	var mu sync.Mutex
	var got []*http.Request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.ParseForm()
		io.Copy(io.Discard, r.Body)
		mu.Lock()
		n := len(got)
		got = append(got, r)
		mu.Unlock()
		if n >= len(answers) {
			t.Errorf("unexpected %s %s", r.Method, r.URL)
			return
		}
		answers[n](w, r)
	}))
	t.Cleanup(server.Close)
	fresh(t)
	return server.URL, func() []*http.Request {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(got)
	}
}

// says answers with a status and a body.
func says(status int, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

// cut ends the connection without an answer.
func cut(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func openAt(t *testing.T, rawURL string) (*Bucket, string) {
	t.Helper()
	b, key, err := Open(t.Context(), rawURL)
	require.NoError(t, err)
	return b, key
}

// TestAnswers: what a bucket makes of the answers of a store, asking no more often than there are
// answers.
func TestAnswers(t *testing.T) {
	head := func(b *Bucket) (any, error) { return "found", b.Head("x") }
	start := func(b *Bucket) (any, error) { return b.Start("x", 10) }
	list := func(b *Bucket) (any, error) { return b.List("dir") }
	write := func(b *Bucket) (any, error) { return nil, b.Write("x", 0, twoParts) }
	empty, page := says(200, "", "Content-Length", "0"), "<R><Name>models</Name>%s</R>"
	again := says(200, fmt.Sprintf(page, "<IsTruncated>true</IsTruncated><NextContinuationToken>a</NextContinuationToken><Contents><Key>dir/x</Key></Contents>"))
	azureAgain := says(200, "<R><Blobs><Blob><Name>dir/x</Name></Blob></Blobs><NextMarker>a</NextMarker></R>")
	for _, c := range []struct {
		rule, schemes string
		do            func(*Bucket) (any, error)
		want          string // the error, or the result; parts of it between dots
		answers       []http.HandlerFunc
	}{
		{"what may succeed later is tried again", "s3", head, "found", []http.HandlerFunc{says(503, ""), cut, empty}},
		{"after a pause", "s3 gs azblob", head, "found", []http.HandlerFunc{says(429, "", "Retry-After", "1"), empty}},
		{"anything else is not", "s3", start, "URL/x: permission denied: 403 Forbidden: AccessDenied: no way",
			[]http.HandlerFunc{says(403, "<Error><Code>AccessDenied</Code><Message>no way</Message></Error>")}},
		{"there is no object", "s3 gs azblob", head, "URL/x: file does not exist: 404 Not Found", []http.HandlerFunc{says(404, "")}},
		{"another region", "s3", head, "URL/x: 301 Moved Permanently; the bucket is in another region, add ?region=eu-central-1",
			[]http.HandlerFunc{says(301, "", "X-Amz-Bucket-Region", "eu-central-1", "Location", "http://127.0.0.1:1")}},
		{"perhaps another region", "s3", head, "URL/x: 400 Bad Request", []http.HandlerFunc{says(400, "")}},
		{"another region, in a bad request", "s3", head, "URL/x: 400 Bad Request; the bucket is in another region, add ?region=eu-central-1",
			[]http.HandlerFunc{says(400, "", "X-Amz-Bucket-Region", "eu-central-1")}},
		{"the region of a bucket of others", "s3", head, "URL/x: permission denied: 403 Forbidden",
			[]http.HandlerFunc{says(403, "", "X-Amz-Bucket-Region", "eu-central-1")}},
		{"no size", "s3 azblob", head, "URL/x: the answer does not contain the size", []http.HandlerFunc{says(200, "")}},
		{"no upload is begun", "s3", write, "URL/x: permission denied: 403 Forbidden", []http.HandlerFunc{says(403, "")}},
		{"the request that aborts an upload without a name would delete the object", "s3", write, "URL/x: the answer does not name the upload",
			[]http.HandlerFunc{says(200, "<R></R>")}},
		{"another range", "s3 azblob", start, `URL/x: …answered with Content-Range "bytes 5-14/20", expected bytes 0-100007 and the size`,
			[]http.HandlerFunc{says(206, "0123456789", "Content-Range", "bytes 5-14/20")}},
		{"no range", "s3 azblob", start, `URL/x: …answered with Content-Range "", expected`, []http.HandlerFunc{says(206, "0123456789")}},
		{"no XML", "s3", list, "URL/dir: …XML syntax error", []http.HandlerFunc{says(200, "<html>")}},
		{"no list", "s3", list, "URL/dir: the answer is not a list", []http.HandlerFunc{says(200, "<html></html>")}},
		{"nothing", "s3", list, "URL/dir: the answer is not a list", []http.HandlerFunc{says(200, "")}},
		{"no XML", "azblob", list, "URL/dir: …", []http.HandlerFunc{says(200, "<html>")}},
		{"no list", "azblob", list, "URL/dir: …", []http.HandlerFunc{says(200, "<html></html>")}},
		{"nothing", "azblob", list, "URL/dir: …", []http.HandlerFunc{says(200, "")}},
		{"a page instead", "s3 azblob", list, "URL/dir: file does not exist: 404 Not Found", []http.HandlerFunc{says(404, "<html>no</html>")}},
		{"refused", "s3 azblob", list, "URL/dir: permission denied: 403 Forbidden", []http.HandlerFunc{says(403, "")}},
		{"a code that is none", "s3 azblob", list, "URL/dir: 400 Bad Request", []http.HandlerFunc{says(400, "<Error><Code>\x1b[2J</Code></Error>")}},
		{"a message of several lines", "s3", list, `URL/dir: 400 Bad Request: Odd: "two\nlines\u202e"`,
			[]http.HandlerFunc{says(400, "<Error><Code>Odd</Code><Message>two\nlines\u202e</Message></Error>")}},
		{"a long message", "s3 azblob", list, "URL/dir: permission denied: 403 Forbidden",
			[]http.HandlerFunc{says(403, "<Error><Code>Long</Code><Message>"+strings.Repeat("x", longestRefusal)+"</Message></Error>")}},
		{"a list that is cut short", "s3", list, "URL/dir: the list ends early: …", []http.HandlerFunc{says(200, fmt.Sprintf(page, "<IsTruncated>true</IsTruncated>"))}},
		{"a list that starts again", "s3", list, "URL/dir: the list ends early: …", []http.HandlerFunc{again, again}},
		{"a list that starts again", "azblob", list, "URL/dir: the list ends early: …", []http.HandlerFunc{azureAgain, azureAgain}},
		{"a store that ignores the prefix", "s3", list, "[y]",
			[]http.HandlerFunc{says(200, fmt.Sprintf(page, "<Contents><Key>x</Key></Contents><Contents><Key>dir/y</Key></Contents>"))}},
		{"the error of another object that is copied to this one", "s3", func(b *Bucket) (any, error) {
			return nil, b.Write("y", 0, func(io.Writer) error { return fmt.Errorf("tensor a: %w", errorOf(b.Start("x", 10))) })
		}, "URL/y: tensor a: URL/x: file does not exist: 404 Not Found", []http.HandlerFunc{says(404, "")}},
	} {
		for _, scheme := range strings.Fields(c.schemes) {
			t.Run(c.rule+" "+scheme, func(t *testing.T) {
				b, requests := answering(t, scheme, c.answers...)
				result, err := c.do(b)
				got := fmt.Sprint(result)
				if err != nil {
					got = err.Error()
				}
				require.Len(t, requests(), len(c.answers))
				require.NotContains(t, got, "\n")
				require.Less(t, len(got), 400)
				want := strings.ReplaceAll(c.want, "URL", scheme+"://models")
				if parts := strings.Split(want, "…"); len(parts) > 1 {
					require.Regexp(t, "^"+regexp.QuoteMeta(parts[0])+".*"+regexp.QuoteMeta(parts[1]), got)
				} else {
					require.Equal(t, want, got)
				}
			})
		}
	}
}

// TestTries: how often a request is sent is up to the environment, until the context ends.
func TestTries(t *testing.T) {
	endpoint, requests := serve(t, says(500, ""), says(500, ""))
	t.Setenv("AWS_MAX_ATTEMPTS", "2")
	b, _ := at(t, "s3", endpoint, "x")
	require.ErrorContains(t, b.Head("x"), "500 Internal Server Error")
	require.Len(t, requests(), 2)

	ctx, cancel := context.WithCancel(t.Context())
	b, requests = answering(t, "s3", func(w http.ResponseWriter, _ *http.Request) { cancel(); w.WriteHeader(500) })
	b.ctx = ctx
	require.ErrorIs(t, b.Head("x"), context.Canceled)
	require.Len(t, requests(), 1)
}

// TestS3SaysYesFirst: S3 answers 200 to what completes an upload, and may then fail.
func TestS3SaysYesFirst(t *testing.T) {
	failed := says(200, "<Error><Code>InternalError</Code></Error>")
	b, requests := answering(t, "s3", says(200, "<R><UploadId>id</UploadId></R>"), says(200, "", "ETag", `"1"`),
		failed, says(200, `<R><Key>x</Key><ETag>"1-1"</ETag></R>`))
	u := must(b.store.begin(t.Context(), "x"))
	require.NoError(t, u.part(t.Context(), 0, []byte("body")))
	require.NoError(t, u.complete(t.Context(), 1))
	require.Len(t, requests(), 4)
	require.Equal(t, "26gLsg==", requests()[1].Header.Get("X-Amz-Checksum-Crc32")) // zlib.crc32(b"body")
	require.Equal(t, "CRC32", requests()[0].Header.Get("X-Amz-Checksum-Algorithm"))
}

// TestS3PartWithoutETag: a part that has no ETag cannot be named when the upload is completed.
func TestS3PartWithoutETag(t *testing.T) {
	b, _ := answering(t, "s3", says(200, "<R><UploadId>id</UploadId></R>"), says(200, ""))
	u := must(b.store.begin(t.Context(), "x"))
	require.ErrorIs(t, u.part(t.Context(), 0, []byte("body")), errNotDone)
}

// TestIsURL: the name of a store is a file's name, too, and a page of the web is no object.
func TestIsURL(t *testing.T) {
	for name, want := range map[string]bool{
		"s3://models/x": true, "gs://models/x": true, "azblob://models/x": true, "s3": false, "s3:/x": false, "https://host/x": false, "x": false,
	} {
		require.Equal(t, want, IsURL(name), name)
	}
}

// TestListPages lists in several answers, which a store may cut where it likes.
func TestListPages(t *testing.T) {
	pages := map[string][]http.HandlerFunc{
		"s3": {
			says(200, "<R><Name>models</Name><IsTruncated>true</IsTruncated><NextContinuationToken>a+/b</NextContinuationToken><Contents><Key>dir/x</Key></Contents></R>"),
			says(200, "<R><Name>models</Name><CommonPrefixes><Prefix>dir/y z/</Prefix></CommonPrefixes></R>"),
		},
		"azblob": {
			says(200, "<R><Blobs><Blob><Name>dir/x</Name></Blob></Blobs><NextMarker>a+/b</NextMarker></R>"),
			says(200, `<R><Blobs><BlobPrefix><Name Encoded="true">dir%2Fy%20z/</Name></BlobPrefix></Blobs></R>`),
		},
	}
	for scheme, answers := range pages {
		endpoint, requests := serve(t, answers...)
		t.Setenv("AZURE_STORAGE_CONNECTION_STRING", "AccountName=a;BlobEndpoint="+endpoint+";SharedAccessSignature=sv=1&sig=a%2Bb")
		t.Setenv("AWS_ENDPOINT_URL_S3", endpoint)
		b, key := openAt(t, scheme+"://models/dir")
		names, err := b.List(key)
		require.NoError(t, err, scheme)
		require.Equal(t, []string{"x", "y z/"}, names, scheme)
		first, second := requests()[0].URL.Query(), requests()[1].URL.Query()
		require.Equal(t, "dir/", first.Get("prefix"))
		if scheme == "azblob" {
			require.Equal(t, "a+/b", second.Get("marker"))
			require.Equal(t, "a+b", second.Get("sig"))
		} else {
			require.Equal(t, "a+/b", second.Get("continuation-token"))
		}
	}
}

// answering opens the bucket of a store that answers with answers.
func answering(t *testing.T, scheme string, answers ...http.HandlerFunc) (b *Bucket, requests func() []*http.Request) {
	t.Helper()
	endpoint, requests := serve(t, answers...)
	b, _ = at(t, scheme, endpoint, "")
	return b, requests
}

// at opens an object of a store that answers at an endpoint.
func at(t *testing.T, scheme, endpoint, key string) (*Bucket, string) {
	t.Helper()
	switch scheme {
	case "azblob":
		t.Setenv("AZURE_STORAGE_CONNECTION_STRING", "AccountName=a;BlobEndpoint="+endpoint+";SharedAccessSignature=sv=1&sig=sigsigsig%2Bb")
		return openAt(t, "azblob://models/"+key)
	case "gs":
		return openAt(t, "gs://models/"+key+"?anonymous=true&endpoint="+endpoint)
	case "s3":
		t.Setenv("AWS_ENDPOINT_URL_S3", endpoint)
		return openAt(t, "s3://models/"+key+"?endpoint="+endpoint)
	}
	require.FailNow(t, "no fake server for this scheme", scheme)
	return nil, ""
}

// TestAmazonSettings: where S3 is, by the environment, the profile and the URL.
func TestAmazonSettings(t *testing.T) {
	fresh(t)
	profile := "[default]\nregion = cn-north-1\n[profile other]\naws_access_key_id = a\naws_secret_access_key = b\nregion = eu-west-1\nservices = mine\n[services mine]\ns3 =\n  endpoint_url = http://127.0.0.1:9\n"
	t.Setenv("AWS_CONFIG_FILE", t.TempDir()+"/config")
	require.NoError(t, os.WriteFile(os.Getenv("AWS_CONFIG_FILE"), []byte(profile), 0o600))
	const point = "arn:aws:s3:us-west-2:123456789012:accesspoint"
	for _, test := range []struct{ environment, value, url, want string }{
		{"AWS_REGION", "", "models/x", "https://models.s3.cn-north-1.amazonaws.com.cn/x"},
		{"AWS_REGION", "us-west-2", "models/x", "https://models.s3.us-west-2.amazonaws.com/x"},
		{"AWS_REGION", "us-west-2", "my.models/x", "https://s3.us-west-2.amazonaws.com/my.models/x"},
		{"AWS_REGION", "us-west-2", "models/x?region=eu-south-1", "https://models.s3.eu-south-1.amazonaws.com/x"},
		{"AWS_REGION", "", "models/x?profile=other", "http://127.0.0.1:9/models/x"},
		{"AWS_ENDPOINT_URL_S3", "http://127.0.0.1:8/s3/", "models/x?profile=other", "http://127.0.0.1:8/s3/models/x"},
		{"AWS_ENDPOINT_URL", "http://127.0.0.1:7", "models/x", "http://127.0.0.1:7/models/x"},
		{"AWS_ENDPOINT_URL_S3", "http://host:8", "models/x?use_path_style=false", "http://models.host:8/x"},
		{"AWS_USE_FIPS_ENDPOINT", "true", "models/x?region=us-gov-west-1", "https://models.s3-fips.us-gov-west-1.amazonaws.com/x"},
		{"AWS_USE_DUALSTACK_ENDPOINT", "true", "models/x?region=eu-west-1", "https://models.s3.dualstack.eu-west-1.amazonaws.com/x"},
		{"AWS_REGION", "us-west-2", point + "/mine/dir/x", "https://mine-123456789012.s3-accesspoint.us-west-2.amazonaws.com/dir/x"},
		{"AWS_REGION", "us-west-2", point + ":mine/x?region=us-west-2", "https://mine-123456789012.s3-accesspoint.us-west-2.amazonaws.com/x"},
		{"AWS_REGION", "us-west-2", "arn:aws:s3-outposts:us-west-2:123456789012:outpost/op-01234567890123456/accesspoint/mine/x",
			"https://mine-123456789012.op-01234567890123456.s3-outposts.us-west-2.amazonaws.com/x"},
	} {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			t.Setenv("AWS_REGION", "")
			t.Setenv(test.environment, test.value)
			b, key := openAt(t, "s3://"+test.url)
			s := b.store.(s3Store)
			signed := must(s3.NewPresignClient(s.client).PresignHeadObject(t.Context(), &s3.HeadObjectInput{Bucket: s.name, Key: &key}))
			got, _, _ := strings.Cut(signed.URL, "?")
			require.Equal(t, test.want, got)
		})
	}
	for _, endpoint := range []string{"127.0.0.1:9000", "ftp://host", "https://", "%25", "host/?sig=verysecret", "http://user:verysecret@host"} {
		for _, object := range []string{"s3://models/x?", "gs://models/x?anonymous=true&"} {
			_, _, err := Open(t.Context(), object+"endpoint="+url.QueryEscape(endpoint))
			require.ErrorContains(t, err, "is not the URL of an endpoint")
			require.NotContains(t, err.Error(), "verysecret")
		}
	}
}

// TestBundle: with AWS_CA_BUNDLE nobody else is trusted.
func TestBundle(t *testing.T) {
	server := httptest.NewTLSServer(says(200, "", "Content-Length", "0"))
	t.Cleanup(server.Close)
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	other := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	stranger := must(x509.CreateCertificate(rand.Reader, other, other, key.Public(), key))
	for _, certificate := range [][]byte{server.Certificate().Raw, stranger} {
		fresh(t)
		file := filepath.Join(t.TempDir(), "bundle.pem")
		require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}), 0o600))
		t.Setenv("AWS_CA_BUNDLE", file)
		b, key := at(t, "s3", server.URL, "x")
		err := b.Head(key)
		if bytes.Equal(certificate, stranger) {
			require.ErrorContains(t, err, "certificate")
		} else {
			require.NoError(t, err)
		}
	}
}

// TestDirectoryBucket: requests to a directory bucket have the key of a session.
func TestDirectoryBucket(t *testing.T) {
	session := "<R><Credentials><AccessKeyId>a</AccessKeyId><SecretAccessKey>b</SecretAccessKey><SessionToken>session</SessionToken><Expiration>2100-01-01T00:00:00Z</Expiration></Credentials></R>"
	endpoint, requests := serve(t, says(200, session), says(200, "", "Content-Length", "5"))
	t.Setenv("AWS_ENDPOINT_URL", endpoint)
	b, key := openAt(t, "s3://models--usw2-az1--x-s3/x?region=us-west-2&endpoint="+endpoint)
	require.NoError(t, b.Head(key))
	require.True(t, requests()[0].URL.Query().Has("session"))
	require.Equal(t, "session", requests()[1].Header.Get("X-Amz-S3session-Token"))
}

// TestStall: a server that sends nothing more does not hold the command for ever.
func TestStall(t *testing.T) {
	stall = 50 * time.Millisecond
	t.Cleanup(func() { stall = 5 * time.Minute })
	for scheme := range stores {
		end := make(chan struct{})
		silent := func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", "bytes 0-9/10")
			w.Header().Set("Content-Length", "10")
			w.WriteHeader(206)
			w.(http.Flusher).Flush()
			<-end
		}
		b, requests := answering(t, scheme, slices.Repeat([]http.HandlerFunc{silent}, tries)...)
		t.Cleanup(func() { close(end) })
		r, _, _, err := b.store.get(t.Context(), "x", 0, 10)
		require.NoError(t, err)
		sent := len(requests()) // on a busy machine the header of an answer may be late, too
		require.Error(t, errorOf(io.ReadAll(r)))
		require.Len(t, requests(), sent)
	}
}

// TestAbortWithoutNetwork: what cannot be aborted is tried no longer than any request.
func TestAbortWithoutNetwork(t *testing.T) {
	answer := func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodPost:
			says(200, "<R><UploadId>id</UploadId></R>")(w, r)
		case http.MethodPut:
			says(403, "")(w, r)
		default:
			cut(w, r)
		}
	}
	endpoint, requests := serve(t, slices.Repeat([]http.HandlerFunc{answer}, 10)...)
	t.Setenv("AWS_MAX_ATTEMPTS", "2")
	b, _ := at(t, "s3", endpoint, "x")
	require.Error(t, b.Write("x", 0, twoParts))
	aborts := 0
	for _, r := range requests() {
		if r.Method == http.MethodDelete {
			aborts++
		}
	}
	require.Equal(t, 2, aborts)
}
