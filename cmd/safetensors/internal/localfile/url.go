package localfile

import (
	"fmt"
	"net/url"
	"path/filepath"
	"runtime"
	"strings"
)

// Path returns the path that a file:// URL means on this system, and any other name as
// it is.
func Path(name string) (string, error) {
	if !strings.HasPrefix(name, "file://") {
		return name, nil
	}
	u, err := url.Parse(name)
	if err != nil {
		return "", fmt.Errorf("%q is not a URL", name)
	}
	path := u.Path
	if runtime.GOOS == "windows" {
		if drive := strings.TrimPrefix(u.Host+path, "/"); len(drive) > 2 && drive[1] == ':' { // file:///C:/x, and file://C:/x
			u.Host, path = "", drive
		}
	}
	switch {
	case u.Host != "" && u.Host != "localhost":
		return "", fmt.Errorf("%q is on another host; file:///PATH is a file of this one", name)
	case u.RawQuery != "" || u.Fragment != "":
		return "", fmt.Errorf("%q: a file has no query; ? is spelled %%3F, and # %%23", name)
	case strings.Trim(path, "/") == "":
		return "", fmt.Errorf("%q names no file", name)
	}
	return filepath.FromSlash(path), nil
}
