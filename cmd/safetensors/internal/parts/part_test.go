package parts

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPart: a part is K/N, K from 1 to N. Each item belongs to one of N parts.
func TestPart(t *testing.T) {
	for _, text := range []string{"1/1", "1/3", "3/3", "1/1048576"} {
		var p Part
		require.False(t, p.IsSet())
		require.NoError(t, p.Set(text))
		require.True(t, p.IsSet())
		require.Equal(t, text, p.String())
	}
	for _, text := range []string{"", "1", "0/1", "-1/2", "4/3", "1/x", "x/2", "1/1048577", "1/2/3"} {
		require.Error(t, new(Part).Set(text), text)
	}
	for item := range 10 {
		require.True(t, new(Part).Has(item))
		in := 0
		for k := range 3 {
			if (&Part{k + 1, 3}).Has(item) {
				in++
			}
		}
		require.Equal(t, 1, in)
	}
}

// TestNoPlan: a file of another program in place of a plan is refused.
func TestNoPlan(t *testing.T) {
	p, err := decode((&Plan{Form: planVersion}).encode())
	require.NoError(t, err)
	require.Equal(t, planVersion, p.Form)
	for _, text := range []string{"", "{", "{}", `{"plan":1,"shards":1}`, `[]`} {
		_, err := decode([]byte(text))
		require.EqualError(t, err, "is not a plan of this command", text)
	}
}
