package bucket

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/gosafetensors/safetensors/internal/lazyregexp"
	"golang.org/x/oauth2"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

// A storeError is an error of a client, summarized in one line without URLs, bodies and headers,
// which may contain secrets.
type storeError struct {
	status int // status of the answer; 0 if there is none, or if another server has sent it
	text   string
	err    error
}

func (e *storeError) Error() string { return e.text }
func (e *storeError) Unwrap() error { return e.err }

// status returns the HTTP status of an error of a store, or 0 if it has none.
func status(err error) int {
	var e *storeError
	if errors.As(err, &e) {
		return e.status
	}
	return 0
}

var (
	errorCode = lazyregexp.New(`^[A-Za-z][A-Za-z0-9.]{0,63}$`)
	loginCode = lazyregexp.New(`AADSTS[0-9]+`) // the code in an error of Microsoft's login
)

// refused returns an error of a client as a storeError. It returns nil for nil.
func refused(err error) error {
	if err == nil {
		return nil
	}
	var (
		login  *azidentity.AuthenticationFailedError
		token  *oauth2.RetrieveError
		azure  *azcore.ResponseError
		asked  *smithy.OperationError
		answer *smithyhttp.ResponseError
		amazon smithy.APIError
		place  *url.Error
		lost   *smithyhttp.RequestSendError
	)
	status, code, message := 0, "", ""
	switch {
	case errors.As(err, &login):
		if login.RawResponse != nil {
			status = login.RawResponse.StatusCode
		}
		return loginError(status, loginCode().FindString(login.Error()), err)
	case errors.As(err, &token):
		return loginError(token.Response.StatusCode, token.ErrorCode, err)
	case errors.As(err, &azure):
		if r := azure.RawResponse; r != nil && !hasSpelled(r.Request.Header, "x-ms-version") { // all requests to the store have this header, so the answer comes from another server
			return loginError(azure.StatusCode, azure.ErrorCode, err)
		}
		return &storeError{azure.StatusCode, described(azure.StatusCode, azure.ErrorCode, ""), err}
	case errors.As(err, &answer) && answer.HTTPStatusCode() != 0:
		status = answer.HTTPStatusCode()
		if errors.As(err, &amazon) {
			code, message = amazon.ErrorCode(), amazon.ErrorMessage()
		}
		if errors.As(err, &asked) && errors.As(asked.Err, new(*smithy.OperationError)) { // the answer comes from another service
			return loginError(status, code, err)
		}
		text := described(status, code, message)
		if status < 300 {
			text += ": " + oneLine(answer.Err)
		}
		if region := answer.Response.Header.Get("X-Amz-Bucket-Region"); region != "" && status < 401 {
			text += "; the bucket is in another region, add ?region=" + term.Quote(region, 40)
		}
		return &storeError{status, text, err}
	case errors.As(err, &place):
		return &storeError{0, oneLine(place.Err), err}
	case errors.As(err, &lost):
		return &storeError{0, oneLine(lost.Err), err}
	}
	return &storeError{0, oneLine(err), err}
}

// loginError returns the error for an answer of a server that issues credentials.
func loginError(status int, code string, err error) error {
	if status == 0 {
		return &storeError{0, "nobody is logged in: " + code, err}
	}
	return &storeError{0, "the login failed: " + described(status, code, ""), err}
}

// oneLine returns the text of an error on one line, shortened to 500 characters.
func oneLine(err error) string {
	return term.Quote(strings.Join(strings.Fields(err.Error()), " "), 500)
}

// described returns a description of an answer: its status, code and message.
func described(status int, code, message string) string {
	text := fmt.Sprintf("%d %s", status, http.StatusText(status))
	const unknown = "UnknownError" // Amazon's client uses this code for an answer without a code
	if !errorCode().MatchString(code) || code == strings.ReplaceAll(http.StatusText(status), " ", "") || code == unknown {
		return text
	}
	text += ": " + code
	if message != "" && message != code && message != unknown {
		text += ": " + term.Quote(message, 300)
	}
	return text
}
