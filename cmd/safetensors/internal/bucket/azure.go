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
)

type azureStore struct{ client *container.Client }

// openAzure takes the account, and what opens it, from the variables that Azure's own
// tools read; without a key or a signature, from whoever is logged in.
func openAzure(_ context.Context, name string, query url.Values) (store, error) {
	o, err := options(query, "storage_account", "domain", "protocol", "anonymous")
	if err != nil {
		return nil, err
	}
	account := cmp.Or(o["storage_account"], os.Getenv("AZURE_STORAGE_ACCOUNT"))
	key, signature := os.Getenv("AZURE_STORAGE_KEY"), strings.TrimPrefix(os.Getenv("AZURE_STORAGE_SAS_TOKEN"), "?")
	connection := os.Getenv("AZURE_STORAGE_CONNECTION_STRING")
	at := fmt.Sprintf("%s://%s.%s/%s", cmp.Or(o["protocol"], "https"), account,
		cmp.Or(o["domain"], os.Getenv("AZURE_STORAGE_DOMAIN"), "blob.core.windows.net"), name)
	shared := azcore.ClientOptions{
		Transport: discreet{newClient(connections())},
		Retry:     policy.RetryOptions{MaxRetries: tries - 1, RetryDelay: firstPause, MaxRetryDelay: longestAsked, StatusCodes: busy},
	}
	clientOptions := &container.ClientOptions{ClientOptions: shared}
	var client *container.Client
	switch {
	case connection != "" && o["storage_account"] == "":
		client, err = container.NewClientFromConnectionString(connection, name, clientOptions)
	case account == "":
		err = errors.New("AZURE_STORAGE_ACCOUNT is not set, nor AZURE_STORAGE_CONNECTION_STRING")
	case o["anonymous"] == "true":
		client, err = container.NewClientWithNoCredential(at, clientOptions)
	case key != "":
		var credential *container.SharedKeyCredential
		if credential, err = container.NewSharedKeyCredential(account, key); err == nil {
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
	return azureStore{client}, err
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
	if e := (*storeError)(nil); errors.As(err, &e) && bloberror.HasCode(err, bloberror.BlobAlreadyExists) { // with the status 409
		e.status = http.StatusPreconditionFailed
	}
	return err
}

func (s azureStore) delete(ctx context.Context, key string) error {
	_, err := s.client.NewBlobClient(key).Delete(ctx, nil)
	return refused(err)
}

// An azureUpload stages blocks. Those that no list names disappear by themselves. All uploads
// of a blob share one set of blocks: a random number keeps the list of one from naming the
// blocks of another.
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
	return &storeError{status: http.StatusNotFound} // there is nothing to be removed
}
