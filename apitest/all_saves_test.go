package apitest_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	. "github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

// A world is two savers and a reader on one disk, of which one runs at a time. Each stops
// before every operation that another one could notice, and the schedule says who goes on.
// Random names come from the order of a schedule, so that it has the same end every time.
type world struct {
	*disk
	target  string
	procs   []*process
	current *process // the one that runs
	old     int      // the generation that was there before
	names   int      // that were drawn
	alias   map[string]string
	ending  bool // the rest of the processes runs without a schedule
}

// A process is a saver, of its generation, or a reader.
type process struct {
	name    string
	start   func() (int, error) // a save, or a reader, which returns what it has read
	steps   chan struct{}       // one for each operation that the schedule grants
	stopped chan bool           // whether it has ended, in place of having stopped before an operation
	started bool
	ended   bool
	seen    strings.Builder // what its operations have returned
	got     int             // what the reader has read
	floor   []int           // the generations that were durable when it started: a reader gets one of these or a later one
	err     error
}

// gate stops the running process before an operation.
func (w *world) gate() *process {
	p := w.current
	if !w.ending {
		p.stopped <- false
		<-p.steps
	}
	return p
}

// note keeps what an operation has returned, by which states are told apart.
func (p *process) note(op string, err error) error {
	fmt.Fprintf(&p.seen, "%s %v\n", op, err)
	return err
}

// grant lets a process go on up to its next operation, or to its end.
func (w *world) grant(p *process) {
	w.current = p
	if p.started {
		p.steps <- struct{}{}
	} else {
		p.started = true
		p.floor = w.durable()
		go func() {
			p.got, p.err = p.start()
			p.stopped <- true
		}()
	}
	p.ended = <-p.stopped
}

// durable returns the generations that a reader which starts now may get: those of saves that
// have returned, else the old one, and those of saves that run.
func (w *world) durable() (all []int) {
	returned := false
	for i, p := range w.procs[:2] {
		if p.started && !(p.ended && p.err != nil) {
			all = append(all, i+2)
			returned = returned || p.ended
		}
	}
	if !returned {
		all = append(all, w.old)
	}
	return all
}

// finish lets all processes run to their ends, one after another.
func (w *world) finish() {
	w.ending = true
	for _, p := range w.procs {
		if p.started && !p.ended {
			w.current = p
			p.steps <- struct{}{}
			for !<-p.stopped {
			}
			p.ended = true
		}
	}
}

// key tells states apart: by the disk and its history, what each process has seen, and which one
// ran last.
func (w *world) key(last int) [sha256.Size]byte {
	var b bytes.Buffer
	fmt.Fprintln(&b, last)
	ids := map[*inode]byte{nil: 0}
	for _, name := range slices.Sorted(maps.Keys(w.disk.names)) {
		b.WriteString(name)
		for _, n := range w.disk.names[name] {
			id, known := ids[n]
			if !known {
				id = byte(len(ids))
				ids[n] = id
				fmt.Fprintf(&b, " new %d:", len(n.synced))
				b.Write(n.synced)
				for _, p := range n.pending {
					fmt.Fprintf(&b, " at %d %t %d:", p.off, p.data == nil, len(p.data))
					b.Write(p.data)
				}
			}
			b.WriteByte(id)
		}
		b.WriteByte('\n')
	}
	for _, p := range w.procs {
		fmt.Fprintf(&b, "%s %t %t %v %v %v\n%s", p.name, p.started, p.ended, p.err, p.got, p.floor, p.seen.String())
	}
	return sha256.Sum256(b.Bytes())
}

// The random parts of names: of temporary files, and of shards.
var (
	randomTemp  = regexp.MustCompile(`[0-9a-f]{16}\.tmp`)
	randomStem  = regexp.MustCompile(`model\.\d{9}-`)
	numberedOwn = regexp.MustCompile(`model\.00000000\d-`)
)

// renamed returns a name, or a text with names, with numbers in place of random parts: for a
// temporary file the next one, for a shard that of the saver.
func (w *world) renamed(text string) string {
	text = randomTemp.ReplaceAllStringFunc(text, func(random string) string {
		if w.alias[random] == "" && !strings.HasPrefix(random, "00000000") {
			w.names++
			w.alias[random] = fmt.Sprintf("%016x.tmp", w.names)
		}
		if known := w.alias[random]; known != "" {
			return known
		}
		return random
	})
	return randomStem.ReplaceAllStringFunc(text, func(random string) string {
		if numberedOwn.MatchString(random) {
			return random
		}
		return fmt.Sprintf("model.00000000%d-", slices.Index(w.procs, w.current)+2)
	})
}

// Operations that other processes or a power cut can notice stop at the gate.

func (w *world) visible(op, name string, do func(name string) error) error {
	p, name := w.gate(), w.renamed(name)
	return p.note(op+" "+name, do(name))
}

func (w *world) Stat(name string) (info fs.FileInfo, err error) {
	err = w.visible("stat", name, func(name string) error {
		info, err = w.disk.Stat(name)
		return err
	})
	return info, err
}

func (w *world) ReadDir(name string) (entries []fs.DirEntry, err error) {
	p := w.gate()
	entries, err = w.disk.ReadDir(name)
	return entries, p.note(fmt.Sprint("readdir ", entries), err)
}

func (w *world) Mkdir(name string, mode fs.FileMode) error {
	return w.visible("mkdir", name, func(name string) error { return w.disk.Mkdir(name, mode) })
}

func (w *world) Rename(from, to string) error {
	return w.visible("rename", to, func(to string) error { return w.disk.Rename(w.renamed(from), to) })
}

func (w *world) Remove(name string) error { return w.visible("remove", name, w.disk.Remove) }

func (w *world) Lock(dir string) (func(), error) {
	var unlock func()
	err := w.visible("lock", dir, func(dir string) (err error) {
		if w.noLocks != nil {
			return errors.ErrUnsupported
		}
		unlock, err = w.disk.Lock(dir)
		return err
	})
	return func() {
		w.visible("unlock", dir, func(string) error {
			unlock()
			return nil
		})
	}, err
}

func (w *world) OpenDir(name string) (osfile.Folder, error) {
	f, err := w.disk.OpenDir(name)
	return worldFolder{f, w, name}, err
}

// The operations on files that have no name yet, or that several goroutines of a saver do, do
// not stop.

func (w *world) Lstat(name string) (fs.FileInfo, error) { return w.disk.Lstat(w.renamed(name)) }

func (w *world) Create(name string, mode fs.FileMode) (osfile.File, error) {
	f, err := w.disk.Create(w.renamed(name), mode)
	return worldFile{f, w}, err
}

func (w *world) CreateUnnamed(dir string, mode fs.FileMode) (osfile.File, error) {
	f, err := w.disk.CreateUnnamed(dir, mode)
	return worldFile{f, w}, err
}

type worldFile struct {
	osfile.File
	w *world
}

func (f worldFile) WriteAt(b []byte, off int64) (n int, err error) {
	b = []byte(f.w.renamed(string(b)))
	err = f.alone("write", func() error {
		n, err = f.File.WriteAt(b, off)
		return err
	})
	return n, err
}

func (f worldFile) Sync() error { return f.alone("sync", f.File.Sync) }

// alone stops before an operation on the file of a save that has one file: several have
// several goroutines.
func (f worldFile) alone(op string, do func() error) error {
	if f.w.target == folder {
		return do()
	}
	return f.w.visible(op, "", func(string) error { return do() })
}

func (f worldFile) Link(name string) error { return f.w.visible("link", name, f.File.Link) }

type worldFolder struct {
	osfile.Folder
	w    *world
	name string
}

func (f worldFolder) Sync() error {
	return f.w.visible("sync", f.name, func(string) error { return f.Folder.Sync() })
}

// A worldFS is the files of a world as the reader sees them. A file that is open keeps its
// content. Shards are opened concurrently: they wait for each other, and are then opened
// one after another, in the order of their names.
type worldFS struct {
	w       *world
	mu      sync.Mutex
	shards  int // of the index or the folder that was read last
	waiting map[string]chan fstest.MapFS
}

func (f *worldFS) files() fstest.MapFS {
	fsys := fstest.MapFS{}
	for name, data := range f.w.files() {
		fsys[name] = &fstest.MapFile{Data: data}
	}
	return fsys
}

func (f *worldFS) Stat(name string) (fs.FileInfo, error) {
	p := f.w.gate()
	info, err := f.files().Stat(name)
	return info, p.note("stat "+name, err)
}

func (f *worldFS) ReadDir(name string) ([]fs.DirEntry, error) {
	p := f.w.gate()
	entries, err := f.files().ReadDir(name)
	f.shards, f.waiting = 0, make(map[string]chan fstest.MapFS)
	for _, e := range entries { // a set that has no index yet
		if strings.Contains(e.Name(), "-of-") {
			f.shards++
		}
	}
	return entries, p.note(fmt.Sprint("readdir ", entries), err)
}

func (f *worldFS) Open(name string) (fs.File, error) {
	if strings.Contains(name, "-of-") {
		return f.openShard(name)
	}
	p, fsys := f.w.gate(), f.files()
	if data := fsys[name]; strings.HasSuffix(name, ".index.json") && data != nil {
		shards := make(map[string]bool)
		for _, shard := range must(ReadIndex(bytes.NewReader(data.Data))).Shards {
			shards[shard] = true
		}
		f.shards, f.waiting = len(shards), make(map[string]chan fstest.MapFS)
	}
	file, err := fsys.Open(name)
	return file, p.note(fmt.Sprintf("open %s %x", name, fsys[name]), err)
}

// openShard waits for all shards. The last one that comes opens them all, each after a stop.
func (f *worldFS) openShard(name string) (fs.File, error) {
	mine := make(chan fstest.MapFS, 1)
	f.mu.Lock()
	f.waiting[name] = mine
	all, last := f.waiting, len(f.waiting) == f.shards
	if last {
		f.waiting = make(map[string]chan fstest.MapFS) // for another try
	}
	f.mu.Unlock()
	if last {
		views := make(map[string]fstest.MapFS)
		for _, shard := range slices.Sorted(maps.Keys(all)) {
			p := f.w.gate()
			views[shard] = f.files()
			p.note(fmt.Sprintf("open %s %t", shard, views[shard][shard] != nil), nil)
		}
		for shard, view := range views {
			all[shard] <- view
		}
	}
	return (<-mine).Open(name)
}

// A saveGame is all schedules of two saves and a reader.
type saveGame struct {
	t        testing.TB
	old      save // zero if there is none
	saves    [2]save
	kind     func(*disk)
	noLocks  bool
	visited  map[[sha256.Size]byte]int // with how many switches at least
	files    map[string][]byte         // before the saves
	switches int                       // the most: how often a process takes over from one that could go on
	deepest  int
	cuts     int
	lost     int // readers and cuts without a checkpoint
}

// newWorld returns the world at its beginning.
func (g *saveGame) newWorld() (w *world, restore func()) {
	d := diskWith(g.files)
	g.kind(d)
	target := g.saves[0].target
	w = &world{disk: d, target: target, alias: make(map[string]string), old: -1}
	if g.old.write != nil {
		w.old = 1
	}
	if g.noLocks {
		d.noLocks = new(sync.WaitGroup)
	}
	for i, s := range g.saves {
		w.procs = append(w.procs, &process{name: s.name, start: func() (int, error) { return i + 2, s.write(i + 2) }})
	}
	w.procs = append(w.procs, &process{name: "reader", start: func() (int, error) {
		n, err := generationIn(OpenFS(&worldFS{w: w, waiting: make(map[string]chan fstest.MapFS)}, target))
		return int(n), err
	}})
	for _, p := range w.procs {
		p.steps, p.stopped = make(chan struct{}), make(chan bool)
	}
	restore = sync.OnceFunc(osfile.Wrap(func(osfile.System) osfile.System { return w }))
	d.counts, d.total = map[string]int{}, 0
	return w, restore
}

// run visits every state that some schedule leads to.
func (g *saveGame) run() {
	g.visited = make(map[[sha256.Size]byte]int)
	g.files = map[string][]byte{"work/other": nil}
	if g.old.write != nil {
		d := diskWith(g.files)
		require.NoError(g.t, d.save(g.t, g.old, 1, fault{}))
		g.files = d.files()
	}
	schedules := [][]int{nil}
	for len(schedules) > 0 {
		schedule := schedules[len(schedules)-1]
		schedules = schedules[:len(schedules)-1]
		schedules = append(schedules, g.follow(schedule)...)
	}
}

// follow runs a schedule, and on from its end as long as the states are new, with the process
// that ran last if it can go on. It returns the schedules with the other ones.
func (g *saveGame) follow(schedule []int) (others [][]int) {
	w, restore := g.newWorld()
	defer restore()
	defer w.finish()
	last, switches := -1, 0
	grant := func(next int) {
		if last >= 0 && next != last && !w.procs[last].ended {
			switches++
		}
		last = next
		w.grant(w.procs[next])
	}
	for _, next := range schedule {
		grant(next)
	}
	for {
		key := w.key(last)
		fewest, visited := g.visited[key]
		if visited && fewest <= switches {
			return others
		}
		g.visited[key] = switches
		if !visited {
			g.deepest = max(g.deepest, len(schedule))
			g.requireState(w, schedule)
		}
		next := []int{}
		for i, p := range w.procs {
			goesOn := last < 0 || i == last || w.procs[last].ended
			switch {
			case p.ended || !goesOn && switches == g.switches:
			case i == last:
				next = slices.Insert(next, 0, i)
			default:
				next = append(next, i)
			}
		}
		if len(next) == 0 {
			return others
		}
		for _, other := range next[1:] {
			others = append(others, append(slices.Clone(schedule), other))
		}
		schedule = append(slices.Clip(schedule), next[0])
		grant(next[0])
	}
}

// requireState looks at what a power cut may leave of a state, and at what the reader got.
func (g *saveGame) requireState(w *world, schedule []int) {
	c := cuts{d: w.disk, seen: map[string]cut{}}
	c.add("")
	g.cuts += len(c.seen)
	durable := w.durable()
	mayFail := g.noLocks || g.mayFail()
	broken := torn(c.seen, w.target, mayFail, append(durable, w.old)...)
	if !g.noLocks && slices.ContainsFunc(w.procs[:2], func(p *process) bool { return p.ended && p.err == nil }) {
		broken = append(broken, torn(c.seen, w.target, false, durable...)...)
	}
	if r := w.procs[2]; r.ended {
		late := slices.Concat(r.floor, []int{2, 3})
		switch {
		case errors.Is(r.err, errMixture) || r.err != nil && !mayFail:
			broken = append(broken, fmt.Sprint("the reader: ", r.err))
		case r.err != nil:
			g.lost++
		case !slices.Contains(late, r.got):
			broken = append(broken, fmt.Sprintf("the reader got generation %d, not one of %d", r.got, late))
		}
	}
	for _, p := range w.procs[:2] {
		if p.ended && p.err != nil && !g.noLocks && !strings.Contains(p.err.Error(), "another WriteShards is saving") {
			broken = append(broken, fmt.Sprintf("%s: %v", p.name, p.err))
		}
	}
	require.Empty(g.t, broken, "the schedule %d", schedule)
}

// mayFail reports whether there may be no checkpoint: before the first save has returned.
func (g *saveGame) mayFail() bool { return g.old.write == nil }

// saveGames returns the pairs of saves whose schedules are enumerated: of single files and of
// shards, over nothing, a file and shards.
func saveGames() []saveGame {
	return []saveGame{
		{old: writeFile, saves: [2]save{writeFile, writeFile}},
		{old: writeFile, saves: [2]save{writeFile, createWriter}},
		{saves: [2]save{writeFile, writeFile}},
		{old: shards(2), saves: [2]save{shards(2), shards(2)}},
		{old: shards(1), saves: [2]save{shards(2), shards(1)}},
		{old: shards(2), saves: [2]save{shards(1), shards(2)}},
		{saves: [2]save{shards(2), shards(1)}},
		{old: shards(2), saves: [2]save{shards(2), shards(2)}, noLocks: true},
		{old: shards(1), saves: [2]save{shards(2), shards(1)}, noLocks: true},
	}
}

// TestAllSaves visits every state of two saves, a reader and a power cut in which the processes
// take turns at most so many times. What opens is never a mixture. With locks, and for single
// files, it is a generation that was saved: the old one or a new one until a save has
// returned, and a new one from then on.
func TestAllSaves(t *testing.T) {
	switches, games := 1, saveGames()
	switch {
	case testplatform.Exhaustive():
		switches = 2
	case testplatform.Long():
	case testing.Short() || testplatform.RaceEnabled:
		switches = 0
	default:
		games = []saveGame{games[0], games[4]}
	}
	states, afterCuts, deepest := 0, 0, 0
	for _, g := range games {
		for i, kind := range diskKinds {
			if g.saves[0].target == folder && i == 2 { // where several goroutines draw names
				continue
			}
			g := g
			g.t, g.kind, g.switches = t, kind, switches
			g.run()
			t.Logf("%s and %s over %q, without locks %t, disk %d: %d states, %d of the disk after a power cut, %d without a checkpoint",
				g.saves[0].name, g.saves[1].name, g.old.name, g.noLocks, i, len(g.visited), g.cuts, g.lost)
			states, afterCuts, deepest = states+len(g.visited), afterCuts+g.cuts, max(deepest, g.deepest)
		}
	}
	t.Logf("%d switches: %d states, at most %d operations deep, %d of the disk after a power cut", switches, states, deepest, afterCuts)
	if form := []string{"", "saves, in CI", "saves, weekly"}[switches]; form != "" && len(games) == len(saveGames()) {
		requireStated(t, form, states, "states")
	}
}
