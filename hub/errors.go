package hub

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/internal/prefix"
	"github.com/gosafetensors/safetensors/internal/transport"
	"github.com/gosafetensors/safetensors/internal/variant"
)

// A location identifies a repository at a revision on a hub.
type location struct {
	repo, revision string
	endpoint       *url.URL
	token          bool // whether requests carry a token
}

// String names the location in errors.
func (l location) String() string { return fmt.Sprintf("%s at revision %s", l.repo, l.revision) }

// withoutToken is the reason for which the hub refuses a request without a token.
const withoutToken = "no such repository, or it is private or gated: set HF_TOKEN"

// noSuchRepository returns the reason for which the Hugging Face Hub refuses a request. For a repository that the
// token may not read, the hub gives the same answer as for one that does not exist.
func (l location) noSuchRepository() string {
	if l.token {
		return "no such repository, or it is private or gated, and the token that is set may not read it"
	}
	return withoutToken
}

// A refusal is an error that reports what the status of an answer means for a repository.
type refusal struct {
	file string // name of the file, "" for the list of files
	text string
	err  error // wraps fs.ErrNotExist or fs.ErrPermission
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.err }

// explain returns the error of opening a file. If the hub refused a request for the file, for a shard that the
// file names, or for the list of files if file is "", the error explains what that means for the repository.
// Other errors stay unchanged, such as those of servers that the hub redirects to.
func (l location) explain(file string, err error) error {
	if refused := l.refusalOf(err); refused != nil {
		if refused.file != file && errors.Is(err, fs.ErrNotExist) {
			refused.text = fmt.Sprintf("it has no shard %.200q, which the index %.200q names", refused.file, file)
		}
		return &fs.PathError{Op: "open", Path: l.String(), Err: refused}
	}
	return prefix.Strip(err)
}

// refusalOf returns the refusal that an error of a request stands for, or nil if the hub did not refuse the
// request.
func (l location) refusalOf(err error) *refusal {
	var answer *transport.StatusError
	if !errors.As(err, &answer) || answer.URL == nil || answer.URL.Host != l.endpoint.Host {
		return nil
	}
	text, file := "", fileOf(answer.URL)
	switch answer.Status {
	case http.StatusUnauthorized, http.StatusForbidden:
		text = l.noSuchRepository()
	case http.StatusNotFound, http.StatusGone:
		text = l.absent(file, answer)
	default:
		return nil
	}
	if answer.Message != "" {
		text += fmt.Sprintf(" (%.200q)", answer.Message)
	}
	return &refusal{file, text, err}
}

// fileOf returns the file that a URL of a repository names, or "" for the URL of the list of files.
func fileOf(u *url.URL) string {
	_, after, _ := strings.Cut(u.EscapedPath(), "/resolve/")
	_, escaped, _ := strings.Cut(after, "/") // the path after /resolve/ is REVISION/FILE
	file, _ := url.PathUnescape(escaped)     // never fails, because EscapedPath has escaped it
	return file
}

// absent returns the meaning of an answer with status 404 or 410. The Hugging Face Hub explains such an answer in
// a header.
func (l location) absent(file string, answer *transport.StatusError) string {
	switch {
	case answer.Code == "EntryNotFound" && file != "":
		return fmt.Sprintf("it has no file %.200q", file)
	case lacksRevision(answer):
		return "it has no such branch, tag or commit"
	case file == "", answer.Code == "RepoNotFound":
		return l.noSuchRepository()
	}
	return fmt.Sprintf("it has no file %.200q; or %s", file, l.noSuchRepository())
}

// noList returns the error of listing files while HF_HUB_OFFLINE forbids requests.
func (l location) noList() error {
	_, err := cacheDir(l.repo, l.revision, "")
	if err == nil {
		err = fmt.Errorf("%s is in the cache %s, but the list of its files is only on the hub", l, hubCache())
	}
	return prefix.Unsupported{Err: fmt.Errorf("HF_HUB_OFFLINE is set: %w", err)}
}

// lacksFile reports whether an error of explain means, or may mean, that the repository lacks this file. It
// returns false for a missing shard of an index.
func lacksFile(err error, file string) bool {
	var answer *transport.StatusError
	var refused *refusal
	return errors.As(err, &refused) && refused.file == file && errors.Is(err, fs.ErrNotExist) && errors.As(err, &answer) &&
		answer.Code != "RepoNotFound" && !lacksRevision(answer)
}

// lacksRevision reports whether the Hugging Face Hub refused a request because the revision does not exist.
func lacksRevision(answer *transport.StatusError) bool {
	return answer.Code == "RevisionNotFound" || strings.HasPrefix(answer.Message, "Invalid rev id")
}

// others are the endings of weights that package checkpoint reads and this package does not.
var others = []string{".bin", ".pt", ".pth", ".ckpt", ".distcp"}

// noModel returns the error for a repository in which safetensors.OpenFS finds no model. The error names weights
// of other formats that the repository has.
func (l location) noModel(fsys fs.FS, err error) error {
	if at := new(fs.PathError); errors.As(err, &at) && at.Path == "." && prefix.Strip(err) == error(at) {
		err = at.Err
	}
	entries, _ := fs.ReadDir(fsys, ".")
	var weights []string
	for _, e := range entries {
		if slices.Contains(others, path.Ext(e.Name())) && !variant.IsState(e.Name()) {
			weights = append(weights, e.Name())
		}
	}
	slices.SortStableFunc(weights, func(a, b string) int { // the model comes before its optimizer
		return cmp.Compare(strings.Index(a+"model", "model"), strings.Index(b+"model", "model"))
	})
	if len(weights) > 0 && errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w; it has %s: checkpoint.OpenFS reads it through Client.FS", err, weights[0])
	}
	return &fs.PathError{Op: "open", Path: l.String(), Err: err}
}
