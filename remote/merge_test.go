package remote

import (
	"bytes"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// openObject opens a file as an io.ReaderAt.
func openObject(t *testing.T, c *Client, rawURL string) *object {
	s, u, err := c.session(t.Context(), rawURL)
	require.NoError(t, err)
	o := must(newObject(s, u))
	o.opened()
	return o
}

// serveObject starts a server for a file, and opens the file.
func serveObject(t *testing.T, file []byte) (*server, *object, *clock) {
	s := newServer(t)
	client, clock := newClient()
	return s, openObject(t, client, s.add("/m", file)), clock
}

// A run is a range of a file.
type run struct{ off, n int64 }

// seqOf yields the offset of each run, and a part of dst to read it into.
func seqOf(dst []byte, runs ...run) iter.Seq2[int64, []byte] {
	return func(yield func(int64, []byte) bool) {
		for _, r := range runs {
			if !yield(r.off, dst[:r.n:r.n]) {
				return
			}
			dst = dst[r.n:]
		}
	}
}

// TestReadRangesMerges counts the requests for lists of ranges, at and next to each limit on
// merging.
func TestReadRangesMerges(t *testing.T) {
	const size = 20 << 20
	file := pattern(size)
	s, o, _ := serveObject(t, file)
	bytewise := make([]run, maxParts+1)
	for i := range bytewise {
		bytewise[i] = run{int64(i), 1}
	}
	for _, c := range []struct {
		name   string
		runs   []run
		ranges []string
	}{
		{"nothing", nil, nil},
		{"empty ranges", []run{{5, 0}, {size, 0}}, nil},
		{"one", []run{{5, 10}}, []string{"bytes=5-14"}},
		{"adjacent", []run{{5, 10}, {15, 5}}, []string{"bytes=5-19"}},
		{"gap at the limit", []run{{0, 10}, {10 + maxGap, 1}}, []string{fmt.Sprintf("bytes=0-%d", 10+maxGap)}},
		{"gap above the limit", []run{{0, 10}, {11 + maxGap, 1}}, []string{"bytes=0-9", fmt.Sprintf("bytes=%d-%d", 11+maxGap, 11+maxGap)}},
		{"span at the limit", []run{{0, maxSpan - 1}, {maxSpan - 1, 1}}, []string{fmt.Sprintf("bytes=0-%d", maxSpan-1)}},
		{"span above the limit", []run{{0, 1}, {1, maxSpan - 1}, {maxSpan, 1}}, []string{fmt.Sprintf("bytes=0-%d", maxSpan-1), fmt.Sprintf("bytes=%d-%d", maxSpan, maxSpan)}},
		{"longer than a request", []run{{7, 2*maxSpan + 5}}, []string{
			fmt.Sprintf("bytes=7-%d", 7+maxSpan-1),
			fmt.Sprintf("bytes=%d-%d", 7+maxSpan, 7+2*maxSpan-1),
			fmt.Sprintf("bytes=%d-%d", 7+2*maxSpan, 7+2*maxSpan+4),
		}},
		{"as many as a request takes, and one", bytewise, []string{fmt.Sprintf("bytes=0-%d", maxParts-1), fmt.Sprintf("bytes=%d-%d", maxParts, maxParts)}},
		{"falling order", []run{{100, 10}, {5, 10}}, []string{"bytes=100-109", "bytes=5-14"}},
		{"overlap", []run{{5, 10}, {10, 10}}, []string{"bytes=5-14", "bytes=10-19"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.reset(nil)
			var want []byte
			for _, r := range c.runs {
				want = append(want, file[r.off:][:r.n]...)
			}
			got := make([]byte, len(want))
			require.NoError(t, o.ReadRanges(seqOf(got, c.runs...)))
			require.True(t, slices.Equal(want, got))
			require.ElementsMatch(t, c.ranges, s.ranges())
			if len(c.runs) == 1 { // a single ReadAt sends the same requests
				s.reset(nil)
				clear(got)
				require.Equal(t, len(got), must(o.ReadAt(got, c.runs[0].off)))
				require.True(t, slices.Equal(want, got))
				require.ElementsMatch(t, c.ranges, s.ranges())
			}
		})
	}
}

// TestReadRangesFails: the first failure ends ReadRanges, and no list of ranges is requested after
// it.
func TestReadRangesFails(t *testing.T) {
	file := pattern(30 << 20)
	s, o, clock := serveObject(t, file)

	err := o.ReadRanges(seqOf(make([]byte, 20), run{0, 10}, run{int64(len(file)) - 5, 10}))
	require.ErrorContains(t, err, "unexpected EOF", "beyond the end")

	s.reset(always(statusOf(404)))
	runs := make([]run, 100)
	for i := range runs {
		runs[i] = run{int64(i) * (maxGap + 1000), 10}
	}
	require.ErrorContains(t, o.ReadRanges(seqOf(make([]byte, 1000), runs...)), "status 404")
	require.Less(t, len(s.ranges()), len(runs), "no more requests after a failure")

	// The connection breaks at the end of the first part, and then the server fails. The gap before
	// the second part does not count as bytes that a try has received.
	clock.pauses = nil
	s.reset(first(1, sendPart(abort, file, 10)).then(always(statusOf(500))))
	err = o.ReadRanges(seqOf(make([]byte, 20), run{0, 10}, run{10 + goodTry, 10}))
	require.ErrorContains(t, err, "(tried 8 times)")
	require.Len(t, s.ranges(), maxTries)
	require.Len(t, clock.pauses, maxTries-1)
}

// TestReadRangesOfAWholeHead: if the first answer contained the whole file, no further request is
// sent.
func TestReadRangesOfAWholeHead(t *testing.T) {
	file := craft(100, 1000)
	s, o, _ := serveObject(t, file)
	got := make([]byte, 20)
	require.NoError(t, o.ReadRanges(seqOf(got, run{5, 10}, run{500, 10})))
	require.Equal(t, slices.Concat(file[5:15], file[500:510]), got)
	require.Equal(t, io.ErrUnexpectedEOF, o.ReadRanges(seqOf(got, run{int64(len(file)) - 19, 20})))
	require.NoError(t, o.ReadRanges(seqOf(got, run{int64(len(file)) - 20, 20})))
	require.Len(t, s.ranges(), 1, "the first one")
}

// TestReadRangesResumes breaks each answer off after a few bytes: within a part, within a gap, and
// at their edges.
func TestReadRangesResumes(t *testing.T) {
	file := pattern(200_000)
	s, o, _ := serveObject(t, file)
	runs := []run{{1000, 3}, {1003, 1}, {1010, 5}, {1100, 4}}
	want := slices.Concat(file[1000:1004], file[1010:1015], file[1100:1104])
	for n := range 104 {
		s.reset(first(1, sendPart(abort, file, n)))
		got := make([]byte, len(want))
		require.NoError(t, o.ReadRanges(seqOf(got, runs...)))
		require.Equal(t, want, got)
		next := 1000 + n
		switch {
		case n >= 4 && n < 10:
			next = 1010
		case n >= 15 && n < 100:
			next = 1100
		}
		require.Equal(t, []string{"bytes=1000-1103", fmt.Sprintf("bytes=%d-1103", next)}, s.ranges())
	}
}

// TestTake: a request takes the waiting reads that are near each other and do not overlap. The
// other reads stay, in order.
func TestTake(t *testing.T) {
	q := new(queue)
	var waiting []*pending
	for _, off := range []int64{5_000_000, 30, 10, 20, 1000, 21, 20, 9_000_000} {
		w := &pending{part: part{off, make([]byte, 10)}}
		q.add(w)
		waiting = append(waiting, w)
	}
	offsets := func(list []*pending) (offsets []int64) {
		for _, w := range list {
			offsets = append(offsets, w.off)
		}
		return offsets
	}
	require.Equal(t, []int64{10, 20, 20, 21, 30, 1000, 5_000_000, 9_000_000}, offsets(q.waiting))
	require.Equal(t, []int64{30, 1000}, offsets(q.take(waiting[1])), "up to an overlap of one byte")
	require.Nil(t, q.take(waiting[4]), "taken before")
	require.Equal(t, []int64{10, 20}, offsets(q.take(waiting[3])), "earlier ones, too")
	require.Equal(t, []int64{20}, offsets(q.take(waiting[6])))
	require.Equal(t, []int64{21, 5_000_000, 9_000_000}, offsets(q.waiting))

	q = new(queue)
	for i := range maxParts + 1 {
		q.add(&pending{part: part{int64(i), make([]byte, 1)}})
	}
	require.Len(t, q.take(q.waiting[5]), maxParts)
}

// TestWaitingReadsAreMerged: reads that wait for a request in flight are merged. The test blocks
// the requests in flight until all other reads wait.
func TestWaitingReadsAreMerged(t *testing.T) {
	const readers, distance = 1000, 10_000
	file := pattern(firstRead + readers*distance)
	s, o, _ := serveObject(t, file)
	o.pace.stall = time.Hour
	release := make(chan struct{})
	s.reset(func(int, http.ResponseWriter, *http.Request) bool {
		<-release
		return false
	})
	var all sync.WaitGroup
	for i := range readers {
		all.Add(1)
		go func() {
			defer all.Done()
			off := firstRead + int64(i)*distance
			got := make([]byte, 100)
			must(o.ReadAt(got, off))
			require.Equal(t, file[off:][:100], got)
		}()
	}
	require.Eventually(t, func() bool {
		o.reads.mu.Lock()
		defer o.reads.mu.Unlock()
		arrived := len(o.reads.waiting)
		for _, text := range s.ranges() {
			first, last := rangeOf(text)
			arrived += 1 + (last-first)/distance
		}
		return arrived == readers
	}, time.Minute, time.Millisecond)
	close(release)
	all.Wait()
	require.Empty(t, o.reads.waiting)
	require.Less(t, len(s.ranges()), 200)
}

// TestReadsAreMerged counts the requests and the bytes for reading a model of 500 small tensors and
// one BF16 tensor [2048,4096], whose rows have 8 KiB, and which has 16 MiB. Reads that cannot go
// directly into the memory of the caller are made in large blocks.
func TestReadsAreMerged(t *testing.T) {
	const rows, columns, small, whole = 2048, 4096, 500, 16 << 20
	values := make([]uint16, rows*columns)
	for i := range values {
		values[i] = uint16(i * 31)
	}
	local := must(safetensors.NewTensor(safetensors.BF16, []int{rows, columns}, values))
	tensors := map[string]safetensors.Tensor{"t": local}
	for i := range small {
		tensors[fmt.Sprintf("norm.%03d", i)] = must(safetensors.NewTensor(safetensors.U8, []int{4096}, pattern(4096)))
	}
	s := newServer(t)
	client, _ := newClient()
	file := encode(tensors, nil)
	f := must(client.Open(t.Context(), s.add("/m", file)))
	defer f.Close()
	tensor := must(f.Tensor("t"))
	slice := func(ranges ...safetensors.Range) func() {
		want := must(safetensors.Append[uint16](nil, must(local.Slice(ranges...))))
		return func() {
			require.True(t, slices.Equal(want, must(safetensors.Append[uint16](nil, must(tensor.Slice(ranges...))))))
		}
	}
	for _, c := range []struct {
		name     string
		read     func()
		requests int
		bytes    int64 // largest number of bytes
	}{
		{"all", slice(), 3, whole},
		{"rows", slice(safetensors.Span(100, 356)), 1, 2 << 20},
		{"one row", slice(safetensors.At(7)), 1, 8 << 10},
		{"a column shard of eight", slice(safetensors.All(), safetensors.Span(3*512, 4*512)), 2, whole},
		{"one column", slice(safetensors.All(), safetensors.At(5)), 2, whole},
		{"rows far apart", slice(safetensors.All().By(64)), 32, 32 * 8 << 10},
		{"as float32, 2 MiB a request", func() { must(safetensors.Append[float32](nil, tensor)) }, 8, whole},
		{"written, 4 MiB a request", func() { must(tensor.WriteTo(io.Discard)) }, 4, whole},
		{"the model", func() {
			var copied bytes.Buffer
			require.NoError(t, safetensors.Write(&copied, maps.Collect(f.Tensors()), nil))
			require.True(t, bytes.Equal(file, copied.Bytes()))
		}, 8, whole + small*4096},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.reset(nil)
			c.read()
			require.LessOrEqual(t, len(s.ranges()), c.requests)
			require.LessOrEqual(t, s.sent, c.bytes)
		})
	}
}
