package variant

import (
	"fmt"
	"strings"
)

// List returns a list of names for a message. Each name appears as text returns it. If there are more
// than most names, the list ends with the number of the others, because an untrusted directory may
// have any number of names.
func List(names []string, most int, text func(name string) string) string {
	var texts []string
	for _, name := range names[:min(len(names), most)] {
		texts = append(texts, text(name))
	}
	if len(names) > most {
		texts = append(texts, fmt.Sprintf("%d more", len(names)-most))
	}
	return strings.Join(texts, ", ")
}
