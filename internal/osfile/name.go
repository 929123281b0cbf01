package osfile

import "io"

// A NamedReader is a reader with the name of the file that its bytes come from. Errors of reading a tensor from it contain this
// name, even if the bytes are unpacked or swapped on the way.
type NamedReader struct {
	io.ReaderAt
	File string // the name, or "" if it is unknown
}

// Name returns the name of the file.
func (n NamedReader) Name() string { return n.File }

// NameOf returns the name that a reader reports with a method Name, as an *os.File and a NamedReader do, or "" if it has none.
func NameOf(r any) string {
	if named, ok := r.(interface{ Name() string }); ok {
		return named.Name()
	}
	return ""
}
