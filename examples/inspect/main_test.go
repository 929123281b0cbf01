package main

import (
	"bytes"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// writeModel writes a file that is hard to list: a scalar, a tensor without
// elements, elements of four bits, names and metadata that are not printable.
func writeModel(t *testing.T, name string) {
	tensors := make(map[string]safetensors.Tensor)
	add := func(name string, dtype safetensors.DType, shape []int, size int) {
		var err error
		tensors[name], err = safetensors.NewTensor(dtype, shape, make([]byte, size))
		require.NoError(t, err)
	}
	add("embeddings.weight", safetensors.F32, []int{1024, 3}, 12288)
	add("scale", safetensors.F32, nil, 4)
	add("layer.0.weight", safetensors.BF16, []int{500, 2}, 2000)
	add("layer.0.packed", safetensors.F4, []int{3, 2}, 3)
	add("empty", safetensors.BF16, []int{0, 7}, 0)
	add("\x1b[31mred\n", safetensors.U8, []int{1}, 1)
	add("", safetensors.U8, []int{1}, 1)
	require.NoError(t, safetensors.WriteFile(name, tensors, map[string]string{
		"format":  "pt",
		"license": strings.Repeat("never ends ", 10),
		"config":  `{"a": 1}`,
		"tab":     "a\tb",
	}))
}

func TestText(t *testing.T) {
	t.Chdir(t.TempDir())
	writeModel(t, "model.safetensors")
	var out bytes.Buffer
	require.NoError(t, run([]string{"model.safetensors"}, &out))
	require.Equal(t, `model.safetensors

NAME               DTYPE  SHAPE          BYTES
embeddings.weight  F32    [1024,3]     12.3 kB
scale              F32    []               4 B
empty              BF16   [0,7]            0 B
layer.0.weight     BF16   [500,2]      2.00 kB
""                 U8     [1]              1 B
"\x1b[31mred\n"    U8     [1]              1 B
layer.0.packed     F4     [3,2]            3 B

DTYPE  TENSORS         PARAMETERS       BYTES
F32          2              3,073     12.3 kB
BF16         2              1,000     2.00 kB
U8           2                  2         2 B
F4           1                  6         3 B
total        7              4,081     14.3 kB

METADATA
config   {"a": 1}
format   pt
license  never ends never ends never ends never ends never ends never ends never ends nev…
tab      "a\tb"
`, out.String())
}

func TestJSON(t *testing.T) {
	t.Chdir(t.TempDir())
	writeModel(t, "model.safetensors")
	var out bytes.Buffer
	require.NoError(t, run([]string{"-json", "model.safetensors"}, &out))
	require.Equal(t, `{"file":"model.safetensors",`+
		`"metadata":{"config":"{\"a\": 1}","format":"pt","license":"`+strings.Repeat("never ends ", 10)+`","tab":"a\tb"},`+
		`"tensors":[`+
		`{"name":"embeddings.weight","dtype":"F32","shape":[1024,3],"parameters":3072,"bytes":12288},`+
		`{"name":"scale","dtype":"F32","shape":[],"parameters":1,"bytes":4},`+
		`{"name":"empty","dtype":"BF16","shape":[0,7],"parameters":0,"bytes":0},`+
		`{"name":"layer.0.weight","dtype":"BF16","shape":[500,2],"parameters":1000,"bytes":2000},`+
		`{"name":"","dtype":"U8","shape":[1],"parameters":1,"bytes":1},`+
		`{"name":"\u001b[31mred\n","dtype":"U8","shape":[1],"parameters":1,"bytes":1},`+
		`{"name":"layer.0.packed","dtype":"F4","shape":[3,2],"parameters":6,"bytes":3}],`+
		`"dtypes":[`+
		`{"dtype":"F32","tensors":2,"parameters":3073,"bytes":12292},`+
		`{"dtype":"BF16","tensors":2,"parameters":1000,"bytes":2000},`+
		`{"dtype":"U8","tensors":2,"parameters":2,"bytes":2},`+
		`{"dtype":"F4","tensors":1,"parameters":6,"bytes":3}],`+
		`"total":{"tensors":7,"parameters":4081,"bytes":14297}}`+"\n", out.String())
}

// TestNames lists a checkpoint of three shards by each kind of name.
func TestNames(t *testing.T) {
	t.Chdir(t.TempDir())
	tensors := make(map[string]safetensors.Tensor)
	for _, name := range []string{"a", "b", "c"} {
		var err error
		tensors[name], err = safetensors.NewTensor(safetensors.BF16, []int{16}, make([]uint16, 16))
		require.NoError(t, err)
	}
	require.NoError(t, safetensors.WriteShards("checkpoint", tensors, nil, 32))
	hub := http.NewServeMux()
	hub.Handle("/", http.FileServer(http.Dir(".")))
	hub.Handle("/owner/name/resolve/main/", http.StripPrefix("/owner/name/resolve/main/", http.FileServer(http.Dir("checkpoint"))))
	hub.Handle("/owner/name/resolve/v2/", http.StripPrefix("/owner/name/resolve/v2/", http.FileServer(http.Dir("checkpoint"))))
	server := httptest.NewServer(hub)
	defer server.Close()
	t.Setenv("HF_ENDPOINT", server.URL)
	t.Setenv("HF_TOKEN", "token")
	for _, name := range []string{
		"checkpoint",
		"checkpoint/model.safetensors.index.json",
		server.URL + "/checkpoint/model.safetensors.index.json",
		"owner/name",
		"owner/name@v2",
	} {
		l, err := list(name)
		require.NoError(t, err, name)
		require.Len(t, l.Tensors, 3, name)
		require.Equal(t, []total{{safetensors.BF16, 3, 48, 96}}, l.DTypes)
	}
	l, err := list(server.URL + "/checkpoint/model-00002-of-00003.safetensors")
	require.NoError(t, err)
	require.Equal(t, []tensor{{"b", safetensors.BF16, []int{16}, 16, 32}}, l.Tensors)
	_, err = list("owner/absent")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NotContains(t, err.Error(), "open owner/absent")
	_, err = list("checkpoint/absent.safetensors") // its ending is that of a file
	require.ErrorContains(t, err, "open checkpoint/absent.safetensors")
}

func TestNoTensors(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, safetensors.WriteFile("none.safetensors", nil, nil))
	var out bytes.Buffer
	require.NoError(t, run([]string{"-json", "none.safetensors"}, &out))
	require.Equal(t, `{"file":"none.safetensors","metadata":null,"tensors":[],"dtypes":[],"total":{"tensors":0,"parameters":0,"bytes":0}}`+"\n", out.String())
}

func TestSeveralFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, safetensors.WriteFile("a.safetensors", nil, nil))
	require.NoError(t, os.WriteFile("b.safetensors", []byte("version https://git-lfs.github.com/spec/v1\n"), 0o666))
	require.NoError(t, safetensors.WriteFile("c.safetensors", nil, nil))
	const none = `

NAME  DTYPE  SHAPE       BYTES

DTYPE  TENSORS         PARAMETERS       BYTES
total        0                  0         0 B
`
	var out bytes.Buffer
	err := run([]string{"a.safetensors", "b.safetensors", "c.safetensors", "d.safetensors"}, &out)
	require.Equal(t, "a.safetensors"+none+"\nc.safetensors"+none, out.String())
	require.ErrorContains(t, err, "b.safetensors")
	require.ErrorContains(t, err, "Git LFS pointer")
	require.ErrorContains(t, err, "d.safetensors")
	require.ErrorIs(t, err, fs.ErrNotExist)

	require.ErrorContains(t, run(nil, &out), "expected a model")
}

func TestHumanSize(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 999: "999 B", 1000: "1.00 kB", 1234: "1.23 kB", 9994: "9.99 kB", 9995: "10.0 kB",
		12345: "12.3 kB", 123456: "123 kB", 999_499: "999 kB", 999_500: "1.00 MB", 90_868_376: "90.9 MB",
		15_000_000_000: "15.0 GB", 1<<63 - 1: "9.22 EB",
	} {
		require.Equal(t, want, humanSize(n), "%d bytes", n)
	}
}

func TestPrintable(t *testing.T) {
	for s, want := range map[string]string{
		"model.layers.0": "model.layers.0",
		"größe 重み":       "größe 重み",
		`a\b "c"`:        `a\b "c"`,
		"":               `""`,
		`"a"`:            `"\"a\""`,
		"\u009b31m":      `"\u009b31m"`, // a control of the C1 set
		"\u202egpj.exe":  `"\u202egpj.exe"`,
		"\xff":           `"\xff"`,
		"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff": strings.Repeat("�", 20) + "…",
		"123456789012345678901": "12345678901234567890…",
	} {
		require.Equal(t, want, printable(s, 20), "%q", s)
	}
}
