package bucket

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
)

// openGoogle opens a bucket of Google, whose XML API is the protocol of S3 with tokens
// in place of signatures.
func openGoogle(ctx context.Context, name string, query url.Values) (store, error) {
	o, err := options(query, "endpoint", "anonymous")
	if err != nil {
		return nil, err
	}
	endpoint := cmp.Or(o["endpoint"], "https://storage.googleapis.com")
	if err := checkEndpoint(endpoint); err != nil {
		return nil, err
	}
	client := newClient(connections())
	client.Transport = asGoogle{client.Transport}
	if o["anonymous"] != "true" {
		tokens, err := google.DefaultTokenSource(context.WithValue(ctx, oauth2.HTTPClient, newClient(connections())),
			"https://www.googleapis.com/auth/devstorage.read_write")
		if err != nil {
			return nil, err
		}
		client.Transport = &oauth2.Transport{Source: tokens, Base: client.Transport}
	}
	return s3Store{s3.New(s3.Options{
		BaseEndpoint:               &endpoint,
		Region:                     "auto",
		UsePathStyle:               true,
		Credentials:                aws.AnonymousCredentials{},
		HTTPClient:                 discreet{client},
		Retryer:                    retryer(),
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
	}), &name, true}, nil
}

// An asGoogle transport leaves out what only Amazon knows, and says what only Google knows:
// that an object is written unless there is one.
type asGoogle struct{ http.RoundTripper }

func (t asGoogle) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Amz-") || strings.HasPrefix(name, "Amz-Sdk-") {
			delete(r.Header, name)
		}
	}
	if r.Header.Get("If-None-Match") == "*" {
		r.Header.Del("If-None-Match")
		r.Header.Set("X-Goog-If-Generation-Match", "0")
	}
	query := r.URL.Query()
	query.Del("x-id")
	r.URL.RawQuery = query.Encode()
	return t.RoundTripper.RoundTrip(r)
}
