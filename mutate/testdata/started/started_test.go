package started

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if text := os.Getenv("TWICE"); text != "" {
		n, _ := strconv.Atoi(text)
		os.Stdout.WriteString(strconv.Itoa(Twice(n)))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestStarted starts this program with an environment of its own.
func TestStarted(t *testing.T) {
	for n, want := range []string{"0", "2", "4", "6", "6"} {
		t.Run("of/"+strconv.Itoa(n), func(t *testing.T) {
			c := exec.Command(os.Args[0])
			c.Env = []string{"TWICE=" + strconv.Itoa(n)}
			if out, err := c.Output(); err != nil || strings.TrimSpace(string(out)) != want {
				t.Errorf("%d: %s, %v", n, out, err)
			}
		})
	}
}

func TestOnce(t *testing.T) {
	if Once(3) != 1 {
		t.Error()
	}
}

func TestEarly(t *testing.T) {
	if early != 5 {
		t.Error(early)
	}
}

// TestUnrecorded fails while the calls of tests are recorded.
func TestUnrecorded(t *testing.T) {
	program, _ := os.Executable()
	if _, err := os.Stat(filepath.Join(filepath.Dir(program), "reached")); err == nil {
		t.Error("recorded")
	}
}

func TestLast(t *testing.T) {
	defer func() {
		if recover() != "last" {
			t.Error()
		}
	}()
	Last()
}
