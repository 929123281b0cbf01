// This module is never tagged: its programs run in a clone, with the library that is there.
module github.com/gosafetensors/safetensors/examples/frameworks

go 1.24.3

replace github.com/gosafetensors/safetensors => ../..

require (
	github.com/gomlx/gomlx v0.26.0
	github.com/gosafetensors/safetensors v0.0.0-00010101000000-000000000000
	github.com/stretchr/testify v1.12.1
	gonum.org/v1/gonum v0.17.0
)

require (
	github.com/go-logr/logr v1.4.3 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/x448/float16 v0.8.4 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/exp v0.0.0-20260209203927-2842357ff358 // indirect
	golang.org/x/sys v0.41.0 // indirect
	k8s.io/klog/v2 v2.130.1 // indirect
)
