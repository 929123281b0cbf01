// Sbom prints the bill of materials of a Go program, CycloneDX 1.6: what the Go tool
// chain has written into it, as go version -m shows it.
//
//	go run ./.ci/sbom PROGRAM
package main

import (
	"debug/buildinfo"
	"encoding/json"
	"log"
	"os"
)

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type component struct {
	Type       string     `json:"type"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	PURL       string     `json:"purl"`
	Properties []property `json:"properties,omitempty"`
}

// library describes a module. Its sum is that of go.sum.
func library(path, version, sum string) component {
	c := component{"library", path, version, "pkg:golang/" + path + "@" + version, nil}
	if sum != "" {
		c.Properties = []property{{"go:sum", sum}}
	}
	return c
}

func main() {
	log.SetFlags(0)
	info, err := buildinfo.ReadFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	program := library(info.Main.Path, info.Main.Version, info.Main.Sum)
	program.Type = "application"
	for _, s := range info.Settings {
		program.Properties = append(program.Properties, property{"go:build:" + s.Key, s.Value})
	}
	components := []component{library("std", info.GoVersion, "")}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		components = append(components, library(m.Path, m.Version, m.Sum))
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	err = out.Encode(map[string]any{
		"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
		"metadata":   map[string]any{"component": program},
		"components": components,
	})
	if err != nil {
		log.Fatal(err)
	}
}
