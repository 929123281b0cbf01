package variant

// stateName returns the pattern of the names that the Trainer of transformers and save_state of accelerate give to the
// files of a training job other than its model.
var stateName = lazily(`^(?:training_args\.bin|(?:optimizer|scheduler|scaler)\.pt|(?:optimizer|scheduler|sampler|dl_state_dict)(?:_\d{1,9})?\.bin|rng_state(?:_\d{1,9})?\.pth)$`)

// IsState reports whether a file with this name holds the state of a training job, such as that of its optimizer, and
// not a model.
func IsState(name string) bool { return stateName().MatchString(name) }

// IsTorchModel reports whether transformers, peft or diffusers saves a model with torch.save under this name. Such a
// file takes precedence over files of ranks and of other formats in its directory.
func IsTorchModel(name string) bool {
	switch name {
	case "pytorch_model.bin", "pytorch_model.bin.index.json", "adapter_model.bin",
		"diffusion_pytorch_model.bin", "diffusion_pytorch_model.bin.index.json":
		return true
	}
	return false
}
