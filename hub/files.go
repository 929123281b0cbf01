package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strings"
	"unicode"

	"github.com/gosafetensors/safetensors/internal/prefix"
	"github.com/gosafetensors/safetensors/remote"
)

// A FileInfo describes a file in a repository, as the hub reports it.
type FileInfo struct {
	Name   string // slash-separated, a valid path in the sense of fs.ValidPath
	Size   int64  // in bytes
	SHA256 string // SHA-256 of the content in hex, if the file is in LFS; "" if Git stores the content itself
	BlobID string // name of the blob in Git: a SHA-1 of the content or, for a file in LFS, of the pointer to it
}

// A Snapshot is the list of the files of a repository at one commit.
type Snapshot struct {
	Commit string     // name of the commit in hex, which no push changes; use it as a revision
	Files  []FileInfo // in the order of the hub's list; names are unique
}

// Files returns the files of a repository, "owner/name", at a branch, tag or commit; an
// empty revision is "main". It sends one request. If HF_HUB_OFFLINE is 1, it sends none, and the
// error wraps [errors.ErrUnsupported]. A list above 64 MiB, with a duplicate name, or with control
// characters in a name, is an error. Other errors are as for [Client.Open].
func (c *Client) Files(ctx context.Context, repo, revision string) (*Snapshot, error) {
	s, _, _, err := c.list(ctx, repo, revision)
	return s, prefix.Add(err)
}

// list returns the list of files, the location that the list describes, and the client that requested it.
func (c *Client) list(ctx context.Context, repo, revision string) (s *Snapshot, at location, client *remote.Client, err error) {
	if revision, err = checkRepo(repo, revision); err != nil {
		return nil, at, nil, err
	}
	at = location{repo: repo, revision: revision}
	if offline() {
		return nil, at, nil, at.noList()
	}
	if client, at.endpoint, err = c.connect(); err != nil {
		return nil, at, nil, err
	}
	at.token = client.Header != nil
	u := at.endpoint.JoinPath("api/models", escapePath(repo), "revision", url.PathEscape(revision))
	u.RawQuery = "blobs=true"
	text, err := client.ReadFile(ctx, u.String())
	if err != nil {
		return nil, at, nil, at.explain("", err)
	}
	if s, err = parseSnapshot(text); err != nil {
		return nil, at, nil, &fs.PathError{Op: "open", Path: repo, Err: fmt.Errorf("the hub's list of files: %w", err)}
	}
	return s, at, client, nil
}

// parseSnapshot reads the hub's information about a model, which the type ModelInfo of huggingface_hub
// describes.
func parseSnapshot(text []byte) (*Snapshot, error) {
	var info struct {
		SHA      string
		Siblings []struct {
			Name   string `json:"rfilename"`
			Size   int64
			BlobID string
			LFS    struct{ SHA256 string }
		}
	}
	if err := json.Unmarshal(text, &info); err != nil {
		return nil, fmt.Errorf("%.200v", err) // err may quote a number of any length
	}
	if !isCommit(info.SHA) {
		return nil, errors.New("it does not name a commit")
	}
	snapshot := &Snapshot{Commit: info.SHA}
	seen := make(map[string]bool)
	for _, s := range info.Siblings {
		if err := checkName(s.Name); err != nil {
			return nil, err
		}
		if strings.ContainsFunc(s.Name, unicode.IsControl) {
			return nil, fmt.Errorf("the name %.200q has control characters", s.Name)
		}
		if seen[s.Name] {
			return nil, fmt.Errorf("duplicate file %.200q", s.Name)
		}
		if s.Size < 0 {
			return nil, fmt.Errorf("file %.200q has %d bytes", s.Name, s.Size)
		}
		seen[s.Name] = true
		snapshot.Files = append(snapshot.Files, FileInfo{s.Name, s.Size, s.LFS.SHA256, s.BlobID})
	}
	return snapshot, nil
}

// ReadFile returns the content of a small file of a repository, such as config.json. A
// file above 64 MiB is an error. Otherwise ReadFile is like OpenFile.
func (c *Client) ReadFile(ctx context.Context, repo, revision, name string) ([]byte, error) {
	r, err := c.repository(ctx, repo, revision, name)
	if err != nil {
		return nil, prefix.Add(err)
	}
	return prefix.Added(r.read(name))
}
