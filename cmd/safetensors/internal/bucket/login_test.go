package bucket

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"
)

// privateKey is of service accounts.
var privateKey = sync.OnceValue(func() string {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
})

// serviceAccount writes the file of a service account of Google, whose tokens are at an
// endpoint.
func serviceAccount(t *testing.T, endpoint string) (file string) {
	account := must(json.Marshal(map[string]string{"type": "service_account", "client_email": "me", "private_key": privateKey(), "token_uri": endpoint}))
	file = filepath.Join(t.TempDir(), "account.json")
	require.NoError(t, os.WriteFile(file, account, 0o600))
	return file
}

// TestLogins: each way to get a token. One that is not to be had now is asked for again.
func TestLogins(t *testing.T) {
	const token = `{"access_token":"token","token_type":"Bearer","expires_in":3600,"expires_on":"4102444800"}`
	for name, path := range map[string]string{ // of the request for a token
		"gs service account": "/", "azblob machine": "/machine", "azblob application": "/adfs/token", "azblob workload": "/adfs/token",
	} {
		t.Run(name, func(t *testing.T) {
			if runtime.GOOS != "linux" {
				t.Skip("a variable does not say whom to trust")
			}
			fresh(t)
			var mu sync.Mutex
			var paths []string
			answers := []http.HandlerFunc{says(503, ""), cut, says(200, token, "Content-Type", "application/json")}
			var server *httptest.Server
			server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				switch {
				case strings.HasSuffix(r.URL.Path, "/.well-known/openid-configuration"):
					says(200, `{"authorization_endpoint":"`+server.URL+`/adfs/authorize","token_endpoint":"`+server.URL+`/adfs/token","issuer":"`+server.URL+`/adfs"}`, "Content-Type", "application/json")(w, r)
				case r.URL.Path == path && len(answers) > 0:
					paths = append(paths, r.URL.Path)
					answer := answers[0]
					answers = answers[1:]
					answer(w, r)
				default:
					paths = append(paths, r.URL.Path+" "+r.Header.Get("Authorization"))
					w.WriteHeader(404)
				}
			}))
			t.Cleanup(server.Close)
			rawURL := kinds(t)[name].set(t, server.URL)
			t.Setenv("AZURE_CLIENT_ID", "first") // all processes of a machine share its tokens by this
			b, key := openAt(t, rawURL)
			require.ErrorIs(t, b.Head(key), fs.ErrNotExist)
			mu.Lock()
			require.Equal(t, slices.Concat(slices.Repeat([]string{path}, 3), []string{"/models/x Bearer token"}), paths)
			paths = nil
			answers = []http.HandlerFunc{says(404, `{"error":"invalid_client"}`, "Content-Type", "application/json")}
			mu.Unlock()

			t.Setenv("AZURE_CLIENT_ID", "second")
			b, key = openAt(t, rawURL)
			err := b.Head(key)
			require.ErrorContains(t, err, "login failed")
			require.NotErrorIs(t, err, fs.ErrNotExist, "what a server of tokens lacks is none of the objects")
			require.Zero(t, status(err), "it is not the store that answered")
			mu.Lock()
			require.Len(t, paths, 1)
			mu.Unlock()
		})
	}
}

// TestAzureAccount: where a container is, by a connection string or by variables.
func TestAzureAccount(t *testing.T) {
	fresh(t)
	for text, want := range map[string]string{
		"DefaultEndpointsProtocol=https;AccountName=a;AccountKey=c2VjcmV0Cg==;EndpointSuffix=core.chinacloudapi.cn": "https://a.blob.core.chinacloudapi.cn/models",
		"AccountName=a;AccountKey=c2VjcmV0":                            "https://a.blob.core.windows.net/models",
		"BlobEndpoint=http://127.0.0.1:1/a/;SharedAccessSignature=s=1": "http://127.0.0.1:1/a/models?s=1",
	} {
		t.Setenv("AZURE_STORAGE_CONNECTION_STRING", text)
		b, _ := openAt(t, "azblob://models/x")
		require.Equal(t, want, b.store.(azureStore).client.URL())
	}
	for _, text := range []string{"verysecret", "AccountName=a;AccountKey=verysecret!", "AccountName=a", "BlobEndpoint=nothing?sig=verysecret;SharedAccessSignature=s"} {
		t.Setenv("AZURE_STORAGE_CONNECTION_STRING", text)
		_, _, err := Open(t.Context(), "azblob://models/x")
		require.Error(t, err)
		require.NotContains(t, err.Error(), "verysecret")
	}
	t.Setenv("AZURE_STORAGE_CONNECTION_STRING", "")
	_, _, err := Open(t.Context(), "azblob://models/x")
	require.ErrorContains(t, err, "AZURE_STORAGE_ACCOUNT is not set")
	t.Setenv("AZURE_STORAGE_ACCOUNT", "account")
	for _, test := range []struct{ name, value, query, want string }{
		{"AZURE_STORAGE_SAS_TOKEN", "?sv=1&sig=a", "", "https://account.blob.core.windows.net/models?sv=1&sig=a"},
		{"AZURE_STORAGE_KEY", "c2VjcmV0", "?protocol=http&domain=127.0.0.1", "http://account.127.0.0.1/models"},
		{"AZURE_STORAGE_DOMAIN", "blob.core.usgovcloudapi.net", "?anonymous=true", "https://account.blob.core.usgovcloudapi.net/models"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv(test.name, test.value)
			b, _ := openAt(t, "azblob://models/x"+test.query)
			if u, ok := b.store.(unnamed); ok {
				b.store = u.store
			}
			require.Equal(t, test.want, b.store.(azureStore).client.URL())
		})
	}
}

// TestNoGoogleAccount: a bucket is not opened without a way to log in.
func TestNoGoogleAccount(t *testing.T) {
	fresh(t)
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", filepath.Join(t.TempDir(), "none.json"))
	_, _, err := Open(t.Context(), "gs://models/x")
	require.ErrorContains(t, err, "none.json")
}

// TestAzureAnswers: an answer to a request without the header of the store comes from the server that
// issues credentials. Without a request, it is taken for one of the store.
func TestAzureAnswers(t *testing.T) {
	answer := func(header string) error {
		request := &http.Request{Header: http.Header{header: {"2026-01-01"}}}
		return refused(&azcore.ResponseError{StatusCode: 403, ErrorCode: "Odd", RawResponse: &http.Response{Request: request}})
	}
	require.EqualError(t, answer("x-ms-version"), "403 Forbidden: Odd")
	require.EqualError(t, answer("x-other"), "the login failed: 403 Forbidden: Odd")
	require.EqualError(t, refused(&azcore.ResponseError{StatusCode: 403, ErrorCode: "Odd"}), "403 Forbidden: Odd")
	require.Equal(t, 403, status(answer("x-ms-version")))
	require.Zero(t, status(answer("x-other")), "this is not an answer of the store")
}

// TestSums: parts for Amazon have a CRC-32, which Google does not support.
func TestSums(t *testing.T) {
	for scheme, want := range map[string]*string{"s3": aws.String("jNwWgw=="), "gs": nil} {
		fresh(t)
		b, _ := at(t, scheme, "http://127.0.0.1:1", "x")
		require.Equal(t, want, b.store.(s3Store).sum([]byte("x")), scheme)
	}
}
