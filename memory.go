package safetensors

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"unsafe"
)

// This file and the mmap files are the only ones that use unsafe. Here it turns
// a []byte into a []T and back, always within bounds that a slice expression
// has checked, and a []byte that nobody writes any more into a string.

// sizeOf returns the bytes of a T.
func sizeOf[T Element]() int { return int(unsafe.Sizeof(*new(T))) }

// bytesOf returns the memory of s.
func bytesOf[T Element](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*sizeOf[T]())
}

// sliceOf returns mem, which is not empty and holds whole elements, as a []T
// without spare capacity, unless its address is not aligned for T.
func sliceOf[T Element](mem []byte) ([]T, bool) {
	p := unsafe.Pointer(unsafe.SliceData(mem))
	if uintptr(p)%unsafe.Alignof(*new(T)) != 0 {
		return nil, false
	}
	n := len(mem) / sizeOf[T]()
	return unsafe.Slice((*T)(p), n)[:n:n], true
}

// freeze returns b as a string. b must not be written to any more.
func freeze(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// within reports whether an address is in mem.
func within(addr uintptr, mem []byte) bool {
	first := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	return first <= addr && addr-first < uintptr(len(mem))
}

// extend returns dst with n more elements, of any value. Large memory that is
// made for them is not touched yet.
func extend[T Element](dst []T, n int) []T {
	if cap(dst)-len(dst) >= n {
		return dst[:len(dst)+n]
	}
	capacity := len(dst) + n
	if len(dst) > 0 {
		// As append does for large slices, and below what a 32-bit system has.
		capacity = max(capacity, min(cap(dst)+cap(dst)/4, math.MaxInt/sizeOf[T]()))
	}
	out := allocate[T](capacity)
	clear(out[len(dst)+n:])
	copy(out, dst)
	return out[:len(dst)+n]
}

// allocate returns a slice of n elements of any value, about to be filled.
//
// What make returns is zero: memory that the heap has used before is cleared.
// Filled only then, 16 MiB took twice as long, and more than that even longer:
// clearing touches every page before there can be large pages behind. A
// strings.Builder is how the standard library gives out memory without that. (If
// it ever does not, nothing breaks.)
func allocate[T Element](n int) []T {
	const (
		worthwhile = 4 << 10
		line       = 64
	)
	size := n * sizeOf[T]()
	if size < worthwhile {
		return make([]T, n)
	}
	var b strings.Builder
	b.Grow(line + size)
	b.WriteByte(0) // a string, which has an address and must not change; what is behind it is free
	mem := unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(unsafe.StringData(b.String())), line)), size)
	if size >= hugePagesFrom {
		hugePages(mem)
	}
	s, ok := sliceOf[T](mem)
	if !ok { // memory of this size is aligned
		return make([]T, n)
	}
	return s
}

// hugePagesFrom is the size from which memory is better filled in large pages.
const hugePagesFrom = 32 << 20

// bigEndian is whether the host keeps the most significant byte first.
var bigEndian = *(*byte)(unsafe.Pointer(&[]uint16{1}[0])) == 0

// hostUnit returns how many bytes of a T make one number whose order differs
// between host and file, 0 if none does.
func hostUnit[T Element]() int {
	size := sizeOf[T]()
	if !bigEndian || size == 1 {
		return 0
	}
	if reflect.TypeFor[T]().Kind() == reflect.Complex64 {
		size /= 2
	}
	return size
}

// reverseUnits changes the byte order of units of so many bytes.
func reverseUnits(b []byte, unit int) {
	for ; len(b) >= unit; b = b[unit:] {
		slices.Reverse(b[:unit])
	}
}
