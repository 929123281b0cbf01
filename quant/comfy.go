package quant

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/parallel"
	"github.com/gosafetensors/safetensors/internal/prefix"
)

// maxState limits the JSON in a tensor. Some hundred bytes are usual.
const maxState = 1 << 16

// readMarkers reads the markers of ComfyUI, which say how their modules are quantised.
func (c *config) readMarkers(tensors map[string]safetensors.Tensor, names []string) error {
	const suffix = ".comfy_quant"
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !strings.HasSuffix(name, suffix) })
	if len(names) > 0 && c.method != "" && c.method != comfy {
		return fmt.Errorf("tensor %s: a marker of ComfyUI, though the config says quant_method %s", quote(names[0]), quote(c.named))
	}
	var mu sync.Mutex
	return parallel.Do(readers, int64(len(names)), func(i int64) (err error) {
		defer catch(&err)
		text, err := readJSON(tensors[names[i]])
		if err != nil {
			refuse(names[i], "%w", prefix.Strip(err))
		}
		mu.Lock()
		defer mu.Unlock()
		c.mark(strings.TrimSuffix(names[i], suffix), newSection(fmt.Sprintf("tensor %s: ", quote(names[i])), text))
		return nil
	})
}

// mark reads the marker of a module.
func (c *config) mark(module string, s *section) {
	format := take[string](s, "format")
	s.oneOf("format", format, formatsOf(comfy)...)
	s.end("full_precision_matrix_mult")
	if c.markers == nil {
		c.method, c.named, c.markers = comfy, comfy, map[string]string{}
	}
	c.markers[module] = format
}

// readJSON reads the JSON in a tensor of bytes.
func readJSON(t safetensors.Tensor) ([]byte, error) {
	if t.DType() != safetensors.U8 {
		return nil, fmt.Errorf("%v does not hold JSON", t)
	}
	if n := t.Size(); n > maxState {
		return nil, fmt.Errorf("%d bytes, more than %d", n, maxState)
	}
	return safetensors.Append[byte](nil, t)
}
