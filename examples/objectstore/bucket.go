// Package objectstore keeps checkpoints in a bucket of S3, Google Cloud Storage or Azure Blob
// Storage. It reads only the bytes that are needed: the headers when a checkpoint is opened, and
// the bytes of a tensor, or of one rank's part of it, when that is read.
//
// To copy, list or convert a checkpoint in a bucket, use the command safetensors. This package is
// for programs: for training, in which every process saves one shard, and for inference. The
// example in the tests shows both, and doc/cluster.md gives the reasons. remote.Client reads the
// objects, through an http.RoundTripper that can be written for any store.
//
// The path of a URL is the prefix of the keys of the objects. Its query has the parameters that
// https://gocloud.dev/howto/blob describes. Credentials come from the environment, as for the
// command line of each provider. These are the URLs of a server with the protocol of S3, and of a
// directory:
//
//	s3://models/llama/step-2000?endpoint=http://127.0.0.1:9000&region=us-east-1&use_path_style=true
//	file:///mnt/llama/step-2000?create_dir=true&no_tmp_dir=true
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

// A folder consists of the objects of a bucket whose keys have a prefix. ctx governs all operations
// on them.
type folder struct {
	*blob.Bucket
	ctx context.Context
}

// openFolder returns the folder of a URL such as s3://models/llama/step-2000. It sends no request.
func openFolder(ctx context.Context, rawURL string) (folder, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return folder{}, err
	}
	prefix := ""
	if u.Host != "" { // without a host, the path itself is the bucket, as in file:///mnt/llama
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

// create uploads the bytes that the func write writes, while it writes them. If the provider
// supports it, it uploads parts concurrently. The object appears, or is replaced, only when create
// returns nil. create does not remove the parts of an upload that failed or was killed: a lifecycle
// rule of the bucket must do that.
func (d folder) create(name string, write func(io.Writer) error) error {
	ctx, cancel := context.WithCancel(d.ctx)
	defer cancel()
	w, err := d.NewWriter(ctx, name, &blob.WriterOptions{
		ContentType: "application/octet-stream",
		BufferSize:  8 << 20, // size of a part; S3 accepts 10,000 of them, so that an object may have 80 GB
	})
	if err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	if err := write(w); err != nil {
		cancel() // otherwise Close would make an object of the bytes written so far
		w.Close()
		return fmt.Errorf("%q: %w", name, err)
	}
	return w.Close()
}
