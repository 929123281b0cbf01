// Hello prints a word. It links net/http, as every program that reads from a server does. Its run
// time is the lower limit to which BenchmarkStart compares the command.
package main

import (
	"fmt"
	_ "net/http"
)

func main() { fmt.Println("hello") }
