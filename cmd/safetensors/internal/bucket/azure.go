package bucket

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/gosafetensors/safetensors/internal/lazyregexp"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

type azureStore struct{ client *container.Client }

// openAzure takes the account and the credentials from the variables that Azure's own tools read.
// Without a key or a signature, it uses the login of Azure's tools.
func openAzure(_ context.Context, name string, query url.Values) (store, error) {
	o, err := options(query, "storage_account", "domain", "protocol", "anonymous")
	if err != nil {
		return nil, err
	}
	shared := azcore.ClientOptions{
		Transport: discreet{newClient(connections())},
		Retry:     policy.RetryOptions{MaxRetries: tries - 1, RetryDelay: firstPause, MaxRetryDelay: longestAsked, StatusCodes: busy},
	}
	clientOptions := &container.ClientOptions{ClientOptions: shared}
	anonymous := o["anonymous"] == "true"
	connection := os.Getenv("AZURE_STORAGE_CONNECTION_STRING")
	var account azureAccount
	if connection == "" || o["storage_account"] != "" {
		connection = ""
		if account, err = newAzureAccount(o); err != nil {
			return nil, err
		}
	}
	at := account.endpoint + "/" + name
	key, signature := os.Getenv("AZURE_STORAGE_KEY"), strings.TrimPrefix(os.Getenv("AZURE_STORAGE_SAS_TOKEN"), "?")
	var client *container.Client
	switch {
	case connection != "":
		client, err = container.NewClientFromConnectionString(connection, name, clientOptions)
		if err == nil && anonymous {
			bare, _, _ := strings.Cut(client.URL(), "?") // removes a signature, which is in the query
			client, err = container.NewClientWithNoCredential(bare, clientOptions)
		} else if err == nil && !private(client.URL()) {
			err = fmt.Errorf("AZURE_STORAGE_CONNECTION_STRING has credentials for %s, which is neither https nor on this machine: use https, or add ?anonymous=true to the URL", origin(client.URL()))
		}
	case anonymous || account.reason != "":
		client, err = container.NewClientWithNoCredential(at, clientOptions)
	case key != "":
		var credential *container.SharedKeyCredential
		if credential, err = container.NewSharedKeyCredential(account.name, key); err == nil {
			client, err = container.NewClientWithSharedKeyCredential(at, credential, clientOptions)
		}
	case signature != "":
		client, err = container.NewClientWithNoCredential(at+"?"+signature, clientOptions)
	default:
		var credential *azidentity.DefaultAzureCredential
		if credential, err = azidentity.NewDefaultAzureCredential(&azidentity.DefaultAzureCredentialOptions{ClientOptions: shared}); err == nil {
			client, err = container.NewClient(at, credential, clientOptions)
		}
	}
	if err == nil {
		err = checkEndpoint(client.URL())
	}
	return anonymously(azureStore{client}, account.reason), err
}

// An azureAccount is a storage account and the endpoint of its blobs. reason is the result of
// anonymousTo for the endpoint.
type azureAccount struct{ name, endpoint, reason string }

var azureName = lazyregexp.New(`^[0-9A-Za-z-]{1,63}$`)

// newAzureAccount returns the account that the options of a URL name, or else the environment. The
// account and the protocol are parts of the address, so they must not contain another host.
func newAzureAccount(o map[string]string) (azureAccount, error) {
	name, protocol := cmp.Or(o["storage_account"], os.Getenv("AZURE_STORAGE_ACCOUNT")), cmp.Or(o["protocol"], "https")
	switch {
	case name == "":
		return azureAccount{}, errors.New("AZURE_STORAGE_ACCOUNT is not set, nor AZURE_STORAGE_CONNECTION_STRING")
	case !azureName().MatchString(name):
		return azureAccount{}, fmt.Errorf("%s is not the name of a storage account", term.Quote(name, 100))
	case protocol != "https" && protocol != "http":
		return azureAccount{}, fmt.Errorf("the protocol is %s, expected https or http", term.Quote(protocol, 100))
	}
	in := func(domain string) string { return protocol + "://" + name + "." + domain }
	usual := cmp.Or(os.Getenv("AZURE_STORAGE_DOMAIN"), "blob.core.windows.net")
	a := azureAccount{name: name, endpoint: in(cmp.Or(o["domain"], usual))}
	if o["protocol"]+o["domain"] != "" && o["anonymous"] != "true" {
		a.reason = anonymousTo(a.endpoint, "AZURE_STORAGE_DOMAIN", in(usual), in("blob.core.windows.net"))
	}
	return a, nil
}

func (s azureStore) list(ctx context.Context, prefix, marker string) (page []objectInfo, next *string, err error) {
	o := &container.ListBlobsHierarchyOptions{Prefix: &prefix, MaxResults: to.Ptr[int32](1000)}
	if marker != "" {
		o.Marker = &marker
	}
	pager := s.client.NewListBlobsHierarchyPager("/", o)
	list, err := pager.NextPage(ctx)
	switch {
	case err != nil:
		return nil, nil, refused(err)
	case list.Segment == nil:
		return nil, nil, errNoList
	case pager.More():
		next = list.NextMarker
	}
	for _, b := range list.Segment.BlobItems {
		e := objectInfo{name: value(b.Name)}
		if p := b.Properties; p != nil {
			e.size, e.modified, e.tag = value(p.ContentLength), value(p.LastModified), string(value(p.ETag))
		}
		page = append(page, e)
	}
	for _, p := range list.Segment.BlobPrefixes {
		page = append(page, objectInfo{name: value(p.Name)})
	}
	return page, next, nil
}

func (s azureStore) head(ctx context.Context, key string) (objectInfo, error) {
	o, err := s.client.NewBlobClient(key).GetProperties(ctx, nil)
	if err != nil {
		return objectInfo{}, refused(err)
	}
	if o.ContentLength == nil {
		return objectInfo{}, errNoSize
	}
	return objectInfo{key, *o.ContentLength, value(o.LastModified), string(value(o.ETag)), false}, nil
}

func (s azureStore) get(ctx context.Context, key string, off, n int64) (io.ReadCloser, string, string, error) {
	o, err := s.client.NewBlobClient(key).DownloadStream(ctx, &blob.DownloadStreamOptions{Range: blob.HTTPRange{Offset: off, Count: n}})
	if err != nil {
		return nil, "", "", refused(err)
	}
	return o.Body, value(o.ContentRange), string(value(o.ETag)), nil
}

func (s azureStore) put(ctx context.Context, key string, body []byte, isNew bool) error {
	o := &blockblob.UploadOptions{HTTPHeaders: &blob.HTTPHeaders{BlobContentType: to.Ptr(contentType)}}
	if isNew {
		o.AccessConditions = &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: to.Ptr(azcore.ETagAny)}}
	}
	_, err := s.client.NewBlockBlobClient(key).Upload(ctx, streaming.NopCloser(bytes.NewReader(body)), o)
	err = refused(err)
	if e := (*storeError)(nil); errors.As(err, &e) && bloberror.HasCode(err, bloberror.BlobAlreadyExists) { // Azure answers with the status 409
		e.status = http.StatusPreconditionFailed
	}
	return err
}

func (s azureStore) delete(ctx context.Context, key string) error {
	_, err := s.client.NewBlobClient(key).Delete(ctx, nil)
	return refused(err)
}

// An azureUpload stages blocks, and then commits a list of them. Azure removes blocks that no list
// names. All uploads of a blob share one set of blocks, so the name of a block contains a random
// number that is different for each upload.
type azureUpload struct {
	client *blockblob.Client
	number uint64
}

func (s azureStore) begin(_ context.Context, key string) (upload, error) {
	return azureUpload{s.client.NewBlockBlobClient(key), rand.Uint64()}, nil
}

func (u azureUpload) block(i int) string {
	return base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%016x%08d", u.number, i))
}

func (u azureUpload) part(ctx context.Context, i int, body []byte) error {
	_, err := u.client.StageBlock(ctx, u.block(i), streaming.NopCloser(bytes.NewReader(body)), nil)
	return refused(err)
}

func (u azureUpload) complete(ctx context.Context, parts int) error {
	ids := make([]string, parts)
	for i := range ids {
		ids[i] = u.block(i)
	}
	_, err := u.client.CommitBlockList(ctx, ids, &blockblob.CommitBlockListOptions{HTTPHeaders: &blob.HTTPHeaders{BlobContentType: to.Ptr(contentType)}})
	return refused(err)
}

func (u azureUpload) abort(context.Context) error {
	return &storeError{status: http.StatusNotFound} // there is nothing to do: Azure itself removes blocks that are not committed
}
