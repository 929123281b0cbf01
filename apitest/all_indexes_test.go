package apitest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	. "github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

// smallMembers returns the members of which TestAllIndexes makes indexes.
func smallMembers() (all []string) {
	for _, weights := range []string{
		`{}`, `{"a":"s"}`, `{"a":"s","b":"t"}`, `{"b":"s","a":"s"}`, `{"a":"s","a":"s"}`, `{"a":"s","\u0061":"t"}`, `{"":"s"}`, `{"__metadata__":"s"}`,
		`{"a":""}`, `{"a":"."}`, `{"a":".."}`, `{"a":"../s"}`, `{"a":"/s"}`, `{"a":"d/s"}`, `{"a":"d//s"}`, `{"a":"d/"}`, `{"a":"d/../s"}`,
		`{"a":"c:s"}`, `{"a":"d\\s"}`, `{"a":"\u0000"}`, `{"a":"\u0085"}`, `{"a":"\u0073"}`, `{"a":"s\/t"}`, `{"a":"\ud83d\ude00"}`, `{"a":"\ud83d"}`, `{"\ude00":"s"}`,
		`{"a":1}`, `{"a":null}`, `{"a":["s"]}`, `{"a":{}}`, `{"a":"s",}`, `{"a" "s"}`, `null`, `[]`, `"s"`, ` { "a" : "s" } `, "{\"a\":\"\xff\"}", "{\"a\":\"\t\"}",
	} {
		all = append(all, `"weight_map":`+weights)
	}
	for _, metadata := range []string{
		`{}`, `null`, `1`, `"m"`, `[{}]`, ` {"total_size" : 1 } `, `{"k":"v"}`, `{"k":"v","k":"w"}`, `{"k":"v","\u006b":"v"}`, `{"k":1,"k":2}`, `{"k":"v","k":1}`,
		`{"k":{"l":"v","l":"w"}}`, `{"k":1e999}`, `"\ud83d"`, `{"k":01}`,
	} {
		all = append(all, `"metadata":`+metadata)
	}
	return append(all, `"\u0077eight_map":{"b":"t"}`, `"Weight_map":{"b":"t"}`, `"metadat\u0061":0`, `"x":0`, `"x":[-0.5e-3,true,"\ud83d\ude00"]`, `"x":{"weight_map":{},"weight_map":0}`,
		`"x":1e999`, `"x":-`, `"x":+1`, `"x":"\ud83d"`, `"\ud83d":0`, `"x":nul`, `"":null`, `"x"`, `x:1`, ``, ` `, `"x":}`)
}

// loneSurrogate matches half of a pair of escapes, once whole pairs are gone.
var (
	surrogates    = regexp.MustCompile(`(?i)\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}`)
	loneSurrogate = regexp.MustCompile(`(?i)\\ud[89a-f][0-9a-f]{2}`)
)

// slowIndex is a twin of ReadIndex, by the tokens of encoding/json.
func slowIndex(text string) (*Index, error) {
	if !utf8.ValidString(text) || !json.Valid([]byte(text)) || loneSurrogate.MatchString(surrogates.ReplaceAllString(text, "")) {
		return nil, errors.New("not JSON")
	}
	if strings.Contains(text, "1e999") {
		return nil, errors.New("beyond float64")
	}
	d := json.NewDecoder(strings.NewReader(text))
	if first, _ := d.Token(); first != json.Delim('{') {
		return nil, errors.New("no object")
	}
	x := &Index{}
	for d.More() {
		key, _ := d.Token()
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		switch key {
		case "weight_map":
			shards, err := slowShards(value)
			if err != nil || x.Shards != nil {
				return nil, fmt.Errorf("the weight_map: %w, or it is there twice", err)
			}
			x.Shards = shards
		case "metadata":
			if x.Metadata != nil || !uniqueStrings(value) {
				return nil, errors.New("metadata twice, or a key of them")
			}
			x.Metadata = value
		}
	}
	if x.Shards == nil {
		return nil, errors.New("no weight_map")
	}
	return x, nil
}

// slowShards returns a weight_map.
func slowShards(text []byte) (map[string]string, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	if first, _ := d.Token(); first != json.Delim('{') {
		return nil, errors.New("no object")
	}
	shards := make(map[string]string)
	for d.More() {
		key, _ := d.Token()
		value, _ := d.Token()
		shard, text := value.(string)
		_, twice := shards[key.(string)]
		switch {
		case !text || twice:
			return nil, errors.New("a name twice, or a shard that is not a string")
		case shard == "" || shard == "." || path.Clean(shard) != shard || path.IsAbs(shard) || strings.HasPrefix(shard, "..") || strings.ContainsAny(shard, "\\:\x00\u0085"):
			return nil, errors.New("a shard that is not local")
		}
		shards[key.(string)] = shard
	}
	return shards, nil
}

// uniqueStrings reports whether the keys of strings in an object are unique; other JSON has none.
func uniqueStrings(text []byte) bool {
	d := json.NewDecoder(bytes.NewReader(text))
	if first, _ := d.Token(); first != json.Delim('{') {
		return true
	}
	var keys []string
	for d.More() {
		key, _ := d.Token()
		var value any
		d.Decode(&value)
		if _, isText := value.(string); isText {
			keys = append(keys, key.(string))
		}
	}
	slices.Sort(keys)
	return len(slices.Compact(slices.Clone(keys))) == len(keys)
}

// TestAllIndexes reads all indexes of at most three members, in any order and each as often, and
// compares them with a twin. Those that are accepted are written and read again.
func TestAllIndexes(t *testing.T) {
	members := smallMembers()
	most, n, accepted := 2, 0, 0
	if testplatform.Long() || testplatform.Exhaustive() {
		most = 3
	}
	var compare func(begun string, left int)
	compare = func(begun string, left int) {
		text := "{" + begun + "}"
		want, wantErr := slowIndex(text)
		got, err := ReadIndex(strings.NewReader(text))
		n++
		if (err == nil) != (wantErr == nil) {
			require.FailNow(t, "another verdict", "%q: %v, not %v", text, err, wantErr)
		}
		if err == nil {
			accepted++
			require.Equal(t, want, got, text)
			written, err := got.AppendBinary(nil)
			require.NoError(t, err, text)
			require.Equal(t, want, must(ReadIndex(bytes.NewReader(written))), text)
		} else if broken := new(FormatError); !errors.As(err, &broken) || broken.Offset < 0 || broken.Offset > int64(len(text)) {
			require.FailNow(t, "no place", "%q: %v", text, err)
		}
		if left == 0 {
			return
		}
		for _, member := range members {
			next := member
			if left < most {
				next = begun + "," + member
			}
			compare(next, left-1)
		}
	}
	compare("", most)
	t.Logf("%d members, at most %d: %d indexes, %d accepted", len(members), most, n, accepted)
	all := 1
	for range 3 {
		all = 1 + all*len(members)
	}
	requireStated(t, "indexes", all, "texts")
	if most == 3 {
		require.Equal(t, all, n)
		requireStated(t, "accepted indexes", accepted, "texts")
	}
}
