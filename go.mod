module github.com/gosafetensors/safetensors

go 1.24.0

require (
	github.com/stretchr/testify v1.12.1
	github.com/x448/float16 v0.8.4
	golang.org/x/exp v0.0.0-20260209203927-2842357ff358
	golang.org/x/sys v0.41.0
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect
