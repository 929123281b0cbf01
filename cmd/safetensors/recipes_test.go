package main

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestPageOfRecipes runs doc/recipes.md: its command lines, and its blocks of Go as bodies of funcs
// of one program. All run in one directory, next to a hub and a web server.
func TestPageOfRecipes(t *testing.T) {
	dir := t.TempDir()
	url := prepareRecipes(t, dir)
	hub := []string{"HF_ENDPOINT=" + url, "HF_TOKEN=token"}
	_, blocks := replayPage(t, "recipes.md", dir, hub...)
	name := filepath.Join(repository, "doc", "recipes.md")
	page := string(must(os.ReadFile(name)))

	bodies := goBlock.FindAllStringSubmatch(page, -1)
	require.Equal(t, 20, blocks+len(bodies), "the page says twenty")
	outputs := runBodies(t, bodies, dir, append(hub, "URL="+url+"/whole.safetensors"))
	require.Len(t, outputs, len(bodies))
	got := goBlock.ReplaceAllStringFunc(page, func(block string) string {
		body := goBlock.FindStringSubmatch(block)[1]
		output := outputs[0]
		outputs = outputs[1:]
		return "```go\n" + body + "```\n\n```text\n" + output + "```"
	})
	if *update {
		require.NoError(t, os.WriteFile(name, []byte(got), 0o666))
		return
	}
	require.Equal(t, page, got)
}

// goBlock is a block of Go in a page, followed by what it prints.
var goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```\n\n```text\n(.*?)^```$")

// packagesOfRecipes are those that blocks of Go may use, by name.
var packagesOfRecipes = map[string]string{
	"zip": "archive/zip", "fmt": "fmt", "os": "os", "filepath": "path/filepath", "slices": "slices",
	"safetensors": "github.com/gosafetensors/safetensors",
	"hub":         "github.com/gosafetensors/safetensors/hub",
	"remote":      "github.com/gosafetensors/safetensors/remote",
}

// endOfRecipe separates what the recipes print.
const endOfRecipe = "-- end of the recipe --\n"

// recipesProgram makes what the blocks of Go only refer to, and calls each of them.
const recipesProgram = `
var (
	ctx        = context.Background()
	url        = os.Getenv("URL")
	a, b       = open("model.safetensors"), open("tuned.safetensors")
	tensors    = maps.Collect(a.Tensors())
	embeddings = tensors["model.embed_tokens.weight"]
)

func open(name string) *safetensors.File {
	f, err := safetensors.Open(name)
	if err != nil {
		panic(err)
	}
	return f
}

func main() {
	for _, recipe := range recipes {
		if err := recipe(); err != nil {
			fmt.Println("error:", err)
		}
		fmt.Print(endOfRecipe)
	}
}
`

// runBodies runs the bodies as funcs of a program in this module, which is on no disk, and returns
// what each of them prints.
func runBodies(t *testing.T, bodies [][]string, dir string, env []string) (outputs []string) {
	imports := map[string]bool{"context": true, "fmt": true, "maps": true, "os": true, packagesOfRecipes["safetensors"]: true}
	var funcs strings.Builder
	for _, body := range bodies {
		for name, path := range packagesOfRecipes {
			if regexp.MustCompile(`\b` + name + `\.[A-Z]`).MatchString(body[1]) {
				imports[path] = true
			}
		}
		fmt.Fprintf(&funcs, "func() error {\n%s\nreturn nil\n},\n", body[1])
	}
	program := "package main\n"
	for path := range imports {
		program += fmt.Sprintf("import %q\n", path)
	}
	program += fmt.Sprintf("const endOfRecipe = %q\n%s\nvar recipes = []func() error{\n%s}\n", endOfRecipe, recipesProgram, &funcs)

	temp := t.TempDir()
	file, overlay, binary := filepath.Join(temp, "main.go"), filepath.Join(temp, "overlay.json"), filepath.Join(temp, "recipes")
	write(t, file, program)
	replaced := map[string]string{filepath.Join(must(filepath.Abs(repository)), "doc", "recipes", "main.go"): file}
	write(t, overlay, string(must(json.Marshal(map[string]any{"Replace": replaced}))))
	build := exec.Command("go", "build", "-overlay", overlay, "-o", binary, "./doc/recipes")
	build.Dir = repository
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	run := exec.Command(binary)
	run.Dir, run.Env = dir, env
	out, err = run.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return strings.Split(strings.TrimSuffix(string(out), endOfRecipe), endOfRecipe)
}

// prepareRecipes writes the files that the recipes have, and serves a model as the repository
// owner/name of a hub and a file by itself.
func prepareRecipes(t *testing.T, dir string) (url string) {
	t.Helper()
	environment(t, dir) // or the test is skipped
	for report, names := range map[string]map[string]string{
		"merged-folder":                   {"base": "llama", "ad": "adapter"},
		"shards-without-an-index":         {"s": "lost"},
		"folder-of-sentence-transformers": {"st": "embedder"},
		"rank-files-of-torch-save":        {"ranks": "ranks"},
		"mxfp8-of-modelopt":               {"m": "llama-fp8"},
		"metadata-without-format":         {"m.bin": "pytorch_model.bin"},
	} {
		unpacked := t.TempDir()
		unpack(t, filepath.Join("testdata", "reports", "cases.tar.gz"), report, unpacked)
		for from, to := range names {
			require.NoError(t, os.Rename(filepath.Join(unpacked, from), filepath.Join(dir, to)))
		}
	}
	model := must(os.ReadFile(filepath.Join(repository, "testdata", "model.safetensors")))
	write(t, filepath.Join(dir, "model.safetensors"), string(model))
	var archive bytes.Buffer
	z := zip.NewWriter(&archive)
	_, err := must(z.Create("model.safetensors")).Write(model)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	write(t, filepath.Join(dir, "model.zip"), archive.String())

	f := must(safetensors.Open(filepath.Join(dir, "model.safetensors")))
	defer f.Close()
	tensors := maps.Collect(f.Tensors())
	const changed = "model.layers.0.self_attn.q_proj.weight"
	values := must(safetensors.Append[float32](nil, tensors[changed]))
	values[0], values[1] = values[0]+0.01, values[1]-0.01
	tensors[changed] = must(floats(t, tensors[changed].Shape(), values...).Convert(safetensors.BF16))
	delete(tensors, "model.position_ids")
	require.NoError(t, safetensors.WriteFile(filepath.Join(dir, "tuned.safetensors"), tensors, f.Metadata()))

	published := t.TempDir()
	require.NoError(t, safetensors.WriteShards(published, maps.Collect(f.Tensors()), f.Metadata(), 20_000))
	write(t, filepath.Join(published, "config.json"), "{}")
	write(t, filepath.Join(published, "whole.safetensors"), string(model))
	url, _ = startHub(t, published)
	return url
}
