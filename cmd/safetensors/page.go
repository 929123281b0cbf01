package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/dest"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/report"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

// checkPage returns an error if the name of the page does not end in .html, since it may be the
// name of a model, or if its folder is missing. It is called before hours of reading.
func (c *command) checkPage() error {
	if c.page == "" {
		return nil
	}
	if !strings.HasSuffix(c.page, ".html") {
		return usage("--html %s: the name of the page has to end in .html", c.page)
	}
	if _, err := pageDate(); err != nil {
		return err
	}
	return checkFolder("html", c.page)
}

// pageDate returns the date for the foot of a page: now, or that in SOURCE_DATE_EPOCH, so that the
// page of a checkpoint can be reproduced.
func pageDate() (time.Time, error) {
	text, ok := os.LookupEnv("SOURCE_DATE_EPOCH")
	if !ok || text == "" {
		return time.Now(), nil
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds < 0 || seconds > maxDate {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH=%s: expected seconds since 1970", term.Quote(text, term.ValueLimit))
	}
	return time.Unix(seconds, 0), nil
}

const maxDate = 253402300799 // the last second of the year 9999

// commandLine returns the command line in the syntax of a shell. It removes user and query from
// URLs, because they may contain passwords and signatures.
func commandLine(args []string) string {
	words := []string{"safetensors"}
	for _, arg := range args {
		words = append(words, term.Word(storage.Bare(arg)))
	}
	return strings.Join(words, " ")
}

// drawPage writes the page if --html is set. The page appears completely or not at all.
func (c *command) drawPage(draw func(io.Writer, report.Origin) error) error {
	if c.page == "" {
		return nil
	}
	date, err := pageDate()
	if err != nil {
		return err
	}
	origin := report.Origin{Date: date, Version: version(), Command: commandLine(c.args)}
	return dest.WriteFile(c.page, func(w io.Writer) error { return draw(w, origin) })
}
