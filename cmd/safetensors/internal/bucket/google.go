package bucket

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
)

// openGoogle opens a bucket of Google. Its XML API is the protocol of S3, with tokens instead of
// signatures.
func openGoogle(ctx context.Context, name string, query url.Values) (store, error) {
	o, err := options(query, "endpoint", "anonymous")
	if err != nil {
		return nil, err
	}
	const theirs = "https://storage.googleapis.com"
	emulator := os.Getenv("STORAGE_EMULATOR_HOST")
	if emulator != "" && !strings.Contains(emulator, "://") { // as Google's own libraries read the variable
		emulator = "http://" + emulator
	}
	endpoint := cmp.Or(o["endpoint"], emulator, theirs)
	if err := checkEndpoint(endpoint); err != nil {
		return nil, err
	}
	anonymous, reason := o["anonymous"] == "true", ""
	if !anonymous {
		reason = anonymousTo(endpoint, "STORAGE_EMULATOR_HOST", theirs, emulator)
	}
	client := newClient(connections())
	client.Transport = asGoogle{client.Transport}
	if !anonymous && reason == "" {
		tokens, err := google.DefaultTokenSource(context.WithValue(ctx, oauth2.HTTPClient, newClient(connections())),
			"https://www.googleapis.com/auth/devstorage.read_write")
		if err != nil {
			return nil, err
		}
		client.Transport = &oauth2.Transport{Source: tokens, Base: client.Transport}
	}
	return anonymously(s3Store{s3.New(s3.Options{
		BaseEndpoint:               &endpoint,
		Region:                     "auto",
		UsePathStyle:               true,
		Credentials:                aws.AnonymousCredentials{},
		HTTPClient:                 discreet{client},
		Retryer:                    retryer(),
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
	}), &name, true}, reason), nil
}

// An asGoogle transport removes headers that only Amazon knows. It replaces Amazon's header for the
// condition that the object does not exist yet with Google's header.
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
