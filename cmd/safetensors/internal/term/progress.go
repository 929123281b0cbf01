package term

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"
)

// patience is the time after which the progress of work is first shown.
const patience = 500 * time.Millisecond

// Progress shows how much of some work is done, until stop is called. total is the number of bytes
// of the whole work, and done returns the number of those processed so far. It draws a bar on a
// terminal. On any other stream it prints a line now and then.
func Progress(w io.Writer, title string, total int64, done func() int64) (stop func()) {
	return progress(w, title, total, done, Is(w))
}

func progress(w io.Writer, title string, total int64, done func() int64, bar bool) (stop func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	start, every := time.Now(), interval()
	if bar {
		every = 100 * time.Millisecond
	}
	go func() {
		defer close(ended)
		shown := 0 // number of runes of the drawn bar, which is erased at the end
		for wait := patience + every; ; wait = every {
			select {
			case <-quit:
				if shown > 0 {
					fmt.Fprintf(w, "\r%*s\r", shown, "")
				}
				return
			case <-time.After(wait):
			}
			n := done()
			state := state(n, total, time.Since(start))
			if !bar {
				fmt.Fprintf(w, "%s: %s\n", title, state)
				continue
			}
			line := barLine(title, float64(n)/float64(max(total, 1)), state, columns(w))
			fmt.Fprintf(w, "\r%-*s", shown, line)
			shown = utf8.RuneCountInString(line)
		}
	}()
	return func() {
		close(quit)
		<-ended
	}
}

// barLine returns a line that fits the terminal. A longer line would wrap, and each update would
// leave a line behind.
func barLine(title string, part float64, state string, columns int) string {
	width := min(30, columns-len(title)-len(" [] ")-len(state)-1)
	if width < 0 {
		line := title + " " + state
		return line[:max(min(len(line), columns-1), 0)]
	}
	full := int(min(part, 1) * float64(width))
	return fmt.Sprintf("%s [%s%s] %s", title, strings.Repeat("=", full), strings.Repeat(" ", width-full), state)
}

// interval returns the time between two lines. SAFETENSORS_PROGRESS_INTERVAL changes it, for tests
// and for users who want longer or shorter logs.
func interval() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("SAFETENSORS_PROGRESS_INTERVAL")); err == nil && d > 0 {
		return d
	}
	return 10 * time.Second
}

// state describes the state of work in words: 1.2 GB of 64.0 GB, 1.1 GB/s, 58s left.
func state(done, total int64, took time.Duration) string {
	done = min(done, total)
	s := fmt.Sprintf("%s of %s", Bytes(done), Bytes(total))
	if took > 0 && done > 0 {
		speed := float64(done) / took.Seconds()
		const most = 9e9 // largest number of seconds that fit a Duration
		left := time.Duration(min(float64(total-done)/speed, most) * float64(time.Second))
		s += fmt.Sprintf(", %s/s, %v left", Bytes(int64(speed)), left.Round(time.Second))
	}
	return s
}
