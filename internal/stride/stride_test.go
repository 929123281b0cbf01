package stride

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

// naive does what Gather does, one run at a time.
func naive(src []byte, run int64, loops []Loop, first, n int64) []byte {
	var dst []byte
	for number := first; number < first+n; number++ {
		at, rest := int64(0), number
		for i := len(loops) - 1; i >= 0; i-- {
			at += rest % loops[i].N * loops[i].Stride
			rest /= loops[i].N
		}
		dst = append(dst, src[at:][:run]...)
	}
	return dst
}

// requireAsNaive compares Gather with naive, on memory in which each byte depends on its position.
func requireAsNaive(t testing.TB, run int64, loops []Loop, pos, n int64) {
	t.Helper()
	size := run
	for _, l := range loops {
		size += (l.N - 1) * l.Stride
	}
	src := make([]byte, size)
	for i := range src {
		src[i] = byte(i*7 ^ i>>8*31 ^ i>>16)
	}
	dst := make([]byte, n+1)
	dst[n] = 0xee
	Gather(dst[:n], src, run, loops, pos)
	require.Equal(t, byte(0xee), dst[n])
	if string(naive(src, run, loops, pos/run, (pos%run+n+run-1)/run)[pos%run:][:n]) != string(dst[:n]) {
		require.FailNow(t, "wrong bytes", "%d from %d on, runs of %d, loops %v", n, pos, run, loops)
	}
}

// TestTransposed transposes matrices of all sizes around those of a word, a tile and a block. Their
// rows are adjacent or not, and so are their columns.
func TestTransposed(t *testing.T) {
	sizes := []int64{1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 67, 130, 255, 257, 513, 530}
	for _, run := range []int64{1, 2, 3, 4, 8, 16, 24} {
		for _, rows := range sizes {
			for _, columns := range sizes {
				if rows*columns > 40000 && !testplatform.Long() {
					continue
				}
				for _, gap := range []int64{0, 3} {
					loops := []Loop{{columns, run + gap}, {rows, columns*(run+gap) + gap}}
					requireAsNaive(t, run, loops, 0, rows*columns*run)
				}
			}
		}
	}
}

// TestGather gathers windows of random loops in random order. Some loops visit the same bytes
// repeatedly.
func TestGather(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		run := []int64{1, 2, 4, 8, 1, 2, 4, 8, 3, 12}[random.IntN(10)]
		loops := make([]Loop, random.IntN(6))
		stride, total := run, run
		for i := range loops {
			n := 1 + random.Int64N(5)
			loops[i] = Loop{n, stride}
			total *= n
			switch random.IntN(4) {
			case 0:
				stride += random.Int64N(5)
			case 1:
				stride = stride*n + random.Int64N(5)
			default:
				stride *= n
			}
		}
		random.Shuffle(len(loops), func(i, j int) { loops[i], loops[j] = loops[j], loops[i] })
		pos := random.Int64N(total)
		requireAsNaive(t, run, loops, pos, random.Int64N(total-pos+1))
	}
	requireAsNaive(t, 1, []Loop{{2, 0}, {1 << 16, 0}, {1 << 16, 1}}, 1<<32-4, 8) // the position exceeds 32 bits
}

// bench measures f, which copies this number of bytes.
func bench(b *testing.B, name string, bytes int64, f func()) {
	b.Run(name, func(b *testing.B) {
		b.SetBytes(bytes)
		for b.Loop() {
			f()
		}
	})
}

// BenchmarkTranspose compares the transposition of a matrix with a copy of it.
func BenchmarkTranspose(b *testing.B) {
	const side = 8192
	for _, run := range []int64{1, 2, 4, 8} {
		src, dst := make([]byte, side*side*run), make([]byte, side*side*run)
		for i := range src {
			src[i] = byte(i) // pages that nobody has written may all be the same page of zeros
		}
		bench(b, fmt.Sprintf("copy-%d", run), side*side*run, func() { copy(dst, src) })
		bench(b, fmt.Sprintf("transpose-%d", run), side*side*run, func() { Gather(dst, src, run, []Loop{{side, run}, {side, side * run}}, 0) })
	}
}

// BenchmarkRows copies columns of a matrix [8192,57344] of bytes. Each time it copies the next
// columns, which are in no cache.
func BenchmarkRows(b *testing.B) {
	const rows, stride = 8192, 56 << 10
	src := make([]byte, rows*stride)
	for i := range src {
		src[i] = byte(i)
	}
	for _, run := range []int{64, 128, 256, 512, 896, 1792, 3584, 7168} {
		dst := make([]byte, rows*run)
		column := 0
		next := func() []byte {
			column = (column + run) % (stride - run)
			return src[column:]
		}
		bench(b, fmt.Sprintf("ahead-%d", run), int64(len(dst)), func() { Line(dst, next(), run, stride, rows) })
		bench(b, fmt.Sprintf("plain-%d", run), int64(len(dst)), func() {
			src := next()
			for i := range rows {
				copy(dst[i*run:][:run], src[i*stride:])
			}
		})
	}
}

// TestTransposeAllocates: Gather does not allocate a buffer for each matrix that it transposes.
func TestTransposeAllocates(t *testing.T) {
	src, dst := make([]byte, 100*16*16*4), make([]byte, 100*16*16*4)
	loops := []Loop{{100, 16 * 16 * 4}, {16, 4}, {16, 16 * 4}}
	require.Less(t, testing.AllocsPerRun(10, func() { Gather(dst, src, 4, loops, 0) }), 10.0)
}
