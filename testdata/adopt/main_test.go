package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestList(t *testing.T) { require.NoError(t, list("model.safetensors")) }
