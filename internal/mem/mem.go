// Package mem holds the memory side of the library: Go slices as bytes and back,
// large slices that are not cleared first, reusable blocks, and pages.
//
// Apart from the mmap files, it is the only package that uses unsafe. It turns a
// []byte into a []T and back, always within bounds that a slice expression has
// checked, and a []byte that nobody writes any more into a string. T is a number
// type throughout: it holds no pointers. On Windows it also passes the address of a
// struct to the system call that returns the size of memory.
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

// Freeze returns b as a string that shares its memory. Nobody may write to b afterwards.
func Freeze(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// Address returns the address of the first byte of b. Two slices with equal addresses share
// memory as long as both are in use.
func Address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// Contains reports whether the byte at this address lies in b.
func Contains(b []byte, addr uintptr) bool {
	first := Address(b)
	return first <= addr && addr-first < uintptr(len(b))
}

// Touch reads a byte of each page of b. It is not inlined, because the compiler would then remove
// reads whose sum is not used.
//
//go:noinline
func Touch(b []byte) (sum byte) {
	const page = 4 << 10 // the smallest page size of any system
	for ; len(b) > page; b = b[page:] {
		sum += b[0]
	}
	if len(b) > 0 {
		sum += b[0] + b[len(b)-1]
	}
	return sum
}

// container returns the number of bytes of memory that the cgroups of this process allow, or 0 if
// they do not limit it or the system has no cgroups. A test replaces it.
var container = func() int64 { return 0 }

// CheckSize returns an error for a number of bytes that cannot be allocated without ending the
// program: more than the machine has, or than its container may use. Sizes often come
// from a server, or from the header of a sparse file. A false size below the limit does no
// harm, since new memory takes only address space until it is filled.
func CheckSize(bytes int64) error {
	const (
		worthwhile = 1 << 30  // size in bytes from which the memory of the machine is checked
		contained  = 64 << 20 // size in bytes from which the limit of the container is checked, since it may be small
	)
	// The size must fit an int even with the bytes that Allocate adds.
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
	if bytes >= contained {
		if most := container(); most > 0 && bytes > most {
			return fmt.Errorf("%d bytes exceed the limit of memory of this container, %d bytes", bytes, most)
		}
	}
	return nil
}

// Extend returns dst with n more elements, which are uninitialized. If it allocates a large
// slice, it does not touch the new memory, so that the caller can call Prepare.
func Extend[T any](dst []T, n int) []T {
	if cap(dst)-len(dst) >= n {
		return dst[:len(dst)+n]
	}
	capacity := len(dst) + n
	if len(dst) > 0 {
		// This grows as append does for large slices, and stays below the limit of 32-bit systems.
		capacity = max(capacity, min(cap(dst)+cap(dst)/4, math.MaxInt/SizeOf[T]()))
	}
	out := Allocate[T](capacity)
	Prepare(out, 0, int64(len(BytesOf(dst))))
	clear(out[len(dst)+n:])
	copy(out, dst)
	return out[:len(dst)+n]
}

// Allocate returns a slice of n uninitialized elements. The caller fills them, and calls Prepare
// first if there are many.
//
// make would clear the memory first. For a slice that is overwritten at once, that doubled
// the time at 16 MiB, and it faults in every page before huge pages can be
// requested. strings.Builder of the standard library returns memory without clearing it. If
// it ever stops doing so, nothing breaks.
func Allocate[T any](n int) []T {
	const worthwhile = 4 << 10
	size := n * SizeOf[T]()
	if size < worthwhile {
		return make([]T, n)
	}
	alignment := 64
	if size >= hugePagesFrom {
		alignment = hugePage // so that the blocks of a large copy are also aligned
	}
	var b strings.Builder
	b.Grow(alignment + size)
	b.WriteByte(0) // one byte of content, so that String has an address; only the spare capacity after it is used
	content := unsafe.Pointer(unsafe.StringData(b.String()))
	skip := alignment - int(uintptr(content)&uintptr(alignment-1))
	s, ok := SliceOf[T](unsafe.Slice((*byte)(unsafe.Add(content, skip)), size))
	if !ok { // does not happen, since memory of this size is aligned
		return make([]T, n)
	}
	return s
}

// bigEndian is true if the host stores the most significant byte first.
var bigEndian = *(*byte)(unsafe.Pointer(&[]uint16{1}[0])) == 0

// SwappedUnit returns the size in bytes of the numbers in a T if their byte order
// differs between this host and a little-endian file, otherwise 0. The numbers of a
// complex64 are its two parts.
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

// Swap converts the numbers of the Ts in b from the byte order of the host to that of a file, or
// back.
func Swap[T any](b []byte) {
	for unit := SwappedUnit[T](); unit > 0 && len(b) >= unit; b = b[unit:] {
		slices.Reverse(b[:unit])
	}
}
