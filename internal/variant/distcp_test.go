package variant

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMetadata: Metadata returns the files that describe a distributed checkpoint, in the order of
// the ranks. A gap is an error.
func TestMetadata(t *testing.T) {
	for _, c := range []struct{ names, want []string }{
		{[]string{"__0_0.distcp", "x.metadata", "__a.metadata", "_0.metadata", "__0.metadata.tmp"}, nil},
		{[]string{"__0_0.distcp", ".metadata"}, []string{".metadata"}},
		{[]string{"__10.metadata", "__2.metadata", "__0.metadata", "__1.metadata", "__3.metadata", "__4.metadata", "__5.metadata", "__6.metadata", "__7.metadata", "__8.metadata", "__9.metadata"},
			[]string{"__0.metadata", "__1.metadata", "__2.metadata", "__3.metadata", "__4.metadata", "__5.metadata", "__6.metadata", "__7.metadata", "__8.metadata", "__9.metadata", "__10.metadata"}},
	} {
		got, err := Metadata(c.names)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
		for _, name := range c.names {
			require.Equal(t, len(c.want) > 0 && name != "__0_0.distcp", IsMetadata(name), name)
		}
	}
	for want, names := range map[string][]string{
		`"__0.metadata" is missing: there is "__1.metadata", and each rank of its job has saved such a file`:  {"__1.metadata"},
		`"__1.metadata" is missing: there is "__01.metadata", and each rank of its job has saved such a file`: {"__0.metadata", "__01.metadata"},
		`"__1.metadata" is missing: there is "__1_0.distcp", and each rank of its job has saved such a file`:  {"__0.metadata", "__0_0.distcp", "__1_0.distcp"},
		`.metadata and "__0.metadata" are of two saves, of which the second has replaced files of the first`:  {"__0.metadata", ".metadata"},
	} {
		got, err := Metadata(names)
		require.EqualError(t, err, want)
		require.Nil(t, got)
	}
}
