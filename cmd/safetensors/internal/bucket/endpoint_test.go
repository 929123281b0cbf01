package bucket

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNamedEndpoints: a URL alone brings no credentials to the endpoint that it chooses, neither a
// signature nor a token, and no server is asked for a token. With the variable of each SDK that
// names the same endpoint, it gets them; another port in the variable does not count.
func TestNamedEndpoints(t *testing.T) {
	for name, c := range map[string]struct{ url, variable, other string }{
		"s3":              {"s3://models/x?endpoint=ENDPOINT", "AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1"},
		"s3 all services": {"s3://models/x?endpoint=ENDPOINT&region=eu-west-1", "AWS_ENDPOINT_URL", "http://127.0.0.1:1"},
		"s3 directory":    {"s3://models--usw2-az1--x-s3/x?region=us-west-2&endpoint=ENDPOINT", "AWS_ENDPOINT_URL", "http://127.0.0.1:1"},
		"gs":              {"gs://models/x?endpoint=ENDPOINT", "STORAGE_EMULATOR_HOST", "127.0.0.1:1"},
		"gs without http": {"gs://models/x?endpoint=ENDPOINT/", "STORAGE_EMULATOR_HOST", "http://localhost:1"},
		"azblob key":      {"azblob://models/x?storage_account=127&protocol=http&domain=DOMAIN", "AZURE_STORAGE_DOMAIN", "0.0.1:1"},
		"azblob sig":      {"azblob://models/x?storage_account=127&protocol=http&domain=DOMAIN", "AZURE_STORAGE_DOMAIN", ""},
		"azblob protocol": {"azblob://models/x?storage_account=127&protocol=http&domain=DOMAIN", "AZURE_STORAGE_DOMAIN", "blob.core.windows.net"},
	} {
		t.Run(name, func(t *testing.T) {
			fresh(t)
			var logins int
			tokens := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				logins++
				says(200, `{"access_token":"verysecrettoken","token_type":"Bearer","expires_in":3600}`, "Content-Type", "application/json")(w, r)
			}))
			t.Cleanup(tokens.Close)
			t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", serviceAccount(t, tokens.URL))
			if name == "azblob sig" {
				t.Setenv("AZURE_STORAGE_SAS_TOKEN", "sv=1&sig=verysecret")
			} else {
				t.Setenv("AZURE_STORAGE_KEY", "c2VjcmV0")
			}
			server := listen(t, httptest.NewServer, func(w http.ResponseWriter, r *http.Request, echo string) {
				require.NotContains(t, echo, "X-Amz-Security-Token")
				w.WriteHeader(http.StatusForbidden)
			})
			host := strings.TrimPrefix(server.URL, "http://")
			rawURL := strings.NewReplacer("ENDPOINT", server.URL, "DOMAIN", strings.TrimPrefix(host, "127.")).Replace(c.url)
			head := func(variable string) (string, error) {
				t.Setenv(c.variable, variable)
				b, key := openAt(t, rawURL)
				err := b.Head(key)
				require.ErrorContains(t, err, "403")
				requests := server.requests()
				return strings.TrimSpace(requests[len(requests)-1]), err
			}
			for _, variable := range []string{"", c.other} {
				got, err := head(variable)
				require.Empty(t, got)
				require.Zero(t, logins)
				require.ErrorContains(t, err, "the request was anonymous: the URL names the endpoint, and ")
				require.ErrorContains(t, err, " does not")
			}
			variable := server.URL
			if strings.HasPrefix(name, "azblob") {
				variable = strings.TrimPrefix(host, "127.")
			} else if name == "gs without http" {
				variable = host
			}
			got, err := head(variable)
			require.NotEmpty(t, got)
			require.NotContains(t, err.Error(), "anonymous")
		})
	}
}

// TestEndpointOfTheEnvironment: the variable alone chooses the endpoint, and the default endpoint of
// a cloud counts as named.
func TestEndpointOfTheEnvironment(t *testing.T) {
	fresh(t)
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", serviceAccount(t, "http://127.0.0.1:1"))
	b, _ := openAt(t, "gs://models/x?endpoint=https%3A%2F%2FStorage.googleapis.com:443/")
	require.IsType(t, s3Store{}, b.store)
	t.Setenv("AZURE_STORAGE_KEY", "c2VjcmV0")
	b, _ = openAt(t, "azblob://models/x?storage_account=mine&domain=blob.core.windows.net")
	require.IsType(t, azureStore{}, b.store)
	t.Setenv("STORAGE_EMULATOR_HOST", "127.0.0.1:9")
	b, _ = openAt(t, "gs://models/x")
	require.Equal(t, "http://127.0.0.1:9", *b.store.(s3Store).client.Options().BaseEndpoint)
	t.Setenv("STORAGE_EMULATOR_HOST", "emulator.lan:9") // a token would be readable on the way there
	b, _ = openAt(t, "gs://models/x")
	require.IsType(t, unnamed{}, b.store)
	t.Setenv("AZURE_STORAGE_CONNECTION_STRING", "BlobEndpoint=http://127.0.0.1:1/a;SharedAccessSignature=sv=1&sig=verysecret")
	b, _ = openAt(t, "azblob://models/x?anonymous=true")
	require.Equal(t, "http://127.0.0.1:1/a/models", b.store.(azureStore).client.URL())
}

// TestAnonymousTo: a named endpoint gets credentials by https, or on this machine.
func TestAnonymousTo(t *testing.T) {
	for _, c := range []struct {
		endpoint, named string
		secret          bool
	}{
		{"https://minio.lan", "https://minio.lan", true},
		{"https://minio.lan/path?x", "https://MINIO.lan:443/", true},
		{"https://minio.lan:9000", "https://minio.lan:9000", true},
		{"https://minio.lan:9000", "https://minio.lan:9001", false},
		{"https://minio.lan:9000", "https://minio.lan", false},
		{"https://minio.lan", "http://minio.lan", false},
		{"https://minio.lan", "", false},
		{"https://minio.lan.example.com", "https://minio.lan", false},
		{"http://minio.lan", "http://minio.lan", false},
		{"http://192.168.0.1:9000", "http://192.168.0.1:9000", false},
		{"http://127.example.com", "http://127.example.com", false},
		{"http://localhost.example.com", "http://localhost.example.com", false},
		{"http://127.0.0.2:9000", "http://127.0.0.2:9000", true},
		{"http://[::1]:9000", "http://[::1]:9000", true},
		{"http://LocalHost:9000", "http://localhost:9000", true},
		{"", "", false},
		{"nothing", "nothing", false},
	} {
		require.Equal(t, c.secret, anonymousTo(c.endpoint, "VARIABLE", "https://other", c.named) == "", "%v", c)
	}
	require.Contains(t, anonymousTo("http://minio.lan", "VARIABLE", "http://minio.lan"), "is neither https nor on this machine")
}

// TestConnectionStringByHTTP: the credentials in a connection string of Azure go to an endpoint that
// is https or on this machine, and to no other. An anonymous request has none.
func TestConnectionStringByHTTP(t *testing.T) {
	fresh(t)
	for at, private := range map[string]bool{
		"BlobEndpoint=https://minio.lan/a":                       true,
		"BlobEndpoint=http://127.0.0.1:1/a":                      true,
		"BlobEndpoint=http://localhost:10000/a":                  true,
		"BlobEndpoint=http://minio.lan:10000/a":                  false,
		"BlobEndpoint=http://127.example.com/a":                  false,
		"DefaultEndpointsProtocol=http;EndpointSuffix=minio.lan": false,
	} {
		for _, secret := range []string{"SharedAccessSignature=sv=1&sig=verysecret", "AccountKey=dmVyeXNlY3JldA=="} {
			t.Setenv("AZURE_STORAGE_CONNECTION_STRING", at+";AccountName=a;"+secret)
			_, _, err := Open(t.Context(), "azblob://models/x")
			if strings.Contains(at, "Suffix") && strings.Contains(secret, "sig") { // Azure's SDK needs a BlobEndpoint for a signature
				require.Error(t, err, at)
				continue
			}
			if private {
				require.NoError(t, err, at)
				continue
			}
			require.ErrorContains(t, err, "is neither https nor on this machine: use https", at)
			require.NotContains(t, err.Error(), "secret")
			b, _ := openAt(t, "azblob://models/x?anonymous=true")
			require.NotContains(t, b.store.(azureStore).client.URL(), "secret")
		}
	}
}

// TestPartsOfAnAddress: no option of a URL puts another host into an address that is composed of it.
func TestPartsOfAnAddress(t *testing.T) {
	fresh(t)
	t.Setenv("AZURE_STORAGE_KEY", "c2VjcmV0")
	for _, bad := range []string{"example.com/", "example.com#", "example.com?", "me@example.com:443/", "example.com:443\\", "a.b"} {
		_, _, err := Open(t.Context(), "azblob://models/x?storage_account="+url.QueryEscape(bad))
		require.ErrorContains(t, err, "is not the name of a storage account")
		_, _, err = Open(t.Context(), "azblob://models/x?storage_account=a&protocol="+url.QueryEscape("https://"+bad))
		require.ErrorContains(t, err, "expected https or http")
		b, key, err := Open(t.Context(), "s3://models/x?region="+url.QueryEscape(bad))
		if err == nil && bad != "a.b" {
			require.ErrorContains(t, b.Head(key), "region")
		}
	}
}
