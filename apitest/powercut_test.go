package apitest_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	. "github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/stretchr/testify/require"
)

// A save is one way to write a generation.
type save struct {
	name   string
	target string
	files  int
	write  func(n int) error
}

// file and folder are the targets of saves.
const (
	file   = "work/model.safetensors"
	folder = "work/run/checkpoint"
)

var (
	writeFile    = save{"WriteFile", file, 1, func(n int) error { return WriteFile(file, generation(n), nil) }}
	createWriter = save{"Create", file, 1, func(n int) error { return createFile(file, generation(n), 4) }}
)

// shards returns the save into so many shards.
func shards(count int) save {
	files := count + 1 // and the index
	if count == 1 {
		files = 1
	}
	return save{fmt.Sprintf("WriteShards %d", count), folder, files, func(n int) error {
		return WriteShards(folder, generation(n), nil, []int64{1: 48, 2: 32, 3: 16}[count])
	}}
}

// A cut is what a power cut may leave.
type cut struct {
	files map[string][]byte
	when  string // after which operation
	key   string // equal for equal files; "" if not known
}

func (c cut) String() string {
	return fmt.Sprintf("after %q: %q", c.when, slices.Sorted(maps.Keys(c.files)))
}

// generation returns the generation that a target opens as.
func (c cut) generation(target string) (uint32, error) {
	key := target + "\n" + c.key
	if opened := openedCuts[key]; opened != nil && c.key != "" {
		return opened()
	}
	fsys := fstest.MapFS{}
	for name, data := range c.files {
		fsys[name] = &fstest.MapFile{Data: data}
	}
	n, err := generationIn(OpenFS(fsys, target))
	openedCuts[key] = func() (uint32, error) { return n, err }
	return n, err
}

// openedCuts remembers what the cuts open as: most come again with every save.
var openedCuts = map[string]func() (generation uint32, err error){}

// cuts collects what power cuts may leave, each state once.
type cuts struct {
	d       *disk
	seen    map[string]cut
	sampled bool // not all
}

// maxStates bounds the states at one moment. Beyond it, they are drawn at random.
const maxStates = 1 << 12

// add collects all that a power cut may leave at this moment. Each state comes
// without temporary files and with all that may be there.
func (c *cuts) add(when string) {
	type slot struct {
		name    string
		options []*inode
		data    [][]byte // of the options; nil for absent
	}
	var slots []slot
	temporary := map[string][]byte{}
	states := 1
	for _, name := range slices.Sorted(maps.Keys(c.d.names)) {
		s := slot{name: name}
		for i, n := range c.d.names[name] {
			if slices.Contains(c.d.names[name][:i], n) {
				continue
			}
			contents := [][]byte{nil}
			if n != nil && !n.dir {
				contents = n.contents()
			}
			for _, data := range contents {
				s.options = append(s.options, n)
				s.data = append(s.data, data)
			}
			if n != nil && strings.HasPrefix(path.Base(name), osfile.TempPrefix) {
				temporary[fmt.Sprintf("%s%016x.tmp", name[:len(name)-len("0123456789abcdef.tmp")], len(temporary))] = contents[0]
			}
		}
		if strings.HasPrefix(path.Base(name), osfile.TempPrefix) {
			continue
		}
		slots = append(slots, s)
		states = min(states*len(s.options), maxStates+1)
	}
	c.sampled = c.sampled || states > maxStates
	random := rand.New(rand.NewPCG(1, 2))
	choice := make([]int, len(slots))
	for range min(states, maxStates) {
		bound, files := map[string]bool{".": true}, map[string][]byte{}
		for i, s := range slots { // folders come before what is in them
			if n := s.options[choice[i]]; n != nil && bound[path.Dir(s.name)] {
				bound[s.name] = true
				if !n.dir {
					files[s.name] = s.data[choice[i]]
				}
			}
		}
		c.state(files, when)
		for name, data := range temporary {
			if bound[path.Dir(name)] {
				files[name] = data
			}
		}
		c.state(files, when)
		for i := range choice {
			if states > maxStates {
				choice[i] = random.IntN(len(slots[i].options))
				continue
			}
			if choice[i]++; choice[i] < len(slots[i].options) {
				break
			}
			choice[i] = 0
		}
	}
}

func (c *cuts) state(files map[string][]byte, when string) {
	var key strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		key.WriteString(strconv.Itoa(len(files[name])) + " " + name + "\n")
		key.Write(files[name])
	}
	if _, seen := c.seen[key.String()]; !seen {
		c.seen[key.String()] = cut{maps.Clone(files), when, key.String()}
	}
}

// powerCuts runs a save on d and returns what a power cut may leave while it runs,
// what it may leave once it has returned, and its error.
func powerCuts(t testing.TB, d *disk, s save, n int) (during, after map[string]cut, err error) {
	restore := d.use(t)
	defer restore()
	c := cuts{d: d, seen: map[string]cut{}}
	d.observe = c.add
	c.add("start")
	err = s.write(n)
	during, c.seen, d.observe = c.seen, map[string]cut{}, nil
	c.add("its return")
	require.False(t, c.sampled && d.ignored == "", "too many states to see them all")
	return during, c.seen, err
}

// torn returns the states in which a target opens as none of the generations, or
// not at all unless that is allowed.
func torn(states map[string]cut, target string, mayFail bool, generations ...int) (broken []string) {
	for _, state := range states {
		got, err := state.generation(target)
		switch {
		case errors.Is(err, errMixture) || err != nil && !mayFail:
			broken = append(broken, fmt.Sprintf("%v: %v", state, err))
		case err == nil && !slices.Contains(generations, int(got)):
			broken = append(broken, fmt.Sprintf("%v: generation %d", state, got))
		}
	}
	return broken
}

// opensAs returns the generation that a target opens as, -1 if it does not open,
// and whether it may stop to open while it is replaced: where there is none, and
// where there are shards without an index.
func opensAs(c cut, target string) (n int, mayFail bool) {
	got, err := c.generation(target)
	if err != nil {
		return -1, true
	}
	_, single := c.files[folder+"/model.safetensors"]
	_, index := c.files[folder+"/model.safetensors.index.json"]
	return int(got), target == folder && !single && !index
}

// TestPowerCut saves again and again and looks at all that a power cut at any moment
// may leave: it opens as the earlier generation or as the new one and, once the save
// has returned, as the new one.
func TestPowerCut(t *testing.T) {
	sequences := map[string][]save{
		"WriteFile":   {writeFile, writeFile, writeFile},
		"Create":      {createWriter, createWriter, createWriter},
		"WriteShards": {},
	}
	for _, count := range []int{3, 3, 3, 2, 2, 3, 1, 1, 2, 2, 1, 3} {
		sequences["WriteShards"] = append(sequences["WriteShards"], shards(count))
	}
	for name, sequence := range sequences {
		for _, kind := range diskKinds {
			d, states := diskWith(map[string][]byte{"work/other": nil}), 0
			kind(d)
			for n, s := range sequence {
				old, mayFail := opensAs(cut{files: d.files()}, s.target)
				during, after, err := powerCuts(t, d, s, n)
				require.NoError(t, err)
				require.Empty(t, torn(during, s.target, mayFail, old, n))
				require.Empty(t, torn(after, s.target, false, n))
				require.Zero(t, d.open)
				states += len(during) + len(after)
				d.settle()
			}
			t.Log(name, states, "states")
		}
	}
}

// TestPowerCutAgain cuts the power, saves again to each state that the first cut may
// have left, and cuts it again.
func TestPowerCutAgain(t *testing.T) {
	var states int
	for _, first := range [][2]int{{0, 3}, {3, 3}, {3, 2}, {1, 3}, {3, 1}} {
		d := newDisk()
		if first[0] > 0 {
			require.NoError(t, d.save(t, shards(first[0]), 1, fault{}))
		}
		d.settle()
		once, _, err := powerCuts(t, d, shards(first[1]), 2)
		require.NoError(t, err)
		for _, left := range once {
			for _, count := range []int{1, 2, 3} {
				old, mayFail := opensAs(left, folder)
				d := diskWith(left.files)
				during, after, err := powerCuts(t, d, shards(count), 3)
				require.NoError(t, err)
				for name := range d.files() {
					require.NotContains(t, name, osfile.TempPrefix, "of the first save")
				}
				require.Empty(t, torn(during, folder, mayFail, old, 3))
				require.Empty(t, torn(after, folder, false, 3))
				states += len(during) + len(after)
			}
		}
	}
	t.Log(states, "states")
}

// TestFolderOfAnother saves to a folder that another process has just created, and whose name it
// has not flushed yet. Once the save has returned, a power cut leaves it.
func TestFolderOfAnother(t *testing.T) {
	for _, count := range []int{1, 3} {
		d := diskWith(map[string][]byte{"work/run/other": nil})
		d.bind(folder, &inode{dir: true, mode: fs.ModeDir | 0o777})
		_, after, err := powerCuts(t, d, shards(count), 2)
		require.NoError(t, err)
		require.Empty(t, torn(after, folder, false, 2))
	}
}

// TestPowerCutIsNoticed makes syncs do nothing and say nothing of it: there are
// states then that are neither generation.
func TestPowerCutIsNoticed(t *testing.T) {
	for _, ignored := range []string{"sync", "syncdir"} {
		for _, c := range []struct {
			first, second save
		}{{writeFile, writeFile}, {createWriter, createWriter}, {shards(3), shards(2)}, {shards(1), shards(3)}, {shards(3), shards(1)}} {
			d := diskWith(map[string][]byte{"work/other": nil})
			require.NoError(t, d.save(t, c.first, 1, fault{}))
			d.settle()
			d.ignored = ignored
			during, after, err := powerCuts(t, d, c.second, 2)
			require.NoError(t, err)
			require.NotEmpty(t, torn(after, c.second.target, false, 2), "%s %s", ignored, c.second.name)
			if ignored == "sync" {
				require.NotEmpty(t, torn(during, c.second.target, false, 1, 2), c.second.name)
			}
		}
	}
}
