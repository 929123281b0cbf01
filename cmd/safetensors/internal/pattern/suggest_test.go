package pattern

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSuggest has misspelt names, and the name that is suggested for each.
func TestSuggest(t *testing.T) {
	names := []string{"model.embed_tokens.weight", "model.layers.0.mlp.weight", "lm_head.weight", "unet/conv_in.weight"}
	for name, want := range map[string]string{
		"model.embed_token.weight":  "model.embed_tokens.weight",
		"MODEL.LAYERS.0.MLP.WEIGHT": "model.layers.0.mlp.weight",
		"mlp.weight":                "model.layers.0.mlp.weight",
		"lm_head":                   "lm_head.weight",
		"lm_haed.weigth":            "lm_head.weight",
		"lm_":                       "lm_head.weight",
		"conv_in.weight":            "unet/conv_in.weight",
		"lm":                        "",
		"":                          "",
		"x":                         "",
		"something.else.altogether": "",
	} {
		if want != "" {
			want = `, did you mean "` + want + `"?`
		}
		require.Equal(t, want, Suggest(name, names), name)
	}
}

// TestDistance has the edit distance of some words, which does not depend on their order and stops
// at the limit.
func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"kitten", "sitting", 3}, {"flaw", "lawn", 2}, {"same", "same", 0}, {"modle", "model", 1}, {"ab", "ba", 1}, {"aba", "bab", 2}, {"abab", "baba", 2}, {"ca", "abc", 3}, {"abcdef", "badcfe", 3}} {
		require.Equal(t, c.want, Distance(c.a, c.b, 100))
		require.Equal(t, c.want, Distance(c.b, c.a, 100))
		require.Equal(t, min(c.want, 2), Distance(c.a, c.b, 2))
	}
	require.Equal(t, 5, Distance(strings.Repeat("a", 1_000_000), strings.Repeat("b", 1_000_000), 5), "stops early")
}
