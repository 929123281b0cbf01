package source

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/gosafetensors/safetensors/hub"
)

// A HubFile is a file of a repository as the hub describes it.
type HubFile struct {
	Name string
	sum  []byte
	git  bool // sum is that of a git blob
}

// Hash returns the hash of the sum that the hub publishes: SHA-256 of large files, which
// are in LFS, and the git blob hash of the others.
func (f HubFile) Hash(size int64) hash.Hash {
	if !f.git {
		return sha256.New()
	}
	h := sha1.New()
	if len(f.sum) == sha256.Size {
		h = sha256.New() // a repository of the newer kind
	}
	fmt.Fprintf(h, "blob %d\x00", size)
	return h
}

// Matches reports whether a sum is the one of the hub.
func (f HubFile) Matches(sum []byte) bool { return bytes.Equal(f.sum, sum) }

// The limits of a listing. The hub has pages of 1,000 files.
const (
	maxPages    = 1000
	maxPage     = 16 << 20
	maxHubFiles = 200_000
)

// HubFiles lists the files of a repository, from the tree API of the hub.
func (o *Opener) HubFiles(repo, revision string) ([]HubFile, error) {
	if revision == "" {
		revision = "main"
	}
	base, header, err := o.hubAddress(repo, revision)
	if err != nil {
		return nil, err
	}
	page := base.JoinPath("api/models", repo, "tree", url.PathEscape(revision))
	page.RawQuery = "recursive=true"
	var files []HubFile
	for n := 0; page != nil; n++ {
		if n == maxPages {
			return nil, fmt.Errorf("%s: more than %d pages of files", repo, maxPages)
		}
		some, next, err := o.hubPage(page, header)
		if err != nil {
			if cause := context.Cause(o.Context); cause != nil {
				return nil, cause
			}
			return nil, fmt.Errorf("the files of %s at revision %s: %w", repo, revision, err)
		}
		if files = append(files, some...); len(files) > maxHubFiles {
			return nil, fmt.Errorf("%s: more than %d files", repo, maxHubFiles)
		}
		if page = next; page != nil && (page.Scheme != base.Scheme || page.Host != base.Host) {
			return nil, fmt.Errorf("the files of %s: the next page is on another server", repo) // which must not get the token
		}
	}
	return files, nil
}

// hubAddress returns where package hub would ask for a file, and how: which hub that is,
// and with which token, is its rule.
func (o *Opener) hubAddress(repo, revision string) (base *url.URL, header http.Header, err error) {
	var asked *http.Request
	client := &hub.Client{HTTP: &http.Client{Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
		asked = req
		return &http.Response{StatusCode: http.StatusNotFound, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
	})}}
	_, err = client.OpenFile(o.Context, repo, revision, "model.safetensors")
	if asked == nil {
		return nil, nil, err // offline, or no repository
	}
	before, _, found := strings.Cut(asked.URL.Path, repo+"/resolve/")
	if !found {
		return nil, nil, fmt.Errorf("%q does not name a repository", repo)
	}
	base = &url.URL{Scheme: asked.URL.Scheme, User: asked.URL.User, Host: asked.URL.Host, Path: before}
	return base, http.Header{"Authorization": asked.Header["Authorization"]}, nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// nextPage matches the header Link of a page.
var nextPage = regexp.MustCompile(`<([^>]*)>;\s*rel="next"`)

func (o *Opener) hubPage(page *url.URL, header http.Header) (files []HubFile, next *url.URL, err error) {
	req := (&http.Request{Method: http.MethodGet, URL: page, Header: header.Clone()}).WithContext(o.Context)
	resp, err := o.client().Do(req)
	if err != nil {
		return nil, nil, errors.Unwrap(err) // without the URL
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, nil, errors.New(resp.Status)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxPage+1))
	if err == nil && len(text) > maxPage {
		err = fmt.Errorf("a page of more than %d bytes", maxPage)
	}
	if err != nil {
		return nil, nil, err
	}
	var entries []struct {
		Type, OID, Path string
		LFS             *struct{ OID string }
	}
	if err := json.Unmarshal(text, &entries); err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		if e.Type != "file" {
			continue
		}
		f := HubFile{Name: e.Path, git: e.LFS == nil}
		oid, lengths := e.OID, []int{sha1.Size, sha256.Size}
		if e.LFS != nil {
			oid, lengths = e.LFS.OID, lengths[1:]
		}
		if f.sum, err = hex.DecodeString(oid); err != nil || len(f.sum) != lengths[0] && len(f.sum) != sha256.Size {
			return nil, nil, fmt.Errorf("%.200q has the sum %.200q", e.Path, oid)
		}
		files = append(files, f)
	}
	if link := nextPage.FindStringSubmatch(resp.Header.Get("Link")); link != nil {
		next, err = page.Parse(link[1])
	}
	return files, next, err
}

// HubCache returns where the Python tools have a repository, hf://OWNER/NAME[@REVISION],
// and which commit that is.
func HubCache(name string) (dir, repo, commit string, err error) {
	repo, revision, file, err := splitHub(name)
	if err == nil && file != "" {
		err = fmt.Errorf("%q: expected a whole repository, hf://OWNER/NAME[@REVISION]", name)
	}
	if err == nil {
		dir, err = hub.CacheDir(repo, revision)
	}
	return dir, repo, filepath.Base(dir), err
}
