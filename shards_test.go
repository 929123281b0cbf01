package safetensors

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestShardErrors checks that an error of the callback is wrapped, even one that comes with a File,
// and does not become a FormatError: programs that delete corrupt downloads must not delete one
// because of a time-out.
func TestShardErrors(t *testing.T) {
	whole := must(Parse(fileOf(`{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`, 0)))
	for _, c := range []struct {
		f    *File
		err  error
		want string
	}{
		{nil, os.ErrDeadlineExceeded, "i/o timeout"},
		{nil, prefixed(os.ErrDeadlineExceeded), "i/o timeout"},
		{whole, os.ErrDeadlineExceeded, "i/o timeout"},
		{nil, errorOf(Parse(nil)), "file of 0 bytes is shorter than the 8 bytes of the header length (at byte 0)"},
	} {
		_, err := OpenShards(strings.NewReader(`{"weight_map":{"a":"s.safetensors"}}`), func(string) (*File, error) { return c.f, c.err })
		require.EqualError(t, err, `safetensors: shard "s.safetensors": `+c.want)
		require.Equal(t, errors.Is(c.err, os.ErrDeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded))
		require.Equal(t, errors.As(c.err, new(*FormatError)), errors.As(err, new(*FormatError)))
	}
}

// numberedIndex returns an index of n tensors, t00, t01 and so on, in as many shards, 00, 01 and so on.
func numberedIndex(n int) []byte {
	shards := make(map[string]string)
	for i := range n {
		shards[fmt.Sprintf("t%02d", i)] = fmt.Sprintf("%02d", i)
	}
	return (&Index{Shards: shards}).encode(nil)
}

// TestManyFailures checks that opening stops soon after ten shards have failed.
func TestManyFailures(t *testing.T) {
	var calls atomic.Int64
	_, err := OpenShards(bytes.NewReader(numberedIndex(5000)), func(string) (*File, error) {
		calls.Add(1)
		return nil, fs.ErrNotExist
	})
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.Less(t, calls.Load(), int64(maxFailures+shardsAtOnce+1))
}

// TestShardsAtOnce: at most 20 shards are opened concurrently, and that many are.
func TestShardsAtOnce(t *testing.T) {
	var now, most atomic.Int64
	full := make(chan struct{})
	open := sync.OnceFunc(func() { close(full) })
	_, err := OpenShards(bytes.NewReader(numberedIndex(60)), func(string) (*File, error) {
		n := now.Add(1)
		defer now.Add(-1)
		for known := most.Load(); n > known && !most.CompareAndSwap(known, n); {
			known = most.Load()
		}
		if n == 20 {
			open()
		}
		<-full
		for range 20 {
			runtime.Gosched() // lets other calls begin
		}
		return nil, fs.ErrNotExist
	})
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.EqualValues(t, 20, most.Load())
}

// TestLateFailures: the error of the last of many shards is reported, and so is the error of a
// shard that lacks a tensor.
func TestLateFailures(t *testing.T) {
	const n = 60
	index := numberedIndex(n)
	for failing := range n {
		for _, failure := range []error{fs.ErrPermission, nil} { // nil: a shard without its tensor
			_, err := OpenShards(bytes.NewReader(index), func(shard string) (*File, error) {
				if shard != fmt.Sprintf("%02d", failing) {
					return Parse(fileOf(`{"t`+shard+`":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`, 0))
				}
				if failure != nil {
					return nil, failure
				}
				return Parse(fileOf("{}", 0))
			})
			if failure != nil {
				require.ErrorIs(t, err, failure)
				require.EqualError(t, err, fmt.Sprintf(`safetensors: shard "%02d": permission denied`, failing))
			} else {
				require.EqualError(t, err, fmt.Sprintf(`safetensors: tensor "t%02d": the index places it in shard "%02d", which lacks it`, failing, failing))
			}
		}
	}
	// Each shard that lacks a tensor costs a search through the index. So openAll stops searching
	// after some of them.
	_, err := OpenShards(bytes.NewReader(index), func(string) (*File, error) { return Parse(fileOf("{}", 0)) })
	require.Len(t, strings.Split(err.Error(), "\n"), maxFailures)
	require.ErrorContains(t, err, `tensor "t09": the index places it in shard "09", which lacks it`)
	require.NotContains(t, err.Error(), "more shards")
	var errs []error
	for i := range maxFailures {
		errs = append(errs, nil, fmt.Errorf("error %d", i))
	}
	require.EqualError(t, joinSome(errs), "error 0\nerror 1\nerror 2\nerror 3\nerror 4\nerror 5\nerror 6\nerror 7\nerror 8\nerror 9")
	errs = append(errs, nil, fs.ErrClosed, fs.ErrClosed)
	require.ErrorContains(t, joinSome(errs), "error 9\nand 2 more shards")
	require.NoError(t, joinSome([]error{nil, nil}))
}

// TestIndexLength reads an index of the largest allowed length, and refuses one that is a byte
// longer.
func TestIndexLength(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x.safetensors.index.json")
	for length, tooLong := range map[int64]bool{maxIndexLength: false, maxIndexLength + 1: true} {
		file := must(os.Create(name))
		require.NoError(t, file.Truncate(length))
		_, opened := Open(name)
		_, given := OpenShards(file, func(string) (*File, error) { return nil, fs.ErrNotExist })
		require.NoError(t, file.Close())
		for _, err := range []error{opened, given} {
			require.Error(t, err)
			require.Equal(t, tooLong, strings.Contains(err.Error(), "the index is longer than 67108864 bytes"), err)
		}
	}
}

// TestNumberOfShards: an index may name as many shards as the limit allows, and no more.
func TestNumberOfShards(t *testing.T) {
	weights := map[string]string{}
	for i := range maxShards {
		weights[fmt.Sprint("a", i)], weights[fmt.Sprint("b", i)] = fmt.Sprint(i), fmt.Sprint(i)
	}
	w := must(parseIndex((&Index{Shards: weights}).encode(nil)))
	require.Len(t, w.count, maxShards)
	require.Equal(t, 2, w.count["9999"])
	require.Empty(t, w.shardOf("c"))
	weights["c"] = "c"
	_, err := parseIndex((&Index{Shards: weights}).encode(nil))
	require.ErrorContains(t, err, "the index names more than 10000 shards")
}

// TestNamesOfShards tries names that stay in the directory of the index, names that WriteShards
// gives, names that number the shards of a set, and names that do none of these.
func TestNamesOfShards(t *testing.T) {
	long := strings.Repeat("s", 4096)
	for what, c := range map[string]struct {
		is      func(name string) bool
		yes, no []string
	}{
		"local": {
			localName,
			[]string{"s", "a/b", "a/b/c.safetensors", "..s", "s..", "...", ".s", "é", " ", "a b", long, long[:4094] + "/s"},
			[]string{"", ".", "..", "/s", "s/", "a//b", "./s", "a/.", "../s", "a/../s", "a/..", `a\b`, "c:s", "a:b", "s\x00", "s\n", "s\x7f", "s\u0085", "s\xff", long + "s"},
		},
		"own": {ownShard, []string{
			"model-00001-of-00002.safetensors", "model.123456789-00001-of-00002.safetensors", "model.000000000-00002-of-00002.safetensors", "model.123456789-100000-of-100000.safetensors",
		}, []string{
			"model.1-00001-of-00002.safetensors", "model.12-00002-of-00002.safetensors", "model.12345678-00001-of-00002.safetensors", "model.1234567890-00001-of-00002.safetensors",
			"model.fp16-00001-of-00002.safetensors", "model.fp16.123456789-00001-of-00002.safetensors", "model-00001-of-00002.fp16.safetensors", "model.123456789.safetensors",
			"model.2.123456789-00001-of-00002.safetensors", "model.12345678x-00001-of-00002.safetensors",
			"model.safetensors", "model.x-00001-of-00002.safetensors", "model1-00001-of-00002.safetensors",
			"model.-1-00001-of-00002.safetensors", "model.-00001-of-00002.safetensors", "amodel-00001-of-00002.safetensors", "x.1-00001-of-00002.safetensors",
			"model-0001-of-00002.safetensors", "model-00001-of-00002.bin", "model-00001-of-0002.safetensors", "model-00001-00002.safetensors", "model-00001-of-00002",
		}},
		"of a set": {func(name string) bool { _, ok := parseShard(name); return ok }, nil, []string{
			"-00001-of-00002.safetensors", "00001-of-00002.safetensors", "x-00001-of-.safetensors", "x--of-00001.safetensors", "x-00001-of-00002.safetensors.index.json",
			"x-0000a-of-00002.safetensors", "x-00001-of-0000a.safetensors", "-of-00001.safetensors", "", ".safetensors", "x_00001-of-00002.safetensors",
		}},
	} {
		for i, name := range slices.Concat(c.yes, c.no) {
			require.Equal(t, i < len(c.yes), c.is(name), "%s: %q", what, name)
		}
	}
	if runtime.GOOS == "windows" {
		require.False(t, localName("NUL") || localName("a/com1"))
	}
	for name, want := range map[string][3]string{
		"model-00001-of-00002.safetensors":              {"model", "00001", "00002"},
		"a-b-of-c-00001-of-100000.safetensors":          {"a-b-of-c", "00001", "100000"},
		"x-00001-of-00002-00003-of-4444444.safetensors": {"x-00001-of-00002", "00003", "4444444"},
	} {
		s, ok := parseShard(name)
		require.True(t, ok, name)
		require.Equal(t, want, [3]string{s.Stem, s.Number, s.Count})
	}
}

// FuzzIndex checks that no text makes parseIndex panic, that an accepted index counts and finds all
// its names, and that it can be written again.
func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"metadata":{"total_size":1},"weight_map":{"a":"s.safetensors","b":"t.safetensors"}}`))
	f.Add([]byte(`{"weight_map":{"\u0061":"x/y"}}`))
	f.Add([]byte(`{"weight_map":{}, "metadata": {"b":"a","c":[{"d":null}], "\u0065":"" } }`))
	f.Fuzz(func(t *testing.T, text []byte) {
		x, refused := ReadIndex(bytes.NewReader(text))
		w, err := parseIndex(text)
		require.Equal(t, err == nil, refused == nil)
		if err != nil {
			return
		}
		if written, err := x.AppendBinary(nil); len(text) < maxIndexLength/6 { // escapes are longer
			require.NoError(t, err)
			require.Equal(t, x, must(ReadIndex(bytes.NewReader(written))))
		}
		n := 0
		for shard, count := range w.count {
			require.True(t, localName(shard))
			n += count
		}
		require.Equal(t, len(w.pairs), n)
		for i := range w.pairs {
			require.Equal(t, i, w.names.lookup(w.name(i), w.name))
		}
	})
}
