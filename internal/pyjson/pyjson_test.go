package pyjson

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWords: words of Python are replaced outside of strings, and only there.
func TestWords(t *testing.T) {
	for text, want := range map[string]string{
		`{"a": NaN, "b": [Infinity, -Infinity]}`:       `{"a": null, "b": [null, null]}`,
		`{"NaN": "Infinity", "\"NaN": "\\", "c": NaN}`: `{"NaN": "Infinity", "\"NaN": "\\", "c": null}`,
		`{"a": 1}`: `{"a": 1}`,
		`NaN`:      `null`,
		``:         ``,
		`"NaN`:     `"NaN`,
		`"NaN\`:    `"NaN\`,
	} {
		require.Equal(t, want, string(WithNulls([]byte(text))), text)
		marked := WithStrings([]byte(text))
		require.Equal(t, json.Valid([]byte(want)), json.Valid(marked), text)
		require.Equal(t, text, string(WithWords(marked)), text)
	}
}

// TestAllTexts compares WithNulls with a regular expression, for all texts of up to six of these
// pieces.
func TestAllTexts(t *testing.T) {
	pieces := []string{`"`, `\`, "NaN", "Infinity", "-", "a"}
	tokens := regexp.MustCompile(`(?s)"(?:[^"\\]|\\.)*(?:"|\\?$)|-?Infinity|NaN`) // a string may lack its end
	count := 0
	var try func(text string, left int)
	try = func(text string, left int) {
		count++
		want := tokens.ReplaceAllStringFunc(text, func(token string) string {
			if strings.HasPrefix(token, `"`) {
				return token
			}
			return "null"
		})
		if got := string(WithNulls([]byte(text))); got != want {
			t.Fatalf("%q: %q, expected %q", text, got, want)
		}
		for _, piece := range pieces {
			if left > 0 {
				try(text+piece, left-1)
			}
		}
	}
	try("", 6)
	require.Equal(t, 55987, count)
}
