package variant_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors/internal/variant"
	"github.com/stretchr/testify/require"
)

// TestList lists fewer names than the limit, exactly as many, and more.
func TestList(t *testing.T) {
	names := strings.Fields("a b c d")
	require.Equal(t, "", variant.List(nil, 3, strconv.Quote))
	require.Equal(t, `"a", "b"`, variant.List(names[:2], 3, strconv.Quote))
	require.Equal(t, `"a", "b", "c"`, variant.List(names[:3], 3, strconv.Quote))
	require.Equal(t, `"a", "b", "c", 1 more`, variant.List(names, 3, strconv.Quote))
}
