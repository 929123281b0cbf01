package bucket

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
)

// An azureStore is a container of Azure's Blob Storage.
type azureStore struct{ client *container.Client }

// openAzure takes the account, and what opens it, from the variables that Azure's own
// tools read; without a key or a signature, from whoever is logged in.
func openAzure(_ context.Context, name string, query url.Values) (store, error) {
	o, err := options(query, "storage_account", "domain", "protocol", "anonymous")
	if err != nil {
		return nil, err
	}
	account := first(o["storage_account"], os.Getenv("AZURE_STORAGE_ACCOUNT"))
	if text := os.Getenv("AZURE_STORAGE_CONNECTION_STRING"); text != "" && o["storage_account"] == "" {
		client, err := container.NewClientFromConnectionString(text, name, nil)
		return azureStore{client}, err
	}
	if account == "" {
		return nil, errors.New("AZURE_STORAGE_ACCOUNT is not set, nor AZURE_STORAGE_CONNECTION_STRING")
	}
	at := fmt.Sprintf("%s://%s.%s/%s", first(o["protocol"], "https"), account,
		first(o["domain"], os.Getenv("AZURE_STORAGE_DOMAIN"), "blob.core.windows.net"), name)
	client, err := azureClient(at, account, o["anonymous"] == "true")
	return azureStore{client}, err
}

func azureClient(at, account string, anonymous bool) (*container.Client, error) {
	key, signature := os.Getenv("AZURE_STORAGE_KEY"), os.Getenv("AZURE_STORAGE_SAS_TOKEN")
	switch {
	case anonymous:
		return container.NewClientWithNoCredential(at, nil)
	case key != "":
		credential, err := container.NewSharedKeyCredential(account, key)
		if err != nil {
			return nil, err
		}
		return container.NewClientWithSharedKeyCredential(at, credential, nil)
	case signature != "":
		return container.NewClientWithNoCredential(at+"?"+signature, nil)
	}
	credential, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return nil, err
	}
	return container.NewClient(at, credential, nil)
}

func (s azureStore) list(ctx context.Context, prefix string) (entries []listed, err error) {
	pages := s.client.NewListBlobsHierarchyPager("/", &container.ListBlobsHierarchyOptions{Prefix: &prefix})
	for pages.More() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, b := range page.Segment.BlobItems {
			e := listed{key: *b.Name}
			if p := b.Properties; p != nil {
				e.attributes = attributes{value(p.ContentLength), value(p.LastModified), string(value(p.ETag))}
			}
			entries = append(entries, e)
		}
		for _, p := range page.Segment.BlobPrefixes {
			entries = append(entries, listed{key: *p.Name})
		}
	}
	return entries, nil
}

func (s azureStore) head(ctx context.Context, key string) (attributes, error) {
	o, err := s.client.NewBlobClient(key).GetProperties(ctx, nil)
	if err != nil {
		return attributes{}, err
	}
	return attributes{value(o.ContentLength), value(o.LastModified), string(value(o.ETag))}, nil
}

// value returns what p points to, or zero.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func (s azureStore) get(ctx context.Context, key string, off, n int64) (io.ReadCloser, attributes, error) {
	o, err := s.client.NewBlobClient(key).DownloadStream(ctx, &blob.DownloadStreamOptions{Range: blob.HTTPRange{Offset: off, Count: n}})
	if err != nil {
		return nil, attributes{}, err
	}
	size, err := sizeInRange(value(o.ContentRange))
	if err != nil {
		o.Body.Close()
		return nil, attributes{}, err
	}
	return o.Body, attributes{size, value(o.LastModified), string(value(o.ETag))}, nil
}

func (s azureStore) put(ctx context.Context, key string, body []byte) error {
	_, err := s.client.NewBlockBlobClient(key).Upload(ctx, streaming.NopCloser(bytes.NewReader(body)), nil)
	return err
}

func (s azureStore) create(ctx context.Context, key string, body []byte) error {
	_, err := s.client.NewBlockBlobClient(key).Upload(ctx, streaming.NopCloser(bytes.NewReader(body)), &blockblob.UploadOptions{
		AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: to.Ptr(azcore.ETagAny)}},
	})
	if bloberror.HasCode(err, bloberror.BlobAlreadyExists) { // with the status 409
		err = &azcore.ResponseError{StatusCode: http.StatusPreconditionFailed, ErrorCode: string(bloberror.BlobAlreadyExists)}
	}
	return err
}

func (s azureStore) delete(ctx context.Context, key string) error {
	_, err := s.client.NewBlobClient(key).Delete(ctx, nil)
	return err
}

// An azureUpload stages blocks. Those that no list names disappear by themselves.
type azureUpload struct{ client *blockblob.Client }

func (s azureStore) begin(_ context.Context, key string) (upload, error) {
	return azureUpload{s.client.NewBlockBlobClient(key)}, nil
}

func blockID(i int) string { return base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%08d", i)) }

func (u azureUpload) part(ctx context.Context, i int, body []byte) error {
	_, err := u.client.StageBlock(ctx, blockID(i), streaming.NopCloser(bytes.NewReader(body)), nil)
	return err
}

func (u azureUpload) complete(ctx context.Context, parts int) error {
	ids := make([]string, parts)
	for i := range ids {
		ids[i] = blockID(i)
	}
	_, err := u.client.CommitBlockList(ctx, ids, nil)
	return err
}

func (u azureUpload) abort(context.Context) error {
	return &azcore.ResponseError{StatusCode: http.StatusNotFound} // there is nothing to be removed
}

// status returns the HTTP status of an error of a store, 0 if it has none.
func status(err error) int {
	var azure *azcore.ResponseError
	var amazon interface{ HTTPStatusCode() int }
	switch {
	case errors.As(err, &azure):
		return azure.StatusCode
	case errors.As(err, &amazon):
		return amazon.HTTPStatusCode()
	}
	return 0
}
