// Adopt is a program that uses the package, as one outside of this repository does.
package main

import (
	"fmt"
	"log"
	"os"

	"golang.org/x/sys/cpu"
)

func main() {
	if err := list(os.Args[1]); err != nil {
		log.Fatal(err)
	}
	fmt.Println("AVX2:", cpu.X86.HasAVX2)
}
