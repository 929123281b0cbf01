// Package objectstore keeps checkpoints in a bucket of S3, Google Cloud Storage or Azure
// Blob Storage, and reads from there only what is needed: the headers when a checkpoint is
// opened, the bytes of a tensor, or of the part that one rank holds, when it is read.
//
// To copy, list or convert a checkpoint in a bucket, use the command safetensors. This is
// for programs: training, in which every process saves one shard, and inference. The
// example of the test shows both, doc/cluster.md says why it is done so. remote.Client
// reads, over an http.RoundTripper that any store can have.
//
// The path of a URL is the prefix of the keys of the objects, its query holds the
// parameters of https://gocloud.dev/howto/blob. Credentials come from the
// environment, as for the command line of each provider. A server that speaks S3 is
// s3://models/llama/step-2000?endpoint=http://127.0.0.1:9000&region=us-east-1&use_path_style=true,
// a folder file:///mnt/llama/step-2000?create_dir=true&no_tmp_dir=true.
//
// This is a module of its own, so that the SDKs do not become dependencies of the
// package. Its tests run with an S3 server on the loopback interface:
//
//	cd examples/objectstore && go test .
package objectstore

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"

	"gocloud.dev/blob"
	_ "gocloud.dev/blob/azureblob" // azblob://
	_ "gocloud.dev/blob/fileblob"  // file://
	_ "gocloud.dev/blob/gcsblob"   // gs://
	_ "gocloud.dev/blob/memblob"   // mem://
	_ "gocloud.dev/blob/s3blob"    // s3://
)

// A folder is the objects of a bucket whose keys have a prefix, with the context of what
// is done there.
type folder struct {
	*blob.Bucket
	ctx context.Context
}

// openFolder returns the folder of a URL like s3://models/llama/step-2000 without
// sending a request.
func openFolder(ctx context.Context, rawURL string) (folder, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return folder{}, err
	}
	prefix := ""
	if u.Host != "" { // else the path is the bucket: file:///mnt/llama
		prefix, u.Path = strings.Trim(u.Path, "/"), ""
	}
	bucket, err := blob.OpenBucket(ctx, u.String())
	if err != nil {
		return folder{}, err
	}
	if prefix != "" {
		bucket = blob.PrefixedBucket(bucket, prefix+"/")
	}
	return folder{bucket, ctx}, nil
}

// create uploads what write writes, while it writes, in concurrent parts where the
// provider has them. The object appears, or is replaced, when create returns nil,
// and not before. The parts of an upload that failed or was killed are not removed:
// that takes a lifecycle rule of the bucket.
func (d folder) create(name string, write func(io.Writer) error) error {
	ctx, cancel := context.WithCancel(d.ctx)
	defer cancel()
	w, err := d.NewWriter(ctx, name, &blob.WriterOptions{
		ContentType: "application/octet-stream",
		BufferSize:  8 << 20, // S3 takes 10,000 parts: 80 GB
	})
	if err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	if err := write(w); err != nil {
		cancel() // Close would make an object of what has been written
		w.Close()
		return fmt.Errorf("%q: %w", name, err)
	}
	return w.Close()
}
