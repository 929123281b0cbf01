package bucket

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

// azureHeaders adds what every request of Azure has.
func azureHeaders(authorize func(*http.Request, []byte) error) func(*http.Request, []byte) error {
	return func(r *http.Request, body []byte) error {
		r.Header.Set("X-Ms-Version", "2021-12-02")
		r.Header.Set("X-Ms-Date", time.Now().UTC().Format(http.TimeFormat))
		return authorize(r, body)
	}
}

// sharedKey authorizes requests by the key of an account, as
// https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key has it.
func sharedKey(account, key string) (func(*http.Request, []byte) error, error) {
	secret, err := base64.StdEncoding.DecodeString(key)
	if err != nil {
		return nil, errors.New("the key of the account is not base64")
	}
	return func(r *http.Request, body []byte) error {
		mac := hmac.New(sha256.New, secret)
		io.WriteString(mac, signedText(account, r, len(body)))
		r.Header.Set("Authorization", "SharedKey "+account+":"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
		return nil
	}, nil
}

// signedText returns what a signature of a request signs.
func signedText(account string, r *http.Request, length int) string {
	lines := []string{r.Method, r.Header.Get("Content-Encoding"), r.Header.Get("Content-Language"), ""}
	if length > 0 {
		lines[3] = strconv.Itoa(length)
	}
	for _, name := range []string{"Content-Md5", "Content-Type", "Date", "If-Modified-Since", "If-Match", "If-None-Match", "If-Unmodified-Since", "Range"} {
		lines = append(lines, r.Header.Get(name))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		if strings.HasPrefix(name, "X-Ms-") {
			lines = append(lines, strings.ToLower(name)+":"+r.Header.Get(name))
		}
	}
	lines = append(lines, "/"+account+r.URL.EscapedPath())
	query := r.URL.Query()
	for _, name := range slices.Sorted(maps.Keys(query)) {
		slices.Sort(query[name])
		lines = append(lines, strings.ToLower(name)+":"+strings.Join(query[name], ","))
	}
	return strings.Join(lines, "\n")
}

const azureResource = "https://storage.azure.com/"

// azureTokens finds who is logged in, in the order of Azure's own libraries: an
// application with a secret, a workload of Kubernetes, the identity of the machine, the
// user of the command az.
func azureTokens(ctx context.Context) oauth2.TokenSource {
	ctx = forTokens(ctx)
	return oauth2.ReuseTokenSource(nil, tokenFunc(func() (*oauth2.Token, error) {
		if os.Getenv("AZURE_TENANT_ID") != "" && first(os.Getenv("AZURE_CLIENT_SECRET"), os.Getenv("AZURE_FEDERATED_TOKEN_FILE")) != "" {
			return applicationToken(ctx)
		}
		token, machineErr := machineToken(ctx)
		for failed := 1; again(ctx, defaultTries, failed, machineErr); failed++ {
			token, machineErr = machineToken(ctx)
		}
		if machineErr == nil {
			return token, nil
		}
		token, err := commandToken(ctx)
		if err != nil { // %v: the status is not the store's
			return nil, fmt.Errorf("nobody is logged in: the machine has no identity (%v), and az: %w", machineErr, err)
		}
		return token, nil
	}))
}

type tokenFunc func() (*oauth2.Token, error)

func (f tokenFunc) Token() (*oauth2.Token, error) { return f() }

// applicationToken returns the token of an application, which proves who it is by its
// secret or by the token in a file, which Kubernetes renews.
func applicationToken(ctx context.Context) (*oauth2.Token, error) {
	authority := strings.TrimSuffix(first(os.Getenv("AZURE_AUTHORITY_HOST"), "https://login.microsoftonline.com"), "/")
	c := clientcredentials.Config{
		ClientID:     os.Getenv("AZURE_CLIENT_ID"),
		ClientSecret: os.Getenv("AZURE_CLIENT_SECRET"),
		TokenURL:     authority + "/" + url.PathEscape(os.Getenv("AZURE_TENANT_ID")) + "/oauth2/v2.0/token",
		Scopes:       []string{azureResource + ".default"},
		AuthStyle:    oauth2.AuthStyleInParams,
	}
	if c.ClientSecret == "" {
		assertion, err := os.ReadFile(os.Getenv("AZURE_FEDERATED_TOKEN_FILE"))
		if err != nil {
			return nil, err
		}
		c.EndpointParams = url.Values{
			"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"},
			"client_assertion":      {string(bytes.TrimSpace(assertion))},
		}
	}
	return c.Token(ctx)
}

// machineToken returns the token of the managed identity of a machine of Azure, or of its
// App Service, which has a server of its own for it.
func machineToken(ctx context.Context) (*oauth2.Token, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second) // elsewhere nobody answers
	defer cancel()
	server, header, value, version := "http://169.254.169.254/metadata/identity/oauth2/token", "Metadata", "true", "2018-02-01"
	if at := os.Getenv("IDENTITY_ENDPOINT"); at != "" {
		server, header, value, version = at, "X-Identity-Header", os.Getenv("IDENTITY_HEADER"), "2019-08-01"
	}
	query := url.Values{"api-version": {version}, "resource": {azureResource}}
	if id := os.Getenv("AZURE_CLIENT_ID"); id != "" {
		query.Set("client_id", id)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set(header, value)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r) // never by a proxy
	if op := new(net.OpError); err != nil && (errors.As(err, &op) && op.Op == "dial" || ctx.Err() != nil) {
		return nil, err // nobody is there
	}
	if err != nil {
		return nil, &lost{err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, &lost{err}
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("its server says %w", &refusal{status: resp.StatusCode, after: retryAfter(resp.Header)})
	}
	return parseToken(body)
}

// commandToken asks Azure's command line for the token of its user.
func commandToken(ctx context.Context) (*oauth2.Token, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "az", "account", "get-access-token", "--output", "json", "--resource", azureResource).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil, fmt.Errorf("%w: %.300q", err, bytes.TrimSpace(exit.Stderr))
	}
	if err != nil {
		return nil, err
	}
	return parseToken(out)
}

// parseToken parses a token of a machine or of the command. Each says in seconds of Unix
// when it expires, the machine as a text.
func parseToken(text []byte) (*oauth2.Token, error) {
	var t struct {
		Machine string      `json:"access_token"`
		Command string      `json:"accessToken"`
		At      json.Number `json:"expires_on"`
	}
	if err := json.Unmarshal(text, &t); err != nil {
		return nil, err
	}
	token := &oauth2.Token{AccessToken: first(t.Machine, t.Command), TokenType: "Bearer"}
	if token.AccessToken == "" {
		return nil, errors.New("the answer has no token")
	}
	if seconds, err := t.At.Int64(); err == nil {
		token.Expiry = time.Unix(seconds, 0)
	}
	return token, nil
}
