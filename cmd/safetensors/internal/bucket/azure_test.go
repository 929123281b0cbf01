package bucket

import (
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSharedKey: signatures of azblob 1.6.3, of Azure's own library, for the key "secret".
func TestSharedKey(t *testing.T) {
	authorize, err := sharedKey("account", "c2VjcmV0")
	require.NoError(t, err)
	for _, test := range []struct {
		request string
		length  int
		header  map[string]string
		want    string
	}{
		{"GET /account/models?comp=list&delimiter=%2F&prefix=a%20b%2F&restype=container", 0, nil, "USD6uT6YaT1VGfqm0ORrbZqmsSX63+muf28K5zoyrSU="},
		{"GET /account/models/a%20b%2Fc+d.bin", 0, map[string]string{"X-Ms-Range": "bytes=5-11"}, "JBFY/cd/kJB49N+RlIjNnVE4kMguOMrpLi0JnJVw+34="},
		{"PUT /account/models/x", 5, map[string]string{"Content-Type": contentType, "X-Ms-Blob-Type": "BlockBlob"}, "pb6dA3dtV7MDaoTFMvVGproXa24OJYhG1pQJv+9wFog="},
		{"PUT /account/models/x?blockid=MDAwMDAwMDE%3D&comp=block", 5, map[string]string{"Content-Type": contentType}, "bYTIDEVi6lmoLkT2w+GNPDCj13Zfzv6JWrLoK6apXzI="},
		{"PUT /account/models/x?comp=blocklist", 91, map[string]string{"Content-Type": "application/xml"}, "SeU01Bv2dgNGLoSHjra07sHQlA09Jd/3DYFG0+gDUjc="},
		{"DELETE /account/models/x", 0, nil, "WjDQkG4jm/xbeOXbvcWcqPzh9PMGl53ZQrfoTgFnySE="},
	} {
		method, path, _ := strings.Cut(test.request, " ")
		r, err := http.NewRequest(method, "http://127.0.0.1"+path, nil)
		require.NoError(t, err)
		r.Header.Set("X-Ms-Date", "Sun, 22 Nov 2026 05:06:41 GMT")
		r.Header.Set("X-Ms-Version", "2025-11-05")
		for name, value := range test.header {
			r.Header.Set(name, value)
		}
		require.NoError(t, authorize(r, make([]byte, test.length)))
		require.Equal(t, "SharedKey account:"+test.want, r.Header.Get("Authorization"), test.request)
	}
	_, err = sharedKey("account", "not base64!")
	require.ErrorContains(t, err, "is not base64")
}

func TestAzureConnection(t *testing.T) {
	serve(t)
	for text, want := range map[string]string{
		"DefaultEndpointsProtocol=https;AccountName=a;AccountKey=c2VjcmV0Cg==;EndpointSuffix=core.chinacloudapi.cn": "https://a.blob.core.chinacloudapi.cn/models",
		"AccountName=a;AccountKey=c2VjcmV0":                            "https://a.blob.core.windows.net/models",
		"BlobEndpoint=http://127.0.0.1:1/a/;SharedAccessSignature=s=1": "http://127.0.0.1:1/a/models?s=1",
	} {
		t.Setenv("AZURE_STORAGE_CONNECTION_STRING", text)
		b, _ := openAt(t, "azblob://models/x")
		require.Equal(t, want, b.store.(azureStore).base.String())
	}
	t.Setenv("AZURE_STORAGE_CONNECTION_STRING", "")
	_, _, err := Open(t.Context(), "azblob://models/x")
	require.ErrorContains(t, err, "AZURE_STORAGE_ACCOUNT is not set")
}

// TestAzureTokens: each way to be logged in, by a server or a command in its place.
func TestAzureTokens(t *testing.T) {
	application := says(200, `{"access_token":"token","token_type":"Bearer","expires_in":3600}`, "Content-Type", "application/json")
	machine := says(200, `{"access_token":"token","expires_on":"4102444800"}`)
	for name, test := range map[string]struct {
		answer      http.HandlerFunc
		environment map[string]string
		check       func(t *testing.T, r *http.Request)
	}{
		"secret": {application, map[string]string{"AZURE_TENANT_ID": "tenant", "AZURE_CLIENT_ID": "me", "AZURE_CLIENT_SECRET": "secret"}, func(t *testing.T, r *http.Request) {
			require.Equal(t, "/tenant/oauth2/v2.0/token", r.URL.Path)
			require.Equal(t, "secret", r.Form.Get("client_secret"))
			require.Equal(t, "me", r.Form.Get("client_id"))
			require.Equal(t, "https://storage.azure.com/.default", r.Form.Get("scope"))
		}},
		"workload": {application, map[string]string{"AZURE_TENANT_ID": "tenant", "AZURE_CLIENT_ID": "me", "AZURE_FEDERATED_TOKEN_FILE": "file"}, func(t *testing.T, r *http.Request) {
			require.Equal(t, "proof", r.Form.Get("client_assertion"))
			require.Empty(t, r.Form.Get("client_secret"))
		}},
		"machine": {machine, map[string]string{"IDENTITY_HEADER": "header", "AZURE_CLIENT_ID": "me"}, func(t *testing.T, r *http.Request) {
			require.Equal(t, "header", r.Header.Get("X-Identity-Header"))
			require.Equal(t, "https://storage.azure.com/", r.Form.Get("resource"))
			require.Equal(t, "me", r.Form.Get("client_id"))
		}},
		"command": {says(404, ""), nil, func(*testing.T, *http.Request) {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			require.NoError(t, os.WriteFile("file", []byte("proof\n"), 0o600))
			for _, name := range []string{"AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_FEDERATED_TOKEN_FILE", "IDENTITY_HEADER"} {
				t.Setenv(name, test.environment[name])
			}
			if name == "command" {
				commandAZ(t)
			}
			endpoint, requests := serve(t, test.answer)
			t.Setenv("AZURE_AUTHORITY_HOST", endpoint+"/")
			t.Setenv("IDENTITY_ENDPOINT", endpoint)
			tokens := azureTokens(t.Context())
			for range 2 { // the second time without a request
				token, err := tokens.Token()
				require.NoError(t, err)
				require.Equal(t, "token", token.AccessToken)
				require.Equal(t, "Bearer", token.Type())
			}
			require.Len(t, requests(), 1)
			test.check(t, requests()[0])
		})
	}
}

// commandAZ makes a command az that answers as Azure's.
func commandAZ(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a script of a shell")
	}
	dir := t.TempDir()
	script := "#!/bin/sh\necho '{\"accessToken\":\"token\",\"expires_on\":4102444800}'\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "az"), []byte(script), 0o700))
	t.Setenv("PATH", dir)
}
