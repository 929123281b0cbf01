package bucket

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTokenTries: a token that is not to be had now is asked for again, as an object is.
func TestTokenTries(t *testing.T) {
	text := `{"access_token":"token","token_type":"Bearer","expires_in":3600,"expires_on":"4102444800"}`
	token := says(200, text, "Content-Type", "application/json")
	found := says(200, "", "Content-Length", "0")
	forbidden := says(401, "{}", "Content-Type", "application/json")

	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	private := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	for name, prepare := range map[string]func(t *testing.T, endpoint string) (rawURL string){
		"service account": func(t *testing.T, endpoint string) string {
			account, err := json.Marshal(map[string]string{"type": "service_account", "client_email": "me", "private_key": string(private), "token_uri": endpoint})
			require.NoError(t, err)
			file := filepath.Join(t.TempDir(), "account.json")
			require.NoError(t, os.WriteFile(file, account, 0o600))
			t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", file)
			return "gs://models/x?endpoint=" + endpoint
		},
		"application": func(t *testing.T, endpoint string) string {
			t.Setenv("AZURE_STORAGE_CONNECTION_STRING", "BlobEndpoint="+endpoint)
			t.Setenv("AZURE_TENANT_ID", "tenant")
			t.Setenv("AZURE_CLIENT_SECRET", "secret")
			t.Setenv("AZURE_AUTHORITY_HOST", endpoint)
			return "azblob://models/x"
		},
		"machine": func(t *testing.T, endpoint string) string {
			t.Setenv("AZURE_STORAGE_CONNECTION_STRING", "BlobEndpoint="+endpoint)
			t.Setenv("AZURE_TENANT_ID", "")
			t.Setenv("IDENTITY_ENDPOINT", endpoint)
			t.Setenv("PATH", "") // no az
			return "azblob://models/x"
		},
	} {
		t.Run(name, func(t *testing.T) {
			endpoint, requests := serve(t, says(503, ""), cut, token, found)
			b, key := openAt(t, prepare(t, endpoint))
			exists, err := b.Exists(key)
			require.NoError(t, err)
			require.True(t, exists)
			require.Len(t, requests(), 4)
			require.Equal(t, "Bearer token", requests()[3].Header.Get("Authorization"))
			require.NotEqual(t, requests()[3].URL.Path, requests()[2].URL.Path)
			require.Equal(t, requests()[0].Form, requests()[2].Form, "another try sends the same")

			endpoint, requests = serve(t, forbidden)
			b, key = openAt(t, prepare(t, endpoint))
			_, err = b.Exists(key)
			require.ErrorContains(t, err, "401")
			require.Len(t, requests(), 1)
		})
	}

	// What a server of tokens lacks is none of the objects.
	endpoint, _ := serve(t, says(404, ""))
	t.Setenv("AZURE_STORAGE_CONNECTION_STRING", "BlobEndpoint="+endpoint)
	t.Setenv("AZURE_TENANT_ID", "")
	t.Setenv("IDENTITY_ENDPOINT", endpoint)
	t.Setenv("PATH", "")
	b, name := openAt(t, "azblob://models/x")
	_, err = b.Exists(name)
	require.ErrorContains(t, err, "nobody is logged in")
	require.NotErrorIs(t, err, fs.ErrNotExist)
}
