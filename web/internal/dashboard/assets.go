package dashboard

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

//go:embed pages/*.html
var pageFiles embed.FS

//go:embed static
var staticFiles embed.FS

// parsePages makes a template of each page, laid out alike, with links below prefix.
func parsePages(prefix string) (map[string]*template.Template, error) {
	functions := template.FuncMap{
		"path":    func(to string, pairs ...any) string { return link(prefix, to, pairs...) },
		"asset":   func(name string) (string, error) { return assetLink(prefix, name) },
		"bounded": bounded,
		"num":     func(n any) string { return anyNumber(n) },
		"span":    span,
		"pretty":  pretty,
		"ago":     func(at time.Time) string { return relative(at, time.Now()) },
		"at":      func(at time.Time) string { return clock(at, time.Now()) },
		"lasted":  lasted,
		"line":    firstLine,
		"since":   func(at time.Time) string { return span(time.Since(at)) },
		"clock":   func(at time.Time) string { return at.UTC().Format("15:04:05 UTC") },
		"iso":     func(at time.Time) string { return at.UTC().Format(time.RFC3339) },
		"join":    strings.Join,
		"pathOf":  func(to string, pairs []any) string { return link(prefix, to, pairs...) },
		"tab":     newTab,
		"tone":    toneOf,
		"named": func(name string, of excerpt, id job.ID) any {
			return struct {
				excerpt
				Name string
				Job  job.ID
			}{of, name, id}
		},
		"pick": func(first bool, a, b any) any {
			if first {
				return a
			}
			return b
		},
		"ended":    func(all, unfinished int) int { return all - unfinished },
		"everyone": func(id tenancy.ID) bool { return id == operate.EveryTenant },
	}
	shared, err := template.New("").Funcs(functions).ParseFS(pageFiles, "pages/layout.html")
	if err != nil {
		return nil, err
	}
	files, err := fs.Glob(pageFiles, "pages/*.html")
	if err != nil {
		return nil, err
	}
	pages := map[string]*template.Template{}
	for _, file := range files {
		one, err := shared.Clone()
		if err == nil {
			_, err = one.ParseFS(pageFiles, file)
		}
		if err != nil {
			return nil, err
		}
		pages[strings.TrimSuffix(path.Base(file), ".html")] = one
	}
	return pages, nil
}

// tab leads to one of the pages that the layout names.
type tab struct {
	To, Name string
	Here     bool
}

func newTab(path, to, name string) tab {
	below := to != "/" && strings.HasPrefix(path, to+"/") || to == "/tenants" && path == "/tenant"
	return tab{to, name, path == to || below}
}

// StyleLink is the address of the pages' style, which everybody may see.
func StyleLink(prefix string) (string, error) { return assetLink(prefix, "style.css") }

// assetLink names the content of a file, so that browsers may keep it until it changes.
func assetLink(prefix, name string) (string, error) {
	text, err := staticFiles.ReadFile("static/" + name)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return link(prefix, "/static/"+name, "v", hex.EncodeToString(sum[:6])), nil
}

func anyNumber(n any) string {
	switch n := n.(type) {
	case int:
		return number(int64(n))
	case int64:
		return number(n)
	default:
		return fmt.Sprint(n)
	}
}
