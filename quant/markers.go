package quant

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/parallel"
)

const maxState = 1 << 16 // largest size in bytes of the JSON in a tensor; a few hundred bytes are usual

// readSection parses the JSON in a tensor of bytes. The errors of the section begin with the text
// where.
func readSection(where string, t safetensors.Tensor) *section {
	s := &section{where: where}
	if t.DType() != safetensors.U8 || t.Size() > maxState {
		s.fail("%v is not JSON of at most %d bytes", t, maxState)
	}
	text, err := safetensors.Append[byte](nil, t)
	s.check(asRead(err))
	s.check(json.Unmarshal(text, &s.members))
	return s
}

const readers = 16 // number of modules whose markers or shapes are read concurrently; these are a few bytes each

// readMarkers reads the markers of ComfyUI, each of which specifies how its module is quantised.
func (c *config) readMarkers(tensors map[string]safetensors.Tensor, names []string) error {
	const suffix = ".comfy_quant"
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !strings.HasSuffix(name, suffix) })
	if len(names) > 0 && c.method != "" && c.method != comfy {
		return fmt.Errorf("tensor %s: a marker of ComfyUI, though the config specifies quant_method %s", quote(names[0]), quote(c.named))
	}
	var mu sync.Mutex
	return parallel.Do(readers, int64(len(names)), func(i int64) (err error) {
		var s *section
		why, err := attempt(func() { s = readSection(fmt.Sprintf("tensor %s: ", quote(names[i])), tensors[names[i]]) })
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if why != nil {
			c.method, c.named, c.strange[strings.TrimSuffix(names[i], suffix)] = comfy, comfy, why
			return nil
		}
		c.mark(strings.TrimSuffix(names[i], suffix), s)
		return nil
	})
}

// mark takes the marker of a module. If the marker cannot be used, mark records the reason.
func (c *config) mark(module string, s *section) {
	c.method, c.named = comfy, comfy
	why, _ := attempt(func() { c.takeMarker(module, s) })
	if why != nil {
		c.strange[module] = why
	}
}

func (c *config) takeMarker(module string, s *section) {
	format := take[string](s, "format")
	s.oneOf("format", format, c.formatsOf(comfy)...)
	if format == "int8_tensorwise" {
		if perRow := take[*bool](s, "per_row"); perRow != nil {
			c.perRow[module] = *perRow
		}
	}
	s.end("full_precision_matrix_mult")
	c.markers[module] = format
}
