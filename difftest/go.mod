// This module is never tagged: its programs run in a clone, with the library that is there.
module github.com/gosafetensors/safetensors/difftest

go 1.24.0

replace github.com/gosafetensors/safetensors => ../

require (
	github.com/gosafetensors/safetensors v0.0.0-00010101000000-000000000000
	github.com/maruel/safetensors v1.2.0
	github.com/nlpodyssey/safetensors v0.0.0-20250209183917-bfb01cc25f7c
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/edsrzf/mmap-go v1.2.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/exp v0.0.0-20220722155223-a9213eeb770e // indirect
	golang.org/x/sys v0.27.0 // indirect
)
