package main

import (
	"bytes"
	"crypto/elliptic"
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the output of the commands into testdata and doc/command.md")

const repository = "../.."

// environment is that of all commands: no settings of the machine they run on.
func environment(t *testing.T, dir string) []string {
	if runtime.GOOS == "windows" {
		t.Skip("the scripts are those of a Unix shell")
	}
	bin := t.TempDir()
	require.NoError(t, os.Symlink(program, filepath.Join(bin, "safetensors")))
	return []string{
		asCommand + "=1", "REPOSITORY=" + must(filepath.Abs(repository)), "PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"),
		"HOME=" + dir, "TMPDIR=" + os.TempDir(), "LC_ALL=C.UTF-8", "TERM=dumb",
		"GOCACHE=" + goEnv("GOCACHE"), "GOMODCACHE=" + goEnv("GOMODCACHE"), "GOFLAGS=" + os.Getenv("GOFLAGS"),
		"GOPROXY=" + goEnv("GOPROXY"), "GOTOOLCHAIN=" + goEnv("GOTOOLCHAIN"),
	}
}

func goEnv(name string) string {
	out, _ := exec.Command("go", "env", name).Output()
	return strings.TrimSpace(string(out))
}

// replay runs the commands of a script, each on a line after "$ ", in a folder, and
// returns the script with what they print now.
func replay(t *testing.T, script, dir string, env []string) string {
	t.Helper()
	var out strings.Builder
	for line := range strings.Lines(script) {
		command, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "$ ")
		if !ok {
			continue
		}
		cmd := exec.Command("bash", "-c", command)
		cmd.Dir, cmd.Env = dir, env
		printed, err := cmd.CombinedOutput()
		if _, exited := err.(*exec.ExitError); err != nil && !exited {
			require.NoError(t, err)
		}
		out.WriteString("$ " + command + "\n")
		out.Write(printed)
		if len(printed) > 0 && !bytes.HasSuffix(printed, []byte("\n")) {
			out.WriteString("\n")
		}
	}
	return out.String()
}

// TestScripts runs testdata/*.txt, each in a folder of its own with the files of
// writeFiles, and compares what the commands print.
func TestScripts(t *testing.T) {
	scripts := must(filepath.Glob("testdata/*.txt"))
	require.NotEmpty(t, scripts)
	for _, name := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			want := must(os.ReadFile(name))
			dir := t.TempDir()
			env := environment(t, dir)
			writeFiles(t, dir)
			if prepare := preparations[filepath.Base(name)]; prepare != nil {
				env = append(env, prepare(t, dir)...)
			}
			got := replay(t, string(want), dir, env)
			if *update {
				require.NoError(t, os.WriteFile(name, []byte(got), 0o666))
				return
			}
			require.Equal(t, string(want), got)
			for _, r := range got { // nothing reaches a terminal that it would not print as itself
				if r != '\n' && (r < ' ' || 0x7f <= r && r < 0xa0 || 0x202a <= r && r <= 0x202e || 0x2066 <= r && r <= 0x2069) {
					require.Fail(t, "unprintable", "%q in %q", r, got)
				}
			}
		})
	}
}

// preparations are what some scripts need besides: files, and variables of the environment.
var preparations = map[string]func(t *testing.T, dir string) []string{
	"sign.txt":  func(t *testing.T, dir string) []string { writeModel(t, dir); return nil },
	"hub.txt":   prepareHub,
	"merge.txt": prepareTied,
	"words.txt": prepareWords, "everyday.txt": prepareWords,
	"ranks.txt": prepareRanks,
	"folders.txt": func(t *testing.T, dir string) []string {
		writeFolder(t, filepath.Join(dir, "repo"), 0)
		writeFolder(t, filepath.Join(dir, "other"), 7)
		return nil
	},
}

// prepareTied writes a model whose head is tied to its embeddings, and adapters that change either of them. It also writes
// a model of F16, and an adapter with which values of it are beyond the range.
func prepareTied(t *testing.T, dir string) []string {
	const embeddings = "model.embed_tokens.weight"
	write(t, filepath.Join(dir, "head/config.json"), `{"architectures":["LlamaForCausalLM"],"tie_word_embeddings":true}`)
	write(t, filepath.Join(dir, "saved/adapter_config.json"), `{"modules_to_save":["embed_tokens"]}`)
	write(t, filepath.Join(dir, "rows/adapter_config.json"), `{"trainable_token_indices":[1]}`)
	write(t, filepath.Join(dir, "update/adapter_config.json"), `{"r":1,"lora_alpha":1}`)
	write(t, filepath.Join(dir, "half/config.json"), `{"torch_dtype":"float16"}`)
	write(t, filepath.Join(dir, "large/adapter_config.json"), `{"r":1,"lora_alpha":60000}`)
	for folder, tensors := range map[string]map[string]safetensors.Tensor{
		"half/model.safetensors": {
			"a.weight": must(floats(t, []int{2, 2}, 60000, 1, 2, float32(math.Inf(1))).Convert(safetensors.F16)),
			"b.weight": must(floats(t, []int{1}, float32(math.Inf(1))).Convert(safetensors.F16)),
		},
		"large/adapter_model.safetensors": {
			"base_model.model.a.lora_A.weight": floats(t, []int{1, 2}, 1, 1), "base_model.model.a.lora_B.weight": floats(t, []int{2, 1}, 1, 0),
		},
		"head/model.safetensors":         {embeddings: counting(t, 3, 2)},
		"rows/adapter_model.safetensors": {"base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta": floats(t, []int{1, 2}, 20, 30)},
		"update/adapter_model.safetensors": {
			"base_model.model.lm_head.lora_A.weight": floats(t, []int{1, 2}, 1, 2), "base_model.model.lm_head.lora_B.weight": floats(t, []int{3, 1}, 0, 0, 10),
		},
		"saved/adapter_model.safetensors": {"base_model.model." + embeddings: floats(t, []int{3, 2}, 9, 8, 7, 6, 5, 4)},
	} {
		require.NoError(t, safetensors.WriteFile(filepath.Join(dir, folder), tensors, nil))
	}
	return nil
}

// consoleBlock is a block of commands in a page.
var consoleBlock = regexp.MustCompile("(?ms)^```console\n(.*?)^```$")

// inRepository matches commands that start in a folder of the repository.
var inRepository = regexp.MustCompile(`^\$ cd (cmd|dcp|torch)/`)

// replayPage runs every command line of a page in a folder and compares the output.
func replayPage(t *testing.T, name, dir string, env ...string) (page string, blocks int) {
	t.Helper()
	name = filepath.Join(repository, "doc", name)
	want := must(os.ReadFile(name))
	got := consoleBlock.ReplaceAllStringFunc(string(want), func(block string) string {
		blocks++
		script := strings.TrimSuffix(strings.TrimPrefix(block, "```console\n"), "```")
		where := dir
		if inRepository.MatchString(script) {
			where = repository
		}
		return "```console\n" + replay(t, script, where, append(environment(t, dir), env...)) + "```"
	})
	if *update {
		require.NoError(t, os.WriteFile(name, []byte(got), 0o666))
		return got, blocks
	}
	require.Equal(t, string(want), got)
	return got, blocks
}

// TestPage runs doc/command.md, in one folder that starts with
// testdata/model.safetensors and an adapter for it.
func TestPage(t *testing.T) {
	dir := t.TempDir()
	model := must(os.ReadFile(filepath.Join(repository, "testdata", "model.safetensors")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors"), model, 0o666))
	require.NoError(t, os.CopyFS(filepath.Join(dir, "adapter"), os.DirFS(filepath.Join("testdata", "adapter"))))
	page, blocks := replayPage(t, "command.md", dir)
	require.Greater(t, blocks, 9)
	root := new(command)
	root.opener = new(source.Opener)
	for _, verb := range root.whole().Commands() {
		if slices.Contains([]string{"version", "sources", "help"}, verb.Name()) {
			continue // they read nothing
		}
		require.Contains(t, page, "\n$ safetensors "+verb.Name()+" ", "the page shows every verb")
		if strings.Contains(verb.Use, "--json") {
			require.NotNil(t, verb.Flags().Lookup("json"), "%s names --json, so root has to give it that flag", verb.Name())
		}
	}
}

// TestIntegrityPage runs doc/integrity.md, with a model in shards and its hub.
func TestIntegrityPage(t *testing.T) {
	dir := t.TempDir()
	writeShards(t, filepath.Join(dir, "model"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model", "config.json"), []byte("{}\n"), 0o666))
	published := t.TempDir()
	require.NoError(t, os.CopyFS(published, os.DirFS(filepath.Join(dir, "model"))))
	write(t, filepath.Join(published, "README.md"), "")
	url, _ := startHub(t, published)
	_, blocks := replayPage(t, "integrity.md", dir, "HF_ENDPOINT="+url, "HF_TOKEN=token")
	require.Greater(t, blocks, 3)
}

// tensorOfData returns a tensor of a dtype that is given as bytes.
func tensorOfData(t testing.TB, d safetensors.DType, shape []int, data ...byte) safetensors.Tensor {
	t.Helper()
	return must(safetensors.NewTensor(d, shape, data))
}

func floats(t testing.TB, shape []int, values ...float32) safetensors.Tensor {
	t.Helper()
	return must(safetensors.NewTensor(safetensors.F32, shape, values))
}

// counting returns a tensor of the numbers from 0 on.
func counting(t testing.TB, shape ...int) safetensors.Tensor {
	n := 1
	for _, size := range shape {
		n *= size
	}
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(i)
	}
	return floats(t, shape, values...)
}

// writeFiles writes the files that the scripts use.
func writeFiles(t *testing.T, dir string) {
	raw := func(name, content string) { write(t, filepath.Join(dir, name), content) }
	write := func(name string, tensors map[string]safetensors.Tensor, metadata map[string]string) {
		require.NoError(t, safetensors.WriteFile(filepath.Join(dir, name), tensors, metadata))
	}
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	a := map[string]safetensors.Tensor{
		"embed.weight":          counting(t, 4, 3),
		"layers.0.norm.weight":  floats(t, []int{3}, 1, 0.5, 0.25),
		"layers.0.mlp.weight":   floats(t, []int{2, 2}, 0.1, -0.2, 1e-5, 300),
		"layers.1.mlp.weight":   floats(t, []int{2, 2}, nan, inf, -inf, 0),
		"layers.10.mlp.weight":  tensorOfData(t, safetensors.BF16, []int{2}, 0x80, 0x3f, 0x00, 0xc0),
		"step":                  tensorOfData(t, safetensors.I64, nil, 0xe8, 3, 0, 0, 0, 0, 0, 0),
		"mask":                  tensorOfData(t, safetensors.BOOL, []int{3}, 1, 0, 1),
		"experts.blocks":        tensorOfData(t, safetensors.F4, []int{2, 4}, 0x10, 0x32, 0x54, 0x76),
		"experts.scales":        tensorOfData(t, safetensors.F8_E8M0, []int{2}, 127, 255),
		"empty":                 tensorOfData(t, safetensors.F16, []int{0, 7}),
		"rotary":                tensorOfData(t, safetensors.C64, []int{1}, 0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0),
		"layers.0.attn.q.bias":  tensorOfData(t, safetensors.F8_E4M3, []int{2}, 0x38, 0x7f),
		"layers.0.attn.k.codes": tensorOfData(t, safetensors.U8, []int{2}, 1, 255),
	}
	write("a.safetensors", a, map[string]string{"format": "pt", "note": strings.Repeat("never ends ", 10)})
	b := map[string]safetensors.Tensor{
		"embed.weight":         counting(t, 4, 3),
		"layers.0.norm.weight": floats(t, []int{3}, 1, 0.5, 0.25),
		"layers.0.mlp.weight":  floats(t, []int{2, 2}, 0.1, -0.2, 1.1e-5, 301),
		"layers.1.mlp.weight":  floats(t, []int{2, 2}, nan, inf, inf, float32(math.Copysign(0, -1))),
		"layers.10.mlp.weight": floats(t, []int{2}, 1, -2),
		"step":                 tensorOfData(t, safetensors.I64, []int{1}, 0xe8, 3, 0, 0, 0, 0, 0, 0),
		"new":                  counting(t, 2),
	}
	write("b.safetensors", b, map[string]string{"format": "mlx"})
	write("adapter.safetensors", map[string]safetensors.Tensor{"adapter.weight": counting(t, 2)}, map[string]string{"format": "np", "rank": "8"})
	write("hostile.safetensors", hostile(t), map[string]string{
		"\x1b]0;title\a": "\x1b[2J", "ok": "a\tb", "rtl": "\u202egpj.exe", "long": strings.Repeat("x", 500),
	})
	write("other.safetensors", map[string]safetensors.Tensor{"\x1b[31mred\n": tensorOfData(t, safetensors.U8, []int{1}, 9)}, nil)
	require.NoError(t, safetensors.WriteShards(filepath.Join(dir, "shards"), map[string]safetensors.Tensor{
		"x": counting(t, 8), "y": counting(t, 8), "z": counting(t, 2),
	}, map[string]string{"format": "pt"}, 40))
	write("overflow.safetensors", overflowing(t), nil)
	writeKeys(t, filepath.Join(dir, "key"), elliptic.P256())
	writeKeys(t, filepath.Join(dir, "other"), elliptic.P384())
	one := counting(t, 2)
	write("tied.safetensors", map[string]safetensors.Tensor{"b": one, "a": one}, nil)

	raw("peft/adapter_config.json", `{"peft_type":"LORA","r":1,"lora_alpha":1}`)
	raw("fp8/config.json", `{"model_type":"llama","quantization_config":{"quant_method":"fp8","weight_block_size":[128,128]}}`)
	write("fp8/model.safetensors", map[string]safetensors.Tensor{
		"mlp.weight":           tensorOfData(t, safetensors.F8_E4M3, []int{2, 4}, 0x38, 0x40, 0x44, 0x48, 0xb8, 0x30, 0, 0x7e),
		"mlp.weight_scale_inv": floats(t, []int{1, 1}, 0.5),
		"norm.weight":          tensorOfData(t, safetensors.BF16, []int{2}, 0x80, 0x3f, 0x00, 0xc0),
	}, map[string]string{"format": "pt"})
	for i, model := range [][2]float32{{0.1, 1}, {0.1, 3}, {0.2, 3}, {1e-9, 1}, {1e9, 1}} { // a scale, and a plain number
		folder := fmt.Sprint("scales", i+1)
		raw(folder+"/config.json", `{"torch_dtype":"float32","quantization_config":{"quant_method":"fp8","weight_block_size":[128,128]}}`)
		write(folder+"/model.safetensors", map[string]safetensors.Tensor{
			"a.weight":           tensorOfData(t, safetensors.F8_E4M3, []int{1, 2}, 0x38, 0x40),
			"a.weight_scale_inv": floats(t, []int{1, 1}, model[0]),
			"norm.weight":        floats(t, []int{1}, model[1]),
		}, nil)
	}
	write("peft/adapter_model.safetensors", map[string]safetensors.Tensor{
		"base_model.model.a.lora_A.weight": floats(t, []int{1, 2}, 1, 2), "base_model.model.a.lora_B.weight": floats(t, []int{1, 1}, 1),
	}, nil)
	write("comfyui.safetensors", map[string]safetensors.Tensor{
		"a.weight":       tensorOfData(t, safetensors.F8_E4M3, []int{1, 2}, 0x38, 0x40),
		"a.weight_scale": floats(t, []int{}, 2),
		"a.input_scale":  floats(t, []int{}, 3),
		"b.weight":       tensorOfData(t, safetensors.F8_E4M3, []int{1, 2}, 0x38, 0x40),
	}, map[string]string{"format": "pt", "_quantization_metadata": `{"format_version":"1.0","layers":{"a":{"format":"float8_e4m3fn"}}}`})
	raw("torchao/config.json", `{"quantization_config":{"quant_method":"torchao"}}`)
	write("torchao/model.safetensors", map[string]safetensors.Tensor{"x.weight": tensorOfData(t, safetensors.I8, []int{1, 1}, 7)}, nil)

	write("deep.safetensors", map[string]safetensors.Tensor{
		"ones": counting(t, slices.Repeat([]int{1}, 65)...), "twos": counting(t, slices.Repeat([]int{2}, 17)...),
	}, nil)

	header := func(text string, data int) string {
		return string(binary.LittleEndian.AppendUint64(nil, uint64(len(text)))) + text + strings.Repeat("\x00", data)
	}
	good := header(`{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 8)
	raw("bad/good.safetensors", good)
	raw("bad/truncated.safetensors", good[:len(good)-3])
	raw("bad/sub/shape.safetensors", header("{\"\u001b[1mx\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", 8))
	raw("bad/sub/escaped.safetensors", header(`{"\u001b[1mx":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}`, 8))
	raw("bad/pointer.safetensors", "version https://git-lfs.github.com/spec/v1\n")
	raw("bad/model.safetensors.index.json", `{"weight_map":{"x":"good.safetensors","y":"absent.safetensors"}}`)
	raw("bad/config.json", `{}`)
	if runtime.GOOS != "windows" { // whose files have no such names
		raw("bad/\x1b[31mname.safetensors", "x")
	}
}

// hostile returns tensors whose names try to reach the terminal or another file.
func hostile(t testing.TB) map[string]safetensors.Tensor {
	tensors := make(map[string]safetensors.Tensor)
	for i, name := range []string{
		"", "\x1b[31mred\n", "\u202egpj.exe", "\u2066isolate", "../../etc/passwd", "/etc/passwd", "a\tb", "\u009b31m",
		`"quoted"`, `back\slash`, "größe 重み", "a..b", ".", "\x00", "s3://x/y", "%s%n", strings.Repeat("long.", 100),
	} {
		tensors[name] = tensorOfData(t, safetensors.U8, []int{1}, byte(i))
	}
	return tensors
}
