package bucket

import (
	"context"
	"net/http"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"golang.org/x/oauth2"
)

// bearer authorizes requests by a token.
func bearer(tokens oauth2.TokenSource) func(*http.Request, []byte) error {
	return func(r *http.Request, _ []byte) error {
		token, err := tokens.Token()
		if err == nil {
			token.SetAuthHeader(r)
		}
		return err
	}
}

// forTokens returns a context whose token sources are as patient as the client of a store.
func forTokens(ctx context.Context) context.Context {
	client := patient(awshttp.NewBuildableClient())
	client.Transport = Persistent{client.Transport}
	return context.WithValue(ctx, oauth2.HTTPClient, client)
}

// A Persistent transport tries a request as often as the requests of a store, for clients
// that try once: package oauth2, whose errors do not tell a lost connection from a bad
// answer, and http.Client.
type Persistent struct{ http.RoundTripper }

// RoundTrip sends a request until it is answered, fails for good or has failed too often.
func (p Persistent) RoundTrip(r *http.Request) (*http.Response, error) {
	for failed := 1; ; failed++ {
		try := r.Clone(r.Context())
		if r.GetBody != nil {
			body, err := r.GetBody()
			if err != nil {
				return nil, err
			}
			try.Body = body
		}
		resp, err := p.RoundTripper.RoundTrip(try)
		failure := error(&lost{err})
		if err == nil {
			failure = &refusal{status: resp.StatusCode, after: retryAfter(resp.Header)}
		}
		if !again(r.Context(), defaultTries, failed, failure) {
			return resp, err
		}
		if err == nil {
			drain(resp)
		}
	}
}
