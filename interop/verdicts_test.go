package interop_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// stricter lists the rules that only Parse checks, not the reference, with the
// reasons that it gives.
var stricter = []struct {
	rule   string
	reason *regexp.Regexp
}{
	{"metadata keys are unique", regexp.MustCompile(`^duplicate metadata key "`)},
	{"an entry is an object", regexp.MustCompile(`^expected an object, the entry of a tensor, found '\['$`)},
	{"a dtype is a string", regexp.MustCompile(`^expected a string, the dtype, found '{'$`)},
	{"integers fit int64, dimensions int", regexp.MustCompile(`^a (dimension|data offset) is above (9223372036854775807|2147483647)$`)},
}

// mutationSeeds are headers of files with 16 bytes of data: five valid ones, one
// that leaves a hole, and those that the reference alone accepts.
var mutationSeeds = []string{
	`{"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}`,
	" \t\r\n" + `{"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}`,
	`{"__metadata__":{"k":"v","l":""},"a":{"dtype":"BF16","shape":[3,2],"data_offsets":[0,12]},"b":{"dtype":"U8","shape":[4],"data_offsets":[12,16]}}  `,
	`{"b":{"data_offsets":[4,16],"x":[{"y":-1.5e3}],"dtype":"F6_E2M3","shape":[16]},"a\n\u00e9":{"dtype":"F4","shape":[8,1],"data_offsets":[0,4]}}`,
	`{"__metadata__":null,"z":{"dtype":"I64","shape":[12345678,0],"data_offsets":[0,0]},"y":{"dtype":"C64","shape":[2],"data_offsets":[0,16]}}`,
	`{"a":{"dtype":"BOOL","shape":[8],"data_offsets":[8,16]}}`,
	`{"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"\u0061":{"dtype":"F64","shape":[2],"data_offsets":[0,16]}}`,
	`{"__metadata__":{"k":"v","k":"w"},"a":{"dtype":"I16","shape":[8],"data_offsets":[0,16]}}`,
	`{"a":["F32",[2,2],[0,16]]}`,
	`{"a":{"dtype":{"F32":null},"shape":[2,2],"data_offsets":[0,16]}}`,
	`{"a":{"dtype":"F32","shape":[0,9223372036854775808],"data_offsets":[0,0]},"b":{"dtype":"U64","shape":[2],"data_offsets":[0,16]}}`,
}

// onlyReference is the index of the first seed that the reference alone accepts.
const onlyReference = 6

// mutationPieces are likely to make a border case.
var mutationPieces = []string{
	"0", "1", "9", "00", "01", "-", ".", "e", "E5", `"`, `\`, `\u0041`, `\ud800`, `\ud83d\ude00`, ",", ":", "[", "]", "{", "}",
	" ", "\n", "\t", "\x00", "\x1f", "\xff", "é", "null", "true", `"a"`, `"dtype"`, `"F32"`, `"U8"`, "[0,0]", "[]", `"x":1,`,
	"9223372036854775807", "9223372036854775808", "18446744073709551615", "18446744073709551616", "1e400", ".0", "e0", `"__metadata__":null,`,
}

// mutate returns a header with one or two changes.
func mutate(rng *rand.Rand, header string) []byte {
	text := []byte(header)
	for range 1 + rng.IntN(2) {
		piece := mutationPieces[rng.IntN(len(mutationPieces))]
		at := rng.IntN(len(text) + 1)
		to := min(len(text), at+rng.IntN(4))
		switch rng.IntN(5) {
		case 0: // insert
			to = at
		case 1: // delete
			piece = ""
		case 2: // repeat
			to = at
			piece = string(text[at:min(len(text), at+rng.IntN(60))])
		case 3: // another number
			digits := regexp.MustCompile(`[0-9]+`).FindAllIndex(text, -1)
			if len(digits) > 0 {
				d := digits[rng.IntN(len(digits))]
				at, to, piece = d[0], d[1], strconv.Itoa(rng.IntN(20))
			}
		}
		text = slices.Concat(text[:at], []byte(piece), text[to:])
	}
	return text
}

// TestStricterRules checks, without the reference, that each rule of stricter is
// recognized by its reason.
func TestStricterRules(t *testing.T) {
	seen := make(map[string]bool)
	for _, header := range mutationSeeds[onlyReference:] {
		file := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
		file = append(file, header+"sixteen bytes..."...)
		_, err := safetensors.Parse(file)
		seen[deviation(t, file, err)] = true
	}
	require.Len(t, seen, len(stricter)+1)
}

// TestPythonVerdicts has Parse and the reference judge the same small files, most
// of them damaged.
func TestPythonVerdicts(t *testing.T) {
	requirePython(t, "safetensors", "numpy", "ml_dtypes")
	rng := rand.New(rand.NewPCG(7, 8))
	var files [][]byte
	var stdin bytes.Buffer
	for range 30_000 {
		header := mutate(rng, mutationSeeds[rng.IntN(len(mutationSeeds))])
		file := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
		data := "sixteen bytes..."
		if rng.IntN(8) == 0 {
			data = data[1:]
		}
		file = slices.Concat(file, header, []byte(data))
		files = append(files, file)
		stdin.WriteString(base64.StdEncoding.EncodeToString(file) + "\n")
	}
	var verdicts []json.RawMessage // tensors, null if the file is refused
	runPython(t, &verdicts, &stdin, "verdicts")
	require.Len(t, verdicts, len(files))

	seen := make(map[string]int)
	for i, verdict := range verdicts {
		f, err := safetensors.Parse(files[i])
		switch {
		case string(verdict) == "null":
			require.Error(t, err, "Parse alone accepts %q", files[i])
			seen["refused"]++
		case err != nil:
			seen[deviation(t, files[i], err)]++
		default:
			var want []goldenTensor
			require.NoError(t, json.Unmarshal(verdict, &want))
			require.Len(t, maps.Collect(f.Tensors()), len(want))
			for _, w := range want {
				requireTensor(t, must(f.Tensor(w.Name)), w)
			}
			seen["accepted"]++
		}
	}
	t.Log(seen)
	require.Greater(t, seen["accepted"], len(files)/100, "too few are accepted to show anything")
	require.NotZero(t, seen[uniqueNames])
	for _, s := range stricter {
		require.NotZero(t, seen[s.rule], s.rule)
	}
}

// uniqueNames is the rule that a tensor name occurs once. Its files are recognized
// by their text.
const uniqueNames = "tensor names are unique"

// deviation returns the rule by which Parse alone refuses a file.
func deviation(t *testing.T, file []byte, err error) string {
	t.Helper()
	var broken *safetensors.FormatError
	require.ErrorAs(t, err, &broken)
	for _, s := range stricter {
		if s.reason.MatchString(broken.Reason) {
			return s.rule
		}
	}
	// The reference drops the first of two entries: Parse may give any reason to
	// refuse that one.
	require.True(t, hasDuplicateName(t, file), "Parse alone refuses %q: %v", file, err)
	return uniqueNames
}

// hasDuplicateName reports whether the header of a file has a duplicate name.
func hasDuplicateName(t *testing.T, file []byte) bool {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(file[8:]))
	must(d.Token())
	seen := make(map[json.Token]bool)
	for d.More() {
		name := must(d.Token())
		if seen[name] {
			return true
		}
		seen[name] = true
		var entry json.RawMessage
		require.NoError(t, d.Decode(&entry))
	}
	return false
}
