// This module is never tagged: its programs run in a clone, with the library that is there.
module github.com/gosafetensors/safetensors/mutate

go 1.25.0

require (
	github.com/stretchr/testify v1.12.1
	golang.org/x/sync v0.16.0
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect
