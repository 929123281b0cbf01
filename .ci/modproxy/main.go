// Modproxy puts a module of a Git repository into a folder, at a version that is a tag
// of it, as a GOPROXY has it.
//
//	modproxy FOLDER REPOSITORY SUBFOLDER VERSION
package main

import (
	"fmt"
	"log"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 5 {
		log.Fatal("usage: modproxy FOLDER REPOSITORY SUBFOLDER VERSION")
	}
	if err := add(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		log.Fatal(err)
	}
}

func add(proxy, repo, sub, version string) error {
	tag := path.Join(sub, version)
	mod, err := exec.Command("git", "-C", repo, "show", tag+":"+path.Join(sub, "go.mod")).Output()
	if err != nil {
		return fmt.Errorf("go.mod of %s: %w", tag, err)
	}
	m := module.Version{Path: modfile.ModulePath(mod), Version: version}
	escaped, err := module.EscapePath(m.Path)
	if err != nil {
		return err
	}
	name := filepath.Join(proxy, filepath.FromSlash(escaped), "@v", version)
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return err
	}
	archive, err := os.Create(name + ".zip")
	if err != nil {
		return err
	}
	if err := zip.CreateFromVCS(archive, m, repo, tag, sub); err != nil {
		return err
	}
	if err := archive.Close(); err != nil {
		return err
	}
	info := fmt.Sprintf("{%q:%q,%q:%q}\n", "Version", version, "Time", time.Now().UTC().Format(time.RFC3339))
	if err := os.WriteFile(name+".info", []byte(info), 0o666); err != nil {
		return err
	}
	if err := os.WriteFile(name+".mod", mod, 0o666); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(filepath.Dir(name), "list"), []byte(version+"\n"), 0o666)
}
