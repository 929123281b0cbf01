// This module has no packages: it keeps the vectors out of the zip that users of the library download.
module github.com/gosafetensors/safetensors/quant/testdata

go 1.24
