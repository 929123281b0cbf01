// Hello prints a word. It links net/http, as every program does that reads from a server: how fast it
// starts and ends is the limit of BenchmarkStart.
package main

import (
	"fmt"
	_ "net/http"
)

func main() { fmt.Println("hello") }
