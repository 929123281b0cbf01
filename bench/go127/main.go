//go:build go1.27

// Go127 is the contestant with encoding/json of Go 1.27, and with its version 2: it does
// a task n times and says how long that took, as the one in Rust does.
//
// It reads requests from stdin, "TASK \t N \t FILE", and answers each with the
// nanoseconds of all N runs together.
package main

import (
	"bufio"
	"encoding/binary"
	jsonv1 "encoding/json"
	"encoding/json/v2"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

type entry struct {
	DType       string   `json:"dtype"`
	Shape       []int    `json:"shape"`
	DataOffsets [2]int64 `json:"data_offsets"`
}

func main() {
	ballast := make([]byte, 64_000_000) // as the Go heap of all contestants
	var task string
	var run func() error
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Split(lines.Text(), "\t")
		n, err := strconv.Atoi(words[1])
		if key := words[0] + words[2]; key != task && err == nil {
			task = key
			run, err = prepare(words[0], words[2])
		}
		start := time.Now()
		for ; n > 0 && err == nil; n-- {
			err = run()
		}
		if err != nil {
			fmt.Printf("error: %q\n", err)
			continue
		}
		fmt.Println(time.Since(start).Nanoseconds())
	}
	runtime.KeepAlive(ballast)
}

func prepare(task, name string) (run func() error, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var length [8]byte
	if _, err := f.ReadAt(length[:], 0); err != nil {
		return nil, err
	}
	header := make([]byte, binary.LittleEndian.Uint64(length[:]))
	if _, err := f.ReadAt(header, 8); err != nil {
		return nil, err
	}
	marshal, unmarshal := jsonv1.Marshal, jsonv1.Unmarshal
	task, isV2 := strings.CutSuffix(task, "-v2")
	if isV2 {
		marshal = func(table any) ([]byte, error) { return json.Marshal(table) }
		unmarshal = func(b []byte, table any) error { return json.Unmarshal(b, table) }
	}
	parse := func() (table map[string]entry, err error) {
		err = unmarshal(header, &table)
		delete(table, "__metadata__")
		return table, err
	}
	switch task {
	case "parse":
		return func() error { _, err := parse(); return err }, nil
	case "encode":
		table, err := parse()
		return func() error { _, err := marshal(table); return err }, err
	}
	return nil, errors.New("unknown task " + task)
}
