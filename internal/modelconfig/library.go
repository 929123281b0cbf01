package modelconfig

// A Library holds the fields of a config.json that identify the library for the weights beside it.
type Library struct {
	Type             string   `json:"model_type"`
	Class            string   `json:"_class_name"`
	DiffusersVersion any      `json:"_diffusers_version"`
	Architectures    []string `json:"architectures"`
	Architecture     any      `json:"architecture"`
}

// Timm returns the name of the model if timm saved the config, and "" otherwise. The config of a model of timm that
// transformers wraps has the name in the same field, but also a model_type.
func (l Library) Timm() string {
	if name, ok := l.Architecture.(string); ok && l.Type == "" && l.Class == "" {
		return name
	}
	return ""
}

// Diffusers and Transformers are the stems in the names of the files with weights that these libraries open.
var (
	Diffusers    = []string{"diffusion_pytorch_model"}
	Transformers = []string{"model", "pytorch_model"}
)

// Stems returns the stems in the names of the files that the library of the config opens, as own, and those in the names of the
// files that the other library opens, as others. Both are nil if the fields identify neither diffusers nor transformers. The
// caller must not modify them.
func (l Library) Stems() (own, others []string) {
	switch {
	case l.Class != "" && l.DiffusersVersion != nil && l.Type == "":
		return Diffusers, Transformers
	case len(l.Architectures) > 0 && l.Type != "" && l.Class == "":
		return Transformers, Diffusers
	}
	return nil, nil
}
