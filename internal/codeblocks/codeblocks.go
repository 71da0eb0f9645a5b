// Package codeblocks finds the pieces of code in documents, for the tests that compile and run them.
package codeblocks

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Block is a piece of code in a document.
type Block struct {
	Path     string
	Line     int // of its first line
	Language string
	Text     string
}

// Documents are the README and all that is in docs, below a root.
func Documents(root string) (paths []string, err error) {
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/adr/*.md", "web/*.md", "loadtest/*.md"} {
		some, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		paths = append(paths, some...)
	}
	return slices.DeleteFunc(paths, func(path string) bool { return filepath.Base(path) == "THIRD_PARTY_NOTICES.md" }), nil // others' texts
}

// Read finds the blocks of a document. One within a list is indented, which is taken off.
func Read(path string) (blocks []Block, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var open *Block
	indent := ""
	lines := bufio.NewScanner(strings.NewReader(string(text)))
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		trimmed := strings.TrimLeft(line, " ")
		language, fence := strings.CutPrefix(trimmed, "```")
		switch {
		case fence && open == nil:
			indent = line[:len(line)-len(trimmed)]
			open = &Block{Path: path, Line: n + 1, Language: strings.TrimSpace(language)}
		case fence:
			blocks = append(blocks, *open)
			open = nil
		case open != nil:
			open.Text += strings.TrimPrefix(line, indent) + "\n"
		}
	}
	return blocks, lines.Err()
}
