module github.com/gosafetensors/safetensors/bench

go 1.24.0

replace github.com/gosafetensors/safetensors => ../

require (
	github.com/gosafetensors/safetensors v0.0.0-00010101000000-000000000000
	github.com/stretchr/testify v1.12.1
	github.com/x448/float16 v0.8.4
	golang.org/x/sys v0.41.0
)

require (
	github.com/aclements/go-moremath v0.0.0-20210112150236-f10218a38794 // indirect
	github.com/edsrzf/mmap-go v1.2.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/exp v0.0.0-20260209203927-2842357ff358 // indirect
)

require (
	github.com/maruel/safetensors v1.2.0
	github.com/nlpodyssey/safetensors v0.0.0-20250209183917-bfb01cc25f7c
	golang.org/x/perf v0.0.0-20250813145418-2f7363a06fe1
)
