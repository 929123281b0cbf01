// Package modelconfig finds the parts of a config.json that describe the language model: its dtype,
// its quantization and the size of its vocabulary.
package modelconfig

import (
	"encoding/json"
	"slices"
)

// Vocabulary is the key for the number of rows of the embedding.
const Vocabulary = "vocab_size"

// MaxDepth is the greatest depth at which a config within the config.json of a model describes its weights.
const MaxDepth = 2

// language are the keys of the configs of language models within the configs of larger models.
var language = []string{"text_config", "language_config", "llm_config", "thinker_config"}

// OfLanguage reports whether the config at a path of keys belongs to a whole model, or to the language model in it.
func OfLanguage(path []string) bool {
	return len(path) == 0 || slices.Contains(language, path[len(path)-1])
}

// Change calls f for the fields of a config and of the configs of language models within it, and
// returns the config with the fields as f leaves them. f reports whether it changed a field. If a
// field changed, the keys are sorted. path contains the keys that lead to the config; it is nil for
// a config.json.
func Change(text json.RawMessage, path []string, f func(fields map[string]json.RawMessage) (changed bool, err error)) (json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	changed, err := f(fields)
	if err != nil {
		return nil, err
	}
	for _, key := range language {
		if value := fields[key]; len(value) == 0 || value[0] != '{' || len(path) == MaxDepth {
			continue
		}
		inner, err := Change(fields[key], append(slices.Clone(path), key), f)
		if err != nil {
			return nil, err
		}
		changed = changed || string(inner) != string(fields[key])
		fields[key] = inner
	}
	if !changed {
		return text, nil
	}
	return json.Marshal(fields)
}
