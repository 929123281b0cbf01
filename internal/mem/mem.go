// Package mem holds the memory side of the library: Go slices as bytes and back,
// large slices that are not cleared first, reusable blocks, and pages.
//
// Apart from the mmap files, it is the only package that uses unsafe. It turns a
// []byte into a []T and back, always within bounds that a slice expression has
// checked, and a []byte that nobody writes any more into a string. T is a number
// type throughout: it holds no pointers. On Windows it also asks the system for the
// size of memory, by the address of a struct.
package mem

import (
	"fmt"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"unsafe"
)

// PopulateFrom is the number of bytes below which Populate does nothing.
const PopulateFrom = 64 << 10

// SizeOf returns the size of a T in bytes.
func SizeOf[T any]() int { return int(unsafe.Sizeof(*new(T))) }

// BytesOf returns the memory of s.
func BytesOf[T any](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*SizeOf[T]())
}

// SliceOf returns b, which is not empty and holds whole elements, as a []T
// without spare capacity. It fails if the address of b is not aligned for T.
func SliceOf[T any](b []byte) ([]T, bool) {
	p := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(p)%unsafe.Alignof(*new(T)) != 0 {
		return nil, false
	}
	n := len(b) / SizeOf[T]()
	return unsafe.Slice((*T)(p), n)[:n:n], true
}

// Freeze returns b as a string. Nobody may write to b afterwards.
func Freeze(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// Address returns the address of the first byte of b. Equal addresses are the same
// memory while both slices are in use.
func Address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// Contains reports whether b holds the byte at an address.
func Contains(b []byte, addr uintptr) bool {
	first := Address(b)
	return first <= addr && addr-first < uintptr(len(b))
}

// Touch reads a byte of each page of b. It is not inlined: the compiler would leave out
// reads whose sum nobody uses.
//
//go:noinline
func Touch(b []byte) (sum byte) {
	const page = 4 << 10 // or more
	for ; len(b) > page; b = b[page:] {
		sum += b[0]
	}
	if len(b) > 0 {
		sum += b[0] + b[len(b)-1]
	}
	return sum
}

// CheckSize refuses memory that cannot be there: allocating it would end the
// program. Sizes often come from a server or from the header of a sparse file. New
// memory of such a size is address space until it is filled, so that a claim below
// the limit costs nothing either.
func CheckSize(bytes int64) error {
	const worthwhile = 1 << 30
	// What Allocate adds fits an int, too.
	addressSpace := int64(min(math.MaxInt-2*hugePage, 1<<46))
	if runtime.GOARCH == "wasm" { // an int has 64 bits there, an address 32
		addressSpace = math.MaxUint32
	}
	switch {
	case bytes > addressSpace:
		return fmt.Errorf("%d bytes exceed the address space", bytes)
	case bytes >= worthwhile:
		if most := physical(); most > 0 && bytes > most {
			return fmt.Errorf("%d bytes exceed the memory of this machine, %d bytes", bytes, most)
		}
	}
	return nil
}

// Extend returns dst with n more elements, uninitialized. Large new memory is
// left untouched.
func Extend[T any](dst []T, n int) []T {
	if cap(dst)-len(dst) >= n {
		return dst[:len(dst)+n]
	}
	capacity := len(dst) + n
	if len(dst) > 0 {
		// As append does for large slices, and below what a 32-bit system has.
		capacity = max(capacity, min(cap(dst)+cap(dst)/4, math.MaxInt/SizeOf[T]()))
	}
	out := Allocate[T](capacity)
	Prepare(out, 0, int64(len(BytesOf(dst))))
	clear(out[len(dst)+n:])
	copy(out, dst)
	return out[:len(dst)+n]
}

// Allocate returns a slice of n uninitialized elements, which the caller fills,
// after Prepare if there are many.
//
// make clears memory first. For a slice that is overwritten at once this doubled
// the time at 16 MiB, and it faults in every page before huge pages can be
// requested. The standard library hands out memory without clearing it through
// strings.Builder. (If it ever stops doing so, nothing breaks.)
func Allocate[T any](n int) []T {
	const worthwhile = 4 << 10
	size := n * SizeOf[T]()
	if size < worthwhile {
		return make([]T, n)
	}
	alignment := 64
	if size >= hugePagesFrom {
		alignment = hugePage // and so the blocks of a large copy are
	}
	var b strings.Builder
	b.Grow(alignment + size)
	b.WriteByte(0) // one byte of content, so that String has an address; only the spare capacity after it is used
	content := unsafe.Pointer(unsafe.StringData(b.String()))
	skip := alignment - int(uintptr(content)&uintptr(alignment-1))
	s, ok := SliceOf[T](unsafe.Slice((*byte)(unsafe.Add(content, skip)), size))
	if !ok { // memory of this size is aligned
		return make([]T, n)
	}
	return s
}

// bigEndian is whether the host keeps the most significant byte first.
var bigEndian = *(*byte)(unsafe.Pointer(&[]uint16{1}[0])) == 0

// SwappedUnit returns the size in bytes of the numbers in a T whose byte order
// differs between this host and a little-endian file; 0 if none does. The
// numbers of a complex64 are its two parts.
func SwappedUnit[T any]() int {
	size := SizeOf[T]()
	if !bigEndian || size == 1 {
		return 0
	}
	if reflect.TypeFor[T]().Kind() == reflect.Complex64 {
		size /= 2
	}
	return size
}

// Swap brings the numbers of Ts from the byte order of the host into that of a file, or
// back.
func Swap[T any](b []byte) {
	for unit := SwappedUnit[T](); unit > 0 && len(b) >= unit; b = b[unit:] {
		slices.Reverse(b[:unit])
	}
}
