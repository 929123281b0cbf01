// Package pyjson reads and writes the JSON of Python, whose module json writes numbers that are not
// finite as the words NaN, Infinity and -Infinity. JSON has no such words, and package
// encoding/json refuses them. Configs of models contain them, for example as the time_step_limit of
// Mamba layers.
package pyjson

import (
	"bytes"
	"regexp"
	"sync"
)

// words are the words that Python's module json writes for numbers, and that JSON does not have.
var words = []string{"NaN", "Infinity", "-Infinity"}

// WithNulls returns text with null in place of each word. It does not modify text, and returns it if
// it has no such word.
func WithNulls(text []byte) []byte {
	return replace(text, func(string) string { return "null" })
}

// WithStrings returns text with a string in place of each word, which WithWords turns into the word
// again. The string starts with U+FDD0, which is not a character. WithStrings does not modify text,
// and returns it if it has no such word.
func WithStrings(text []byte) []byte {
	return replace(text, func(word string) string { return `"\ufdd0` + word + `"` })
}

// marked returns a pattern that matches the strings that WithStrings inserts. Its first call
// compiles the pattern.
var marked = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`"\\ufdd0(-?Infinity|NaN)"`) })

// WithWords undoes WithStrings: it returns text with the word in place of each string that
// WithStrings has inserted.
func WithWords(text []byte) []byte { return marked().ReplaceAll(text, []byte("$1")) }

// replace returns text with by(word) in place of each word outside of strings.
func replace(text []byte, by func(word string) string) []byte {
	if !bytes.Contains(text, []byte("NaN")) && !bytes.Contains(text, []byte("Infinity")) {
		return text
	}
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		n := tokenLength(text)
		if word := wordAt(text); word != "" {
			n, out = len(word), append(out, by(word)...)
		} else {
			out = append(out, text[:n]...)
		}
		text = text[n:]
	}
	return out
}

// wordAt returns the word at the start of text, or "".
func wordAt(text []byte) string {
	for _, word := range words {
		if bytes.HasPrefix(text, []byte(word)) {
			return word
		}
	}
	return ""
}

// tokenLength returns the length of the string at the start of text, with its quotes. It returns 1 if
// there is none, and the length of text if the string has no end.
func tokenLength(text []byte) int {
	if text[0] != '"' {
		return 1
	}
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}
