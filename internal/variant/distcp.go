package variant

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"sync"
)

// metadataFile is the name of the file that describes all .distcp files of a checkpoint of
// torch.distributed.checkpoint.
const metadataFile = ".metadata"

// rankMetadata matches the names of the files that describe the .distcp files of one rank each, and
// ofRank matches those and the .distcp files of one rank. A job saves them if its ranks do not
// communicate (use_collectives=False).
var (
	rankMetadata = lazily(`^__(\d{1,9})\.metadata$`)
	ofRank       = lazily(`^__(\d{1,9})(?:\.metadata|_\d+\.distcp)$`)
)

// lazily returns a func that returns the regular expression of a pattern. Its first call compiles it.
func lazily(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

// IsMetadata reports whether torch.distributed.checkpoint gives such a name to a file that describes
// .distcp files.
func IsMetadata(name string) bool { return name == metadataFile || rankMetadata().MatchString(name) }

// Metadata returns those of the files in a directory that describe its .distcp files, in the order of
// the ranks. It returns none if there are none. It is an error if the file of a rank is missing, or if
// the files are of several saves.
func Metadata(names []string) (found []string, err error) {
	byRank := make(map[int]string) // files of metadata
	last, lastFile := -1, ""       // the largest number of a rank, and a file of that rank
	for _, name := range names {
		if m := ofRank().FindStringSubmatch(name); m != nil {
			n, _ := strconv.Atoi(m[1])
			if rankMetadata().MatchString(name) {
				byRank[n] = name
			}
			if n > last {
				last, lastFile = n, name
			}
		}
	}
	whole := slices.Contains(names, metadataFile)
	switch {
	case whole && len(byRank) > 0:
		some := byRank[slices.Min(slices.Collect(maps.Keys(byRank)))]
		return nil, fmt.Errorf("%s and %q are of two saves, of which the second has replaced files of the first", metadataFile, some)
	case whole:
		return []string{metadataFile}, nil
	case len(byRank) == 0:
		return nil, nil
	}
	for n := range last + 1 {
		want := fmt.Sprintf("__%d%s", n, metadataFile)
		if byRank[n] != want {
			return nil, fmt.Errorf("%q is missing: there is %q, and each rank of its job has saved such a file", want, cmp.Or(byRank[n], lastFile))
		}
		found = append(found, want)
	}
	return found, nil
}

// These are keys of the metadata in the safetensors files of torch.distributed.checkpoint.
const (
	ShardingKey = "DCP_SHARDING_INFO" // the offsets of the pieces in a file
	VersionKey  = "DCP_VERSION"
)

// WithoutSharding removes these keys from the metadata of one file, and returns nil if nothing is left.
// The metadata can then describe the tensors of several files: the keys are true for one file only.
func WithoutSharding(metadata map[string]string) map[string]string {
	delete(metadata, ShardingKey)
	delete(metadata, VersionKey)
	if len(metadata) == 0 {
		return nil
	}
	return metadata
}
