package bucket

import (
	"context"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strings"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
)

// An azureStore is a container of Azure's Blob Storage.
type azureStore struct{ *rest }

// openAzure takes the account, and what opens it, from the variables that Azure's own
// tools read; without a key or a signature, from whoever is logged in.
func openAzure(ctx context.Context, name string, query url.Values) (store, error) {
	o, err := options(query, "storage_account", "domain", "protocol", "anonymous")
	if err != nil {
		return nil, err
	}
	a := azureAccount{
		name:      first(o["storage_account"], os.Getenv("AZURE_STORAGE_ACCOUNT")),
		key:       os.Getenv("AZURE_STORAGE_KEY"),
		signature: os.Getenv("AZURE_STORAGE_SAS_TOKEN"),
	}
	if text := os.Getenv("AZURE_STORAGE_CONNECTION_STRING"); text != "" && o["storage_account"] == "" {
		a = parseConnection(text)
	}
	if a.name == "" && a.endpoint == "" {
		return nil, errors.New("AZURE_STORAGE_ACCOUNT is not set, nor AZURE_STORAGE_CONNECTION_STRING")
	}
	domain := first(o["domain"], os.Getenv("AZURE_STORAGE_DOMAIN"), a.domain, "blob.core.windows.net")
	endpoint := first(a.endpoint, first(o["protocol"], a.protocol, "https")+"://"+a.name+"."+domain)
	base, err := bucketURL(name, endpoint, true)
	if err != nil {
		return nil, err
	}
	authorize := anonymous
	switch {
	case o["anonymous"] == "true":
	case a.key != "":
		authorize, err = sharedKey(a.name, a.key)
	case a.signature != "":
		base.RawQuery = strings.TrimPrefix(a.signature, "?")
	default:
		authorize, err = bearer(azureTokens(ctx)), nil
	}
	return azureStore{&rest{patient(awshttp.NewBuildableClient()), base, azureHeaders(authorize), defaultTries}}, err
}

// An azureAccount is where a container is, and what opens it.
type azureAccount struct{ name, key, signature, endpoint, protocol, domain string }

// parseConnection parses a connection string, as the portal of Azure shows it.
func parseConnection(text string) (a azureAccount) {
	fields := map[string]*string{
		"accountname": &a.name, "accountkey": &a.key, "sharedaccesssignature": &a.signature,
		"blobendpoint": &a.endpoint, "defaultendpointsprotocol": &a.protocol, "endpointsuffix": &a.domain,
	}
	for field := range strings.SplitSeq(text, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		if dst := fields[strings.ToLower(name)]; dst != nil {
			*dst = value
		}
	}
	if a.domain != "" {
		a.domain = "blob." + a.domain
	}
	return a
}

func (s azureStore) list(ctx context.Context, prefix string) (entries []listed, err error) {
	query := url.Values{"restype": {"container"}, "comp": {"list"}, "delimiter": {"/"}, "prefix": {prefix}}
	for pages := 1; ; pages++ {
		var page struct {
			Blobs struct {
				Blob       []azureBlob
				BlobPrefix []azureBlob
			}
			NextMarker string
		}
		if _, err := s.send(ctx, request{method: http.MethodGet, query: query, answer: &page}); err != nil {
			return nil, err
		}
		for _, b := range append(page.Blobs.Blob, page.Blobs.BlobPrefix...) {
			e, err := b.listed()
			if err != nil {
				return nil, err
			}
			entries = append(entries, e)
		}
		if page.NextMarker == "" {
			return entries, nil
		}
		if err := next(query, "marker", page.NextMarker, pages, len(entries)); err != nil {
			return nil, err
		}
	}
}

// An azureBlob is a blob in a list, or what several names start with. The name is escaped
// where XML cannot hold it.
type azureBlob struct {
	Name struct {
		Encoded bool   `xml:",attr"`
		Text    string `xml:",chardata"`
	}
	Properties struct {
		Size     int64  `xml:"Content-Length"`
		Modified string `xml:"Last-Modified"`
		Etag     string
	}
}

func (b azureBlob) listed() (listed, error) {
	key := b.Name.Text
	if b.Name.Encoded {
		var err error
		if key, err = url.PathUnescape(key); err != nil {
			return listed{}, fmt.Errorf("the answer has the name %q, which is escaped wrongly", b.Name.Text)
		}
	}
	modified, _ := http.ParseTime(b.Properties.Modified)
	return listed{key, attributes{b.Properties.Size, modified, b.Properties.Etag}}, nil
}

func (s azureStore) put(ctx context.Context, key string, body []byte) error {
	return s.done(ctx, putBlob(key, body))
}

func putBlob(key string, body []byte) request {
	header := map[string]string{"X-Ms-Blob-Type": "BlockBlob", "Content-Type": contentType}
	return request{method: http.MethodPut, key: key, header: header, body: body}
}

func (s azureStore) create(ctx context.Context, key string, body []byte) error {
	r := putBlob(key, body)
	r.header["If-None-Match"] = "*"
	err := s.done(ctx, r)
	var refused *refusal
	if errors.As(err, &refused) && refused.Code == "BlobAlreadyExists" { // with the status 409
		refused.status = http.StatusPreconditionFailed
	}
	return err
}

// An azureUpload puts blocks. Those that no list names disappear by themselves. All uploads of
// a blob share one set of blocks: a random number keeps the list of one from naming the blocks
// of another.
type azureUpload struct {
	azureStore
	key    string
	number uint64
}

func (s azureStore) begin(_ context.Context, key string) (upload, error) {
	return azureUpload{s, key, rand.Uint64()}, nil
}

func (u azureUpload) block(i int) string {
	return base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%016x%08d", u.number, i))
}

func (u azureUpload) part(ctx context.Context, i int, body []byte) error {
	query := url.Values{"comp": {"block"}, "blockid": {u.block(i)}}
	return u.done(ctx, request{method: http.MethodPut, key: u.key, query: query, body: body})
}

func (u azureUpload) complete(ctx context.Context, parts int) error {
	var list struct {
		XMLName xml.Name `xml:"BlockList"`
		Latest  []string
	}
	for i := range parts {
		list.Latest = append(list.Latest, u.block(i))
	}
	body, err := xml.Marshal(list)
	if err != nil {
		return err
	}
	header := map[string]string{"X-Ms-Blob-Content-Type": contentType, "Content-Type": "application/xml"}
	return u.done(ctx, request{method: http.MethodPut, key: u.key, query: url.Values{"comp": {"blocklist"}}, header: header, body: body})
}

func (u azureUpload) abort(context.Context) error {
	return &refusal{status: http.StatusNotFound} // there is nothing to be removed
}
