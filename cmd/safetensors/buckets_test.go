package main

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// A cloud is an object store on the loopback interface that can be told to fail.
type cloud struct {
	url    string // of the bucket
	faults *faulty
	under  func(prefix string) map[string]string // the objects whose keys have a prefix
}

func (c cloud) objects() map[string]string { return c.under("") }

// folder returns the files in a folder of the bucket.
func (c cloud) folder(dir string) map[string]string { return inFolder(c.under(dir+"/"), dir) }

// inFolder returns the objects of a folder by their names in it.
func inFolder(objects map[string]string, dir string) map[string]string {
	files := make(map[string]string)
	for key, text := range objects {
		files[strings.TrimPrefix(key, dir+"/")] = text
	}
	return files
}

// run runs the command while request number at, from 1 on, is refused, before the server has
// done it or after. It returns how many requests there were.
func (f *faulty) run(t *testing.T, at int, before bool, args ...string) (result, int) {
	var count atomic.Int64
	f.setFault(func(w http.ResponseWriter, r *http.Request) bool {
		refused := int(count.Add(1)) == at && (before || !r.URL.Query().Has("uploads")) // nobody can end an upload whose name got lost
		if refused {
			f.swallow(r, before)
			w.WriteHeader(http.StatusForbidden)
		}
		return refused
	})
	defer f.setFault(nil)
	return runs(t, args...), int(count.Load())
}

// clouds starts the stores.
func clouds(t *testing.T) map[string]cloud {
	s := startStore(t, fakeS3())
	return map[string]cloud{
		"s3":     {"s3://models", s.faulty, s.complete(t)},
		"gs":     startGoogle(t),
		"azblob": startAzure(t),
	}
}

// contents returns the objects under a prefix. Parts of uploads may be left over.
func (s *store) contents(t *testing.T, prefix string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	listed := must(s.client.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: aws.String("models"), Prefix: &prefix}))
	for _, o := range listed.Contents {
		got := must(s.client.GetObject(t.Context(), &s3.GetObjectInput{Bucket: aws.String("models"), Key: o.Key}))
		all[*o.Key] = string(must(io.ReadAll(got.Body)))
	}
	return all
}

// complete is contents, which requires that no upload is left over.
func (s *store) complete(t *testing.T) func(prefix string) map[string]string {
	return func(prefix string) map[string]string {
		s.objects(t)
		return s.contents(t, prefix)
	}
}

// startGoogle starts a store with the XML API of Google: what S3 has, with tokens, which
// a service account gets from another server. It refuses what only Amazon knows.
func startGoogle(t *testing.T) cloud {
	der := must(x509.MarshalPKCS8PrivateKey(must(rsa.GenerateKey(rand.Reader, 2048))))
	tokens := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"access_token":"token","token_type":"Bearer","expires_in":3600}`)
	})
	account := must(json.Marshal(map[string]string{
		"type": "service_account", "client_email": "tests@example.com", "token_uri": tokens,
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
	}))
	require.NoError(t, os.WriteFile("account.json", account, 0o600))
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", "account.json")

	fake := fakeS3()
	google := &faulty{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		strange := slices.ContainsFunc(slices.Collect(maps.Keys(r.Header)), func(name string) bool { return strings.Contains(strings.ToLower(name), "amz") })
		if r.Header.Get("Authorization") != "Bearer token" || strange || r.Header.Get("If-None-Match") != "" || r.URL.Query().Has("x-id") || r.Header.Get("Content-Encoding") != "" {
			http.Error(w, "not for Google", http.StatusBadRequest)
			return
		}
		if r.Header.Get("X-Goog-If-Generation-Match") == "0" {
			r.Header.Set("If-None-Match", "*")
		}
		fake.ServeHTTP(w, r)
	})}
	direct := serve(t, fake.ServeHTTP)
	client := s3.New(s3.Options{BaseEndpoint: &direct, Region: "auto", UsePathStyle: true, Credentials: aws.AnonymousCredentials{}})
	must(client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String("models")}))
	endpoint := serve(t, google.ServeHTTP)
	t.Setenv("STORAGE_EMULATOR_HOST", endpoint)
	return cloud{"gs://models?endpoint=" + endpoint, google, (&store{client: client}).complete(t)}
}

// An azure is a container of Azure's Blob Storage.
type azure struct {
	mu     sync.Mutex
	blobs  map[string]string
	blocks map[string]string // by blob and block
}

func startAzure(t *testing.T) cloud {
	a := &azure{blobs: make(map[string]string), blocks: make(map[string]string)}
	f := &faulty{Handler: a}
	t.Setenv("AZURE_STORAGE_CONNECTION_STRING",
		"DefaultEndpointsProtocol=http;AccountName=account;AccountKey=c2VjcmV0;BlobEndpoint="+serve(t, f.ServeHTTP)+"/account")
	return cloud{"azblob://models", f, func(prefix string) map[string]string {
		a.mu.Lock()
		defer a.mu.Unlock()
		all := maps.Clone(a.blobs)
		maps.DeleteFunc(all, func(key, _ string) bool { return !strings.HasPrefix(key, prefix) })
		return all
	}}
}

func (a *azure) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/account/models"), "/")
	body, _ := io.ReadAll(r.Body)
	blob, found := a.blobs[key]
	query := r.URL.Query()
	switch {
	case !strings.HasPrefix(r.Header.Get("Authorization"), "SharedKey account:"):
		w.WriteHeader(http.StatusUnauthorized)
	case query.Get("comp") == "list":
		a.list(w, query.Get("prefix"))
	case r.Method == http.MethodPut && query.Get("comp") == "block":
		a.blocks[key+"\n"+query.Get("blockid")] = string(body)
		w.WriteHeader(http.StatusCreated)
	case r.Method == http.MethodPut && query.Get("comp") == "blocklist":
		var list struct{ Latest []string }
		xml.Unmarshal(body, &list)
		var all strings.Builder
		for _, id := range list.Latest {
			all.WriteString(a.blocks[key+"\n"+id])
		}
		a.blobs[key] = all.String()
		w.WriteHeader(http.StatusCreated)
	case r.Method == http.MethodPut && found && r.Header.Get("If-None-Match") == "*":
		w.Header().Set("X-Ms-Error-Code", "BlobAlreadyExists")
		w.WriteHeader(http.StatusConflict)
	case r.Method == http.MethodPut:
		a.blobs[key] = string(body)
		w.WriteHeader(http.StatusCreated)
	case !found:
		w.Header().Set("X-Ms-Error-Code", "BlobNotFound")
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodDelete:
		delete(a.blobs, key)
		w.WriteHeader(http.StatusAccepted)
	case blob == "" && r.Header.Get("X-Ms-Range") != "":
		w.Header().Set("X-Ms-Error-Code", "InvalidRange")
		w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
	default:
		if x := r.Header.Get("X-Ms-Range"); x != "" {
			r.Header.Set("Range", x)
		}
		w.Header().Set("ETag", strconv.Quote(base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%d", len(blob)))))
		http.ServeContent(w, r, "", time.Unix(1, 0), strings.NewReader(blob))
	}
}

func (a *azure) list(w http.ResponseWriter, prefix string) {
	fmt.Fprint(w, `<EnumerationResults><Blobs>`)
	for _, key := range slices.Sorted(maps.Keys(a.blobs)) {
		if rest, ok := strings.CutPrefix(key, prefix); ok && !strings.Contains(rest, "/") {
			fmt.Fprint(w, `<Blob><Name>`)
			xml.EscapeText(w, []byte(key))
			fmt.Fprintf(w, `</Name><Properties><Content-Length>%d</Content-Length></Properties></Blob>`, len(a.blobs[key]))
		}
	}
	fmt.Fprint(w, `</Blobs><NextMarker/></EnumerationResults>`)
}

// at returns the URL of a key.
func (c cloud) at(key string) string {
	bucket, query, ok := strings.Cut(c.url, "?")
	if ok {
		query = "?" + query
	}
	return bucket + "/" + key + query
}

// TestClouds copies up and down, in parts too, and lists.
func TestClouds(t *testing.T) {
	all := clouds(t)
	writeShards(t, "local")
	require.NoError(t, safetensors.WriteFile("big.safetensors", map[string]safetensors.Tensor{"big": counting(t, 5<<20), "small": counting(t, 3)}, nil))
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			succeeds(t, "cp", "local", c.at("llama"), "--max-shard-size", "32B")
			require.Equal(t, "equal\n", succeeds(t, "diff", "local", c.at("llama"), "--meta"))
			require.Len(t, c.objects(), 4)
			succeeds(t, "cp", c.at("llama"), c.at("llama"), "--max-shard-size", "64B", "--force")
			require.Equal(t, "equal\n", succeeds(t, "diff", "local", c.at("llama"), "--meta"))
			require.Len(t, c.objects(), 3)
			succeeds(t, "cp", "big.safetensors", c.at("big.safetensors"))
			require.True(t, c.objects()["big.safetensors"] == string(must(os.ReadFile("big.safetensors"))))
			require.Equal(t, "equal\n", succeeds(t, "diff", "big.safetensors", c.at("big.safetensors")))
			succeeds(t, "cp", "local/model-00001-of-00003.safetensors", c.at("one/"))
			require.Contains(t, c.objects(), "one/model-00001-of-00003.safetensors")
			escaped := "a%2f?.safetensors"
			if runtime.GOOS == "windows" { // which has no ? in names
				escaped = "a%2f.safetensors"
			}
			require.NoError(t, os.WriteFile(escaped, must(os.ReadFile("big.safetensors")), 0o666))
			succeeds(t, "cp", escaped, c.at("one/"))
			require.Contains(t, c.objects(), "one/"+escaped)
			const odd = "a b+%c=é'()!*;:@&,$"
			succeeds(t, "cp", "local", c.at(url.PathEscape(odd)+"/x.safetensors"))
			require.Equal(t, "equal\n", succeeds(t, "diff", "local", c.at(url.PathEscape(odd))))
			require.Contains(t, c.objects(), odd+"/x.safetensors")
			require.Contains(t, fails(t, 1, "ls", c.at("absent")), "file does not exist")
			require.Contains(t, fails(t, 1, "cp", "local", c.at("llama")), "--force replaces it")
			require.Contains(t, fails(t, 1, "ls", strings.Split(c.url, "?")[0]+"/x?nonsense=secret"), `the query has "nonsense", expected`)
		})
	}
}

// TestCloudFaults refuses each request of a copy once, before and after the store has
// done what it asks for. Afterwards the old checkpoint is there, byte for byte, or the
// new one, and nothing is left over. That takes a minute: SAFETENSORS_FAULTS=1 does all of
// it, else it is one copy to one store.
func TestCloudFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("hundreds of copies")
	}
	all := clouds(t)
	tensors := map[string]safetensors.Tensor{"a": counting(t, 40), "b": counting(t, 50), "c": counting(t, 60)}
	require.NoError(t, safetensors.WriteFile("old.safetensors", tensors, nil))
	tensors["d"] = counting(t, 3<<20)
	require.NoError(t, safetensors.WriteFile("new.safetensors", tensors, nil))
	places := 0
	for name, c := range all {
		for _, scene := range []struct {
			ending   string
			old, new []string // flags
		}{
			{".safetensors", nil, nil},
			{"", []string{"--max-shard-size", "300B"}, []string{"--max-shard-size", "300B"}},
			{"", nil, []string{"--max-shard-size", "300B"}},
			{"", []string{"--max-shard-size", "300B"}, nil},
		} {
			if os.Getenv("SAFETENSORS_FAULTS") != "1" && (name != "gs" || scene.old == nil || scene.new == nil) {
				continue
			}
			// replaced replaces the old checkpoint with a fault in a request.
			replaced := func(at int, before bool) (key string, old, now map[string]string, r result, requests int) {
				places++
				key = fmt.Sprintf("place%03d%s", places, scene.ending)
				succeeds(t, append([]string{"cp", "-q", "old.safetensors", c.at(key)}, scene.old...)...)
				old = c.under(key)
				r, requests = c.faults.run(t, at, before, append([]string{"cp", "-q", "--force", "new.safetensors", c.at(key)}, scene.new...)...)
				return key, old, c.under(key), r, requests
			}
			_, _, clean, r, count := replaced(0, false)
			require.Zero(t, r.code, r.stderr)
			for _, before := range []bool{true, false} {
				for at := 1; at <= count; at++ {
					key, old, now, r, _ := replaced(at, before)
					if r.code != 0 && maps.Equal(old, now) {
						continue
					}
					where := fmt.Sprintf("%s %v, request %d of %d, %v: %s", name, scene, at, count, before, r.stderr)
					require.Equal(t, "equal\n", succeeds(t, "diff", "new.safetensors", c.at(key)), where)
					stay := 0
					for key, text := range now {
						if old[key] == text {
							stay++
						}
					}
					require.Equal(t, len(clean), len(now)-stay, where)
					if stay > 0 && scene.new != nil { // of one file, the answer that it is there may be what got lost
						require.Contains(t, r.stderr, "a file of an earlier one could not be removed", where)
					}
				}
			}
		}
	}
}
