package main

import (
	"encoding/binary"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
)

// The small files are all files whose header has at most a few members of smallMembers, or
// one entry with at most a few fields of smallFields, each before a data buffer of every
// size up to maxSmallData. Where a rule is about one member, about two, or about three of
// them in any order, one of these files breaks it.

const (
	maxSmallData = 3 // bytes; files have every size from 0 on
	maxSmall     = 3 // members of a header, fields of an entry
)

// entryOf returns an entry with a dtype, a shape and data offsets, each as JSON.
func entryOf(dtype, shape, offsets string) string {
	return `{"dtype":` + dtype + `,"shape":` + shape + `,"data_offsets":` + offsets + `}`
}

// smallNames are the names of tensors in small files, as they are spelled there. The second
// one is the first one again.
var smallNames = []string{`"a"`, `"\u0061"`, `"b"`, `"c"`, `""`}

// smallLayouts are the places of tensors in a data buffer of up to three bytes: shapes of U8,
// and their data offsets.
var smallLayouts = [][2]string{
	{`[0]`, `[0,0]`}, {`[1]`, `[0,1]`}, {`[2]`, `[0,2]`}, {`[0,5]`, `[1,1]`},
	{`[1]`, `[1,2]`}, {`[1,2]`, `[1,3]`}, {`[]`, `[2,3]`}, {`[0]`, `[3,3]`},
}

// smallEntries are entries of every kind, sound and broken.
var smallEntries = []string{
	// Dtypes.
	entryOf(`"F4"`, `[2]`, `[0,1]`), entryOf(`"F4"`, `[1]`, `[0,0]`), entryOf(`"F4"`, `[3]`, `[0,2]`), entryOf(`"F6_E2M3"`, `[4]`, `[0,3]`),
	entryOf(`"F6_E3M2"`, `[2]`, `[0,1]`), entryOf(`"BF16"`, `[1]`, `[0,2]`), entryOf(`"BF16"`, `[1]`, `[1,3]`), entryOf(`"BOOL"`, `[]`, `[0,1]`),
	entryOf(`"F5"`, `[1]`, `[0,1]`), entryOf(`"u8"`, `[1]`, `[0,1]`), entryOf(`{"U8":null}`, `[1]`, `[0,1]`), entryOf(`null`, `[1]`, `[0,1]`),
	entryOf(`"\u00558"`, `[1]`, `[0,1]`),
	// Shapes.
	entryOf(`"U8"`, `[1.0]`, `[0,1]`), entryOf(`"U8"`, `[-0]`, `[0,0]`), entryOf(`"U8"`, `[01]`, `[0,1]`), entryOf(`"U8"`, `[9223372036854775808,0]`, `[0,0]`),
	entryOf(`"U8"`, `[4294967296,4294967296,0]`, `[0,0]`), entryOf(`"U8"`, `[0,4294967296,4294967296]`, `[0,0]`), entryOf(`"U8"`, `[2305843009213693952]`, `[0,0]`),
	entryOf(`"U8"`, `null`, `[0,1]`), entryOf(`"U8"`, `{}`, `[0,1]`), entryOf(`"U8"`, `[1,]`, `[0,1]`),
	// Data offsets.
	entryOf(`"U8"`, `[1]`, `[1,0]`), entryOf(`"U8"`, `[1]`, `[0,1,2]`), entryOf(`"U8"`, `[1]`, `[0]`), entryOf(`"U8"`, `[1]`, `[0,1e0]`),
	entryOf(`"U8"`, `[1]`, `[0,"1"]`), entryOf(`"U8"`, `[9223372036854775807]`, `[1,9223372036854775808]`), entryOf(`"U8"`, `[0]`, `[18446744073709551615,18446744073709551615]`),
	// Others.
	`["U8",[1],[0,1]]`, `["U8",[1]]`, `[]`, `{}`, `null`, `0`, `"U8"`,
	`{"data_offsets":[0,1],"x":[{"y":null}],"shape":[1],"dtype":"U8"}`, ` { "dtype" : "U8" , "shape" : [ 1 ] , "data_offsets" : [ 0 , 1 ] } `,
	`{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}`, `{"dtype":"U8","shape":[1],"data_offsets":[0,1],}`,
}

// smallMetadata are values of __metadata__.
var smallMetadata = []string{
	`{}`, `null`, `{"k":"v"}`, `{"k":"v","l":"\u0000"}`, `{"k":"v","k":"w"}`, `{"k":"v","\u006b":"v"}`, `{"k":1}`, `{"k":null}`, `[]`, `""`,
	entryOf(`"U8"`, `[1]`, `[0,1]`),
}

// smallOthers are members that are not a pair of a name and a value, or whose name is broken.
var smallOthers = []string{
	``, ` `, `"a"`, `"a":`, `0:{}`, `a:{}`, `"a" {}`, `"a":{}}`, `"a":{},"`,
	`"\ud800":` + entryOf(`"U8"`, `[0]`, `[0,0]`), `"\ud83d\ude00":` + entryOf(`"U8"`, `[0]`, `[0,0]`), "\"\xff\":" + entryOf(`"U8"`, `[0]`, `[0,0]`),
	"\"\n\":" + entryOf(`"U8"`, `[0]`, `[0,0]`), `"\u0000":` + entryOf(`"U8"`, `[0]`, `[0,0]`), `"__metadata__ ":` + entryOf(`"U8"`, `[0]`, `[0,0]`),
}

// smallMembers are members of a header.
var smallMembers = func() (all []string) {
	for _, name := range smallNames {
		for _, l := range smallLayouts {
			all = append(all, name+":"+entryOf(`"U8"`, l[0], l[1]))
		}
	}
	for _, entry := range smallEntries {
		all = append(all, `"a":`+entry)
	}
	for _, metadata := range smallMetadata {
		all = append(all, `"__metadata__":`+metadata)
	}
	all = append(all, `"\u005f_metadata__":{"k":"v"}`)
	return append(all, smallOthers...)
}()

// smallFields are fields of an entry.
var smallFields = []string{
	`"dtype":"U8"`, `"dtype":"F4"`, `"dtype":"BF16"`, `"dtype":"U9"`, `"dtype":{"U8":null}`, `"dtype":null`, `"\u0064type":"U8"`,
	`"shape":[1]`, `"shape":[]`, `"shape":[2]`, `"shape":[0]`, `"shape":[1.0]`, `"shape":null`, ` "shape" : [ 1 ] `,
	`"data_offsets":[0,1]`, `"data_offsets":[0,0]`, `"data_offsets":[0,2]`, `"data_offsets":[1,1]`, `"data_offsets":[0]`, `"data_offsets":[0,1.0]`,
	`"x":{"y":[]}`, `"x":1e999`, `"Dtype":"U8"`, `"":"\ud800"`, ``,
}

// sequences yields all lists of at most n of some texts, joined by commas, each text as
// often as one likes and in any order.
func sequences(texts []string, n int) iter.Seq[string] {
	return func(yield func(string) bool) {
		list := make([]string, 0, n)
		var extend func() bool
		extend = func() bool {
			if !yield(strings.Join(list, ",")) {
				return false
			}
			if len(list) == n {
				return true
			}
			for _, text := range texts {
				list = append(list, text)
				more := extend()
				list = list[:len(list)-1]
				if !more {
					return false
				}
			}
			return true
		}
		extend()
	}
}

// smallFiles yields the small files with at most n members, and those with one entry of at
// most n fields.
func smallFiles(n int) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for before, parts := range map[string]iter.Seq[string]{
			`{`:      sequences(smallMembers, n),
			`{"a":{`: sequences(smallFields, n),
		} {
			after := strings.Repeat(`}`, strings.Count(before, `{`))
			for part := range parts {
				text := before + part + after
				for size := range maxSmallData + 1 {
					file := binary.LittleEndian.AppendUint64(make([]byte, 0, 8+len(text)+size), uint64(len(text)))
					file = append(append(file, text...), "xyz"[:size]...)
					if !yield(file) {
						return
					}
				}
			}
		}
	}
}

// smallCounts are the numbers of small files by their verdicts, for at most two members and
// for at most maxSmall. Where the reference alone accepts a file, a rule of the policy
// explains it: there is no count for other differences, which end the comparison.
// doc/testing.md has the same numbers.
var smallCounts = map[int]judge{
	2: {
		acceptedByBoth: 840,
		rejectedByBoth: 47_934,
		byPolicy + "a dtype is a string, not an object":                87,
		byPolicy + "an entry is an object, not an array":               87,
		byPolicy + "dimensions and offsets fit an int64":               115,
		byPolicy + "metadata keys are unique":                          106,
		byPolicy + "tensor names are unique, however they are escaped": 527,
	},
	maxSmall: {
		acceptedByBoth: 17_796,
		rejectedByBoth: 5_054_740,
		byPolicy + "a dtype is a string, not an object":                5_973,
		byPolicy + "an entry is an object, not an array":               5_943,
		byPolicy + "dimensions and offsets fit an int64":               9_704,
		byPolicy + "metadata keys are unique":                          3_382,
		byPolicy + "tensor names are unique, however they are escaped": 53_506,
	},
}

// requireCounts returns an error unless the verdicts on the small files were those of
// smallCounts.
func requireCounts(j judge, n int) error {
	want := smallCounts[n]
	if maps.Equal(j, want) {
		return nil
	}
	var different []string
	for what := range maps.Keys(j) {
		if j[what] != want[what] {
			different = append(different, fmt.Sprintf("%d are %s, not %d", j[what], what, want[what]))
		}
	}
	for what := range maps.Keys(want) {
		if _, counted := j[what]; !counted {
			different = append(different, fmt.Sprintf("0 are %s, not %d", what, want[what]))
		}
	}
	slices.Sort(different)
	return fmt.Errorf("of the files with at most %d members %s: smallCounts and doc/testing.md have other numbers", n, strings.Join(different, ", "))
}
