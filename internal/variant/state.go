package variant

import "slices"

// stateName returns the pattern of the names that the Trainer of transformers and save_state of accelerate give to the
// files of a training job other than its model.
var stateName = lazily(`^(?:training_args\.bin|(?:optimizer|scheduler|scaler)\.pt|(?:optimizer|scheduler|sampler|dl_state_dict)(?:_\d{1,9})?\.bin|rng_state(?:_\d{1,9})?\.pth)$`)

// IsState reports whether a file with this name holds the state of a training job, such as that of its optimizer, and
// not a model.
func IsState(name string) bool { return stateName().MatchString(name) }

// TorchModels returns the names under which transformers, peft and diffusers save models with torch.save, in their order of
// precedence. Such a file takes precedence over files of ranks and of other formats in its directory.
func TorchModels() []string {
	return []string{"pytorch_model.bin", "pytorch_model.bin.index.json", "adapter_model.bin", "diffusion_pytorch_model.bin", "diffusion_pytorch_model.bin.index.json"}
}

// IsTorchModel reports whether a name is one of TorchModels.
func IsTorchModel(name string) bool { return slices.Contains(TorchModels(), name) }
