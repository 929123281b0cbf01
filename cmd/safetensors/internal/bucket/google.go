package bucket

import (
	"context"
	"net/url"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"golang.org/x/oauth2/google"
)

// openGoogle opens a bucket of Google, whose XML API is the protocol of S3 with tokens
// in place of signatures. Its own client and what that imports would be two thirds of
// this command.
func openGoogle(ctx context.Context, name string, query url.Values) (store, error) {
	o, err := options(query, "endpoint", "anonymous")
	if err != nil {
		return nil, err
	}
	base, err := bucketURL(name, first(o["endpoint"], "https://storage.googleapis.com"), true)
	if err != nil {
		return nil, err
	}
	authorize := anonymous
	if o["anonymous"] != "true" {
		tokens, err := google.DefaultTokenSource(forTokens(ctx), "https://www.googleapis.com/auth/devstorage.read_write")
		if err != nil {
			return nil, err
		}
		authorize = bearer(tokens)
	}
	return s3Store{&rest{patient(awshttp.NewBuildableClient()), base, authorize, defaultTries}, true}, nil
}
