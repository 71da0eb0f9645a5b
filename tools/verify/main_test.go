package main

import (
	"regexp"
	"strings"
	"testing"
)

// A failure is open until somebody writes what became of it, which stays until the suite runs again.
func TestWhatBecameOfFailures(t *testing.T) {
	s := suite{"race", "echo '--- FAIL: TestX'; exit 1", regexp.MustCompile("FAIL"), "tests"}
	row, failed := s.run()
	if !failed || !strings.Contains(row, "| TestX | open | ") {
		t.Fatal(row)
	}
	page := writePage(map[string]string{"race": row + "`0123456789`, 2026-11-27 |\n"})
	page = strings.Replace(page, "| open |", "| mended |", 1)
	if again := writePage(readRows(page)); again != page || !strings.Contains(again, "| TestX | mended | ") {
		t.Error(again)
	}
	s.command = "echo FAIL"
	if row, failed = s.run(); failed || strings.Contains(row, "open") || strings.Contains(row, "mended") {
		t.Error(row)
	}
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "|") && strings.Count(line, "|") != 9 {
			t.Errorf("a row of another length: %s", line)
		}
	}
}
