package checkpoint

import (
	"fmt"
	"path"
	"strings"
)

// judgeCache judges a directory models--OWNER--NAME, in which huggingface_hub caches a repository: it checks that the
// snapshots exist that the refs name. It ignores any other directory.
func (c *checker) judgeCache(dir string, l listing) error {
	for _, name := range []string{"refs", "snapshots", "blobs"} {
		if !l.modes[name].IsDir() {
			return nil
		}
	}
	snapshots, err := c.list(path.Join(dir, "snapshots"))
	if err != nil {
		return err
	}
	return c.judgeRefs(path.Join(dir, "refs"), snapshots)
}

// judgeRefs judges the refs in a directory and in the directories below it, such as refs/main and refs/refs/pr/1.
func (c *checker) judgeRefs(dir string, snapshots listing) error {
	l, err := c.list(dir)
	if err != nil {
		return err
	}
	for _, name := range l.names {
		ref := path.Join(dir, name)
		if l.modes[name].IsDir() && strings.Count(ref, "/") < 10 {
			if err := c.judgeRefs(ref, snapshots); err != nil {
				return err
			}
		}
		if !l.modes[name].IsRegular() {
			continue
		}
		text, err := readText(c.in, c.path(ref), 1000)
		commit := strings.TrimSpace(string(text))
		switch {
		case err != nil && !isVerdict(err):
			return err
		case err != nil:
			c.unreadable(ref, err)
		case !snapshots.modes[commit].IsDir() || commit == "":
			c.note(Missing, "", fmt.Sprintf("the snapshot %s is missing, which %s names: without a network the revision is not found", quoted(commit), quoted(ref)), ref)
		}
	}
	return nil
}
