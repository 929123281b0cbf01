package bucket

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
)

// openS3 takes from Amazon's library all that finds and renews keys, and the signatures.
// Its client of S3 would be a seventh of the time that it takes to build this command.
func openS3(ctx context.Context, name string, query url.Values) (store, error) {
	o, err := options(query, "region", "profile", "endpoint", "use_path_style", "anonymous")
	if err != nil {
		return nil, err
	}
	cfg, err := config.LoadDefaultConfig(ctx, config.WithSharedConfigProfile(o["profile"]))
	if err != nil {
		return nil, err
	}
	region := first(o["region"], cfg.Region, "us-east-1")
	endpoint := first(o["endpoint"], configuredEndpoint(ctx, cfg))
	pathStyle := endpoint != "" // such stores have no host for each bucket
	if o["use_path_style"] != "" {
		pathStyle = o["use_path_style"] == "true"
	}
	if endpoint == "" {
		endpoint = "https://" + service(ctx, cfg) + "." + region + ".amazonaws.com"
		if strings.HasPrefix(region, "cn-") {
			endpoint += ".cn"
		}
	}
	base, err := bucketURL(name, endpoint, pathStyle)
	if err != nil {
		return nil, err
	}
	tries := cfg.RetryMaxAttempts
	if tries <= 0 {
		tries = defaultTries
	}
	authorize := signing(cfg.Credentials, region)
	if o["anonymous"] == "true" {
		authorize = anonymous
	}
	if c, ok := cfg.HTTPClient.(*awshttp.BuildableClient); ok {
		cfg.HTTPClient = patient(c)
	}
	return s3Store{&rest{cfg.HTTPClient, base, authorize, tries}, false}, nil
}

// first returns the first text that is not empty.
func first(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}

// configuredEndpoint returns the endpoint of S3, or of all services, that the environment
// or the profile has.
func configuredEndpoint(ctx context.Context, cfg aws.Config) string {
	if ignored, found, err := config.GetIgnoreConfiguredEndpoints(ctx, cfg.ConfigSources); ignored && found && err == nil {
		return ""
	}
	type endpoints interface {
		GetServiceBaseEndpoint(ctx context.Context, service string) (string, bool, error)
	}
	for _, source := range cfg.ConfigSources {
		if s, ok := source.(endpoints); ok {
			if endpoint, found, err := s.GetServiceBaseEndpoint(ctx, "S3"); found && err == nil {
				return endpoint
			}
		}
	}
	return aws.ToString(cfg.BaseEndpoint)
}

// service returns the host name of S3 without the region.
func service(ctx context.Context, cfg aws.Config) string {
	type fips interface {
		GetUseFIPSEndpoint(ctx context.Context) (aws.FIPSEndpointState, bool, error)
	}
	for _, source := range cfg.ConfigSources {
		if s, ok := source.(fips); ok {
			if state, found, err := s.GetUseFIPSEndpoint(ctx); found && err == nil && state == aws.FIPSEndpointStateEnabled {
				return "s3-fips"
			}
		}
	}
	return "s3"
}

// A hostName is the name of a bucket that can be a label of a host, of which Amazon has a
// certificate: that has no dots.
var hostName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$`)

// bucketURL returns the URL of a bucket at an endpoint.
func bucketURL(name, endpoint string, pathStyle bool) (*url.URL, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		endpoint, _, _ = strings.Cut(endpoint, "?") // what follows may be a signature
		return nil, fmt.Errorf("%q is not the URL of an endpoint", endpoint)
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	if pathStyle || !hostName.MatchString(name) {
		u.Path += "/" + name
	} else {
		u.Host = name + "." + u.Host
	}
	return u, nil
}

// signing authorizes requests by Amazon's signature, version 4. TLS protects the bodies.
func signing(credentials aws.CredentialsProvider, region string) func(*http.Request, []byte) error {
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }) // the path is escaped
	return func(r *http.Request, body []byte) error {
		keys, err := credentials.Retrieve(r.Context())
		if err != nil {
			return err
		}
		hash := "UNSIGNED-PAYLOAD"
		if r.URL.Scheme != "https" {
			sum := sha256.Sum256(body)
			hash = hex.EncodeToString(sum[:])
		}
		r.Header.Set("X-Amz-Content-Sha256", hash)
		return signer.SignHTTP(r.Context(), keys, r, hash, "s3", region, time.Now())
	}
}
