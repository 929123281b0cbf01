//go:build !unix

package main

func limitFileSize() {}
