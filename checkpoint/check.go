package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/prefix"
	"github.com/gosafetensors/safetensors/internal/variant"
)

// Check judges a directory: whether transformers, huggingface_hub, accelerate, diffusers, peft,
// sentence-transformers, mlx-lm and this module see the same model in it, and whether the model is
// whole. It returns no findings if both are true. It also judges the directories in it, except
// hidden ones, links and __MACOSX. Files whose names begin with "._" are left to macOS.
//
// Check reads headers, indexes and configs. It reads data only to compare tensors that are stored
// twice (copies of a tensor, tied heads, files of torch.save beside safetensors), and to find
// numbers that a narrower dtype in config.json would round. It does not compare buffers, which
// models compute, such as inv_freq, and does not look for the key format in the metadata:
// accelerate and huggingface_hub refuse a file that has metadata without it. Comparing takes
// constant memory. On a hub or in a bucket, Check opens each file once to read its header, and
// again only to compare its data, or, for a file of torch.save, to look where in it the tensors
// are.
//
// A finding is about the content of files. If a file cannot be read for another reason, such as the
// network, Check returns an error and no findings. More than 10,000 files with weights in a
// directory, or more than 10,000 directories, are an error. A config of more than 4 MiB and an index
// of more than 64 MiB are findings, and so is a link that leads out of the directory, as for [Open].
// If name is a file, Check judges only whether it can be opened.
//
// Check(os.DirFS("model"), ".") judges a directory of this machine. For a repository, the method FS
// of hub.Client returns the file system. Several goroutines may call Check at the same time.
func Check(fsys fs.FS, name string) ([]Finding, error) {
	in, err := osfile.TreeOf(fsys, name)
	if err != nil {
		return nil, prefix.Add(err)
	}
	c := &checker{in: in, root: name, claimed: make(map[string]bool), lists: make(map[string]listing)}
	if err := c.check(); err != nil {
		return nil, prefix.Add(fmt.Errorf("checking %s: %w", quoted(name), prefix.Strip(err)))
	}
	return c.findings, nil
}

func (c *checker) check() error {
	info, err := osfile.StatFS(c.in.FS, c.root)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return c.opens(".")
	}
	if err := c.tree("."); err != nil {
		return err
	}
	if !c.weights && len(c.findings) == 0 {
		l, err := c.list(".")
		if err != nil {
			return err
		}
		text := "the directory has no weights"
		if err := foreignError(l); err != nil {
			text += ": " + err.Error()
		} else if len(l.names) > 0 {
			text += ", only " + quotedList(l.names)
		}
		c.note(Missing, "", text, ".")
	}
	return nil
}

// opens notes a finding if Open fails for a file or a directory. If a file in the directory is unreadable, the finding names
// that file.
func (c *checker) opens(name string) error {
	f, err := Opener{Skip: func(string, error) {}}.OpenFS(c.in.FS, c.path(name))
	if err == nil {
		return f.Close()
	}
	if errors.Is(err, fs.ErrPermission) {
		return err
	}
	rule, file := Unreadable, c.innermost(err, name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && file != "." && inDirectory(file, name):
		c.note(Missing, "", fmt.Sprintf("%s is missing, and %s cannot be opened without it", quoted(file), quoted(name)), file)
		return nil
	case errors.Is(err, fs.ErrNotExist):
		rule = Missing
	case file != "":
		name = file
	}
	c.note(rule, "", fmt.Sprintf("%s cannot be opened: %s", quoted(name), cut(bare(err).Error())), name)
	return nil
}

// inDirectory reports whether a file is in a directory, or below it.
func inDirectory(file, dir string) bool {
	return fs.ValidPath(file) && (dir == "." || strings.HasPrefix(file, dir+"/"))
}

// innermost returns the last file in the directory dir that an error names, relative to the directory that is checked. It
// returns "" if the error names none. An error of a file system of this machine may contain the full path of the file
// instead of its name in the file system.
func (c *checker) innermost(err error, dir string) (name string) {
	at := new(fs.PathError)
	for errors.As(err, &at) {
		full := filepath.ToSlash(at.Path)
		below, in := strings.CutPrefix(full, c.root+"/")
		i := strings.LastIndex(full, "/"+dir+"/")
		switch {
		case in, c.root == "." && strings.HasPrefix(full, dir+"/"):
			name = below
		case i >= 0:
			name = full[i+len("/"):]
		case c.root == "." && full != "." && !filepath.IsAbs(at.Path):
			name = full
		}
		err = at.Err
	}
	return name
}

// maxDirs is the largest number of directories that Check judges.
const maxDirs = 10_000

// tree judges a directory and the directories below it.
func (c *checker) tree(dir string) error {
	if c.dirs++; c.dirs > maxDirs {
		return fmt.Errorf("more than %d directories", maxDirs)
	}
	l, err := c.list(dir)
	if err != nil {
		return err
	}
	if err := c.judge(dir, l); err != nil {
		return err
	}
	if err := c.judgeCache(dir, l); err != nil {
		return err
	}
	for _, name := range l.names {
		if l.modes[name].IsDir() && !strings.HasPrefix(name, ".") && name != "__pycache__" && name != "__MACOSX" {
			if err := c.tree(path.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// judge judges one directory.
func (c *checker) judge(dir string, l listing) error {
	c.seen, c.heads = make(map[string]bool), make(map[string]*head)
	c.weights = c.weights || l.holdsModel()
	d := &directory{checker: c, dir: dir, listing: l, first: len(c.findings)}
	if err := d.irregular(); err != nil {
		return err
	}
	if err := c.members(dir, d.listing); err != nil {
		return err
	}
	switch {
	case l.any(isSafetensorsIndex):
	case l.any(variant.IsMetadata), l.any(variant.IsRank), isItems(l), lacksMetadata(l), !l.any(isSafetensors) && l.any(variant.IsRankFile) && !l.any(variant.IsTorchModel):
		if !l.any(variant.IsRankFile) || l.any(isSure) || l.any(variant.IsMetadata) {
			if l.any(variant.IsMetadata) && l.any(isDistcp) && l.any(isSafetensors) {
				return d.judgeDistributed()
			}
			return c.opens(dir)
		}
	}
	return d.judge()
}

// isSure reports whether only a file that a rank has saved can have this name.
func isSure(name string) bool {
	r, ok := variant.RankOf(name)
	return ok && r.Sure
}

// judge judges each set of a directory, and compares the sets with each other and with the configs.
func (d *directory) judge() error {
	d.findSets()
	for _, s := range d.sets {
		if err := d.judgeSet(s); err != nil {
			return err
		}
	}
	d.judgeEmpty()
	if err := d.judgeStrays(); err != nil {
		return err
	}
	if err := d.judgeComponent(); err != nil {
		return err
	}
	var config modelConfig
	if _, err := d.readText(configFile, config.parse); err != nil {
		return err
	}
	for _, name := range sideConfigs {
		if _, err := d.readText(name, func(text []byte) error { return parseJSON(text, new(any)) }); err != nil {
			return err
		}
	}
	for _, s := range d.sets {
		if other := d.twin(s); other != nil {
			if err := d.judgeTwins(s, other, &config); err != nil {
				return err
			}
		}
	}
	if !d.incomplete() {
		d.judgeVariants()
	}
	if err := d.judgeConfig(&config); err != nil {
		return err
	}
	if err := d.judgeAdapter(); err != nil {
		return err
	}
	if err := d.judgeNested(&config); err != nil {
		return err
	}
	if err := d.judgeBelow(&config); err != nil {
		return err
	}
	return d.judgeNames(&config)
}

// judgeSet judges the files of one set.
func (d *directory) judgeSet(s *set) error {
	if s.index != "" && !d.seen[d.at(s.index)] {
		if err := d.readIndex(s); err != nil {
			return err
		}
	}
	rest := d.unlisted(s)
	var all []string
	for _, files := range rest {
		for _, name := range files {
			all = append(all, d.at(name))
		}
	}
	if err := d.readHeads(all); err != nil {
		return err
	}
	if s.listed != nil {
		return d.judgeRest(s, rest, s.index)
	}
	return d.judgeUnindexed(s, rest)
}
