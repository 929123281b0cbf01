module github.com/gosafetensors/safetensors

go 1.24.0

require (
	github.com/stretchr/testify v1.9.0
	github.com/x448/float16 v0.8.4
	golang.org/x/exp v0.0.0-20220722155223-a9213eeb770e
	golang.org/x/sys v0.1.0
)

require (
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)
