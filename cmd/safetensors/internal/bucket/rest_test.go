package bucket

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1", "AWS_PROFILE": "", "AWS_MAX_ATTEMPTS": "",
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_ENDPOINT_URL": "", "AWS_ENDPOINT_URL_S3": "",
		"AZURE_STORAGE_CONNECTION_STRING": "", "AZURE_STORAGE_ACCOUNT": "", "AZURE_STORAGE_KEY": "", "AZURE_STORAGE_SAS_TOKEN": "",
	} {
		t.Setenv(name, value)
	}
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

// TestTries: what may succeed later is tried again, anything else is not.
func TestTries(t *testing.T) {
	endpoint, requests := serve(t, says(503, ""), cut, says(200, "", "Content-Length", "0"), says(403, "<Error><Code>AccessDenied</Code><Message>no way</Message></Error>"), says(404, ""))
	b, key := openAt(t, "s3://models/x?endpoint="+endpoint)
	exists, err := b.Exists(key)
	require.NoError(t, err)
	require.True(t, exists)
	require.Len(t, requests(), 3)
	_, err = b.Read(key, 1)
	require.EqualError(t, err, "s3://models/x: 403 Forbidden: AccessDenied: no way")
	exists, err = b.Exists(key)
	require.NoError(t, err)
	require.False(t, exists)
	require.Len(t, requests(), 5)

	t.Setenv("AWS_MAX_ATTEMPTS", "2")
	endpoint, requests = serve(t, says(500, ""), says(500, ""))
	t.Setenv("AWS_MAX_ATTEMPTS", "2")
	b, key = openAt(t, "s3://models/x?endpoint="+endpoint)
	_, err = b.Exists(key)
	require.ErrorContains(t, err, "500 Internal Server Error")
	require.Len(t, requests(), 2)

	ctx, cancel := context.WithCancel(t.Context())
	endpoint, requests = serve(t, func(w http.ResponseWriter, _ *http.Request) { cancel(); w.WriteHeader(500) })
	b, key, err = Open(ctx, "s3://models/x?endpoint="+endpoint)
	require.NoError(t, err)
	_, err = b.Exists(key)
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, requests(), 1)
}

// TestS3SaysYesFirst: S3 answers 200 to what completes an upload, and may then fail.
func TestS3SaysYesFirst(t *testing.T) {
	failed := says(200, "<Error><Code>InternalError</Code></Error>")
	endpoint, requests := serve(t, says(200, "<R><UploadId>id</UploadId></R>"), says(200, "", "ETag", `"1"`),
		failed, says(200, "<CompleteMultipartUploadResult><Key>x</Key></CompleteMultipartUploadResult>"))
	b, key := openAt(t, "s3://models/x?endpoint="+endpoint)
	u, err := b.store.begin(t.Context(), key)
	require.NoError(t, err)
	require.NoError(t, u.part(t.Context(), 0, []byte("body")))
	require.NoError(t, u.complete(t.Context(), 1))
	require.Len(t, requests(), 4)
	require.Equal(t, "26gLsg==", requests()[1].Header.Get("X-Amz-Checksum-Crc32")) // zlib.crc32(b"body")
	require.Equal(t, "CRC32", requests()[0].Header.Get("X-Amz-Checksum-Algorithm"))
}

// TestS3NamelessUpload: without a name, the request that aborts an upload would delete the
// object.
func TestS3NamelessUpload(t *testing.T) {
	for _, answer := range []http.HandlerFunc{says(403, ""), says(200, "<R></R>")} {
		endpoint, requests := serve(t, answer)
		b, key := openAt(t, "s3://models/x?endpoint="+endpoint)
		require.Error(t, b.Write(key, 0, func(w io.Writer) error {
			_, err := w.Write(make([]byte, partSize+1))
			return err
		}))
		require.Len(t, requests(), 1)
	}
}

// TestS3OtherRegion: the error says what to add to the URL.
func TestS3OtherRegion(t *testing.T) {
	endpoint, _ := serve(t, says(301, "", "X-Amz-Bucket-Region", "eu-central-1", "Location", "http://127.0.0.1:1"))
	b, key := openAt(t, "s3://models/x?endpoint="+endpoint)
	_, err := b.Exists(key)
	require.ErrorContains(t, err, "301 Moved Permanently; the bucket is in another region, add ?region=eu-central-1")
}

// TestListPages lists in several answers, which a store may cut where it likes.
func TestListPages(t *testing.T) {
	pages := map[string][]http.HandlerFunc{
		"s3": {
			says(200, "<R><IsTruncated>true</IsTruncated><NextContinuationToken>a+/b</NextContinuationToken><Contents><Key>dir/x</Key></Contents></R>"),
			says(200, "<R><CommonPrefixes><Prefix>dir/y z/</Prefix></CommonPrefixes></R>"),
		},
		"azblob": {
			says(200, "<R><Blobs><Blob><Name>dir/x</Name></Blob></Blobs><NextMarker>a+/b</NextMarker></R>"),
			says(200, `<R><Blobs><BlobPrefix><Name Encoded="true">dir%2Fy%20z/</Name></BlobPrefix></Blobs></R>`),
		},
	}
	for scheme, answers := range pages {
		endpoint, requests := serve(t, answers...)
		t.Setenv("AZURE_STORAGE_CONNECTION_STRING", "BlobEndpoint="+endpoint+";SharedAccessSignature=sv=1&sig=a%2Bb")
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

// TestStrangeAnswers: a store, or what answers in its place, says nonsense.
func TestStrangeAnswers(t *testing.T) {
	for _, test := range []struct {
		answer http.HandlerFunc
		want   string
	}{
		{says(200, "<html>"), "is not the XML that was expected"},
		{says(200, ""), "is not the XML that was expected"},
		{says(404, "<html>no</html>"), "404 Not Found"},
		{says(403, ""), "permission denied"},
		{says(302, "", "Location", "http://127.0.0.1:1"), "302 Found"},
	} {
		endpoint, _ := serve(t, test.answer)
		b, _ := openAt(t, "s3://models?endpoint="+endpoint)
		_, err := b.List("")
		require.ErrorContains(t, err, test.want)
	}
	for _, text := range []string{"", "bytes 0-9/*", "bytes 0-9", "bytes 5-14/20", "bytes */20"} {
		endpoint, _ := serve(t, says(206, "0123456789", "Content-Range", text))
		b, key := openAt(t, "s3://models/x?endpoint="+endpoint)
		_, err := b.Read(key, 10)
		require.ErrorContains(t, err, "expected one from byte 0 on with the size of the object")
	}
	require.ErrorIs(t, (&Bucket{ctx: t.Context()}).fail("x", &refusal{status: 404}), fs.ErrNotExist)
}

func TestBucketURL(t *testing.T) {
	for _, test := range []struct {
		name, endpoint string
		pathStyle      bool
		want           string
	}{
		{"models", "https://s3.eu-central-1.amazonaws.com", false, "https://models.s3.eu-central-1.amazonaws.com"},
		{"my.models", "https://s3.eu-central-1.amazonaws.com", false, "https://s3.eu-central-1.amazonaws.com/my.models"},
		{"My_Models", "https://s3.us-east-1.amazonaws.com", false, "https://s3.us-east-1.amazonaws.com/My_Models"},
		{"models", "http://127.0.0.1:9000/s3/", true, "http://127.0.0.1:9000/s3/models"},
	} {
		u, err := bucketURL(test.name, test.endpoint, test.pathStyle)
		require.NoError(t, err)
		require.Equal(t, test.want, u.String())
	}
	for _, endpoint := range []string{"127.0.0.1:9000", "ftp://host", "https://", "%"} {
		_, err := bucketURL("models", endpoint, true)
		require.ErrorContains(t, err, "is not the URL of an endpoint")
	}
	_, err := bucketURL("models", "account.blob.core.windows.net/?sig=secret", true)
	require.ErrorContains(t, err, "account.blob.core.windows.net")
	require.NotContains(t, err.Error(), "secret")
}

// TestAmazonSettings: where S3 is, by the environment, the profile and the URL.
func TestAmazonSettings(t *testing.T) {
	serve(t) // for the environment
	profile := "[default]\nregion = cn-north-1\n[profile other]\nregion = eu-west-1\nservices = mine\n[services mine]\ns3 =\n  endpoint_url = http://127.0.0.1:9\n"
	t.Setenv("AWS_CONFIG_FILE", t.TempDir()+"/config")
	require.NoError(t, os.WriteFile(os.Getenv("AWS_CONFIG_FILE"), []byte(profile), 0o600))
	for _, test := range []struct{ environment, value, query, want string }{
		{"AWS_REGION", "", "", "https://models.s3.cn-north-1.amazonaws.com.cn"},
		{"AWS_REGION", "us-west-2", "", "https://models.s3.us-west-2.amazonaws.com"},
		{"AWS_REGION", "us-west-2", "?region=eu-south-1", "https://models.s3.eu-south-1.amazonaws.com"},
		{"AWS_REGION", "", "?profile=other", "http://127.0.0.1:9/models"},
		{"AWS_ENDPOINT_URL_S3", "http://127.0.0.1:8", "?profile=other", "http://127.0.0.1:8/models"},
		{"AWS_ENDPOINT_URL", "http://127.0.0.1:7", "", "http://127.0.0.1:7/models"},
		{"AWS_ENDPOINT_URL_S3", "http://127.0.0.1:8", "?use_path_style=false", "http://models.127.0.0.1:8"},
		{"AWS_USE_FIPS_ENDPOINT", "true", "?region=us-gov-west-1", "https://models.s3-fips.us-gov-west-1.amazonaws.com"},
	} {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			t.Setenv("AWS_REGION", "")
			t.Setenv(test.environment, test.value)
			b, _ := openAt(t, "s3://models/x"+test.query)
			require.Equal(t, test.want, b.store.(s3Store).base.String())
		})
	}
}

// TestStall: a server that sends nothing more does not hold the command for ever.
func TestStall(t *testing.T) {
	stall = 50 * time.Millisecond
	t.Cleanup(func() { stall = 5 * time.Minute })
	for _, scheme := range []string{"s3", "gs", "azblob"} {
		end := make(chan struct{})
		silent := func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", "bytes 0-9/10")
			w.Header().Set("Content-Length", "10")
			w.WriteHeader(206)
			w.(http.Flusher).Flush()
			<-end
		}
		endpoint, requests := serve(t, slices.Repeat([]http.HandlerFunc{silent}, defaultTries)...)
		t.Setenv("AZURE_STORAGE_CONNECTION_STRING", "BlobEndpoint="+endpoint+";SharedAccessSignature=sv=1")
		t.Setenv("AWS_ENDPOINT_URL_S3", endpoint)
		query := map[string]string{"gs": "?anonymous=true&endpoint=" + endpoint}[scheme]
		b, key := openAt(t, scheme+"://models/x"+query)
		r, _, err := b.store.get(t.Context(), key, 0, 10)
		require.NoError(t, err)
		sent := len(requests()) // on a busy machine the header of an answer may be late, too
		_, err = io.ReadAll(r)
		close(end)
		require.Error(t, err)
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
	b, key := openAt(t, "s3://models/x?endpoint="+endpoint)
	require.Error(t, b.Write(key, 0, func(w io.Writer) error {
		_, err := w.Write(make([]byte, partSize+1))
		return err
	}))
	aborts := 0
	for _, r := range requests() {
		if r.Method == http.MethodDelete {
			aborts++
		}
	}
	require.Equal(t, 2, aborts)
}

// TestLostHidesSecrets: the URL of a request that brings no answer may hold a signature.
func TestLostHidesSecrets(t *testing.T) {
	serve(t)
	t.Setenv("AZURE_STORAGE_ACCOUNT", "account")
	t.Setenv("AZURE_STORAGE_SAS_TOKEN", "?sv=1&sig=secret")
	b, _ := openAt(t, "azblob://models/x")
	c := b.store.(azureStore)
	c.tries = 1
	require.Equal(t, "https://account.blob.core.windows.net/models?sv=1&sig=secret", c.base.String())
	c.base = &url.URL{Scheme: "http", Host: "127.0.0.1:1", RawQuery: c.base.RawQuery}
	_, err := b.Exists("x")
	require.Error(t, err)
	require.NotContains(t, err.Error(), "secret")
}
