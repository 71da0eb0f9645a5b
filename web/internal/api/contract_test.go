package api_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/job/jobtest"
	"github.com/tenurehq/tenure/web"
)

// schemathesis is what finds out whether a document is true.
const schemathesis = "schemathesis==4.32.5"

// contractWithin bounds how long it may take, its packages included.
const contractWithin = 20 * time.Minute

// The document says what the API does: schemathesis tries each rule of it, kept and broken (the half that is cheap, and
// goes by no chance), and finds each answer in it.
func TestTheDocumentIsTrue(t *testing.T) {
	if testing.Short() {
		t.Skip("fetches packages")
	}
	t.Parallel()
	env := jobtest.New(t, jobtest.Tenants("acme", "globex"), jobtest.Register(register))
	// printf %s secret | sha256sum
	site, err := web.Handler(env.Client(), web.Settings{Tokens: map[string]config.Token{
		"ops": {SHA256: "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b", Role: "admin", Args: true}}})
	require.NoError(t, err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/events") { // a stream goes on
			ctx, cancel := context.WithTimeout(r.Context(), time.Second)
			defer cancel()
			r = r.WithContext(ctx)
		}
		site.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	settings, err := filepath.Abs("schemathesis.toml")
	require.NoError(t, err)
	run := func(name string, args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), contractWithin)
		defer cancel()
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir, cmd.WaitDelay = dir, time.Second
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, c := range [][]string{{"python3", "-m", "venv", "venv"}, {"venv/bin/python", "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check", schemathesis}} {
		if c[0] != "python3" {
			c[0] = filepath.Join(dir, c[0])
		}
		out, err := run(c[0], c[1:]...)
		require.NoError(t, err, out)
	}
	out, err := run(filepath.Join(dir, "venv/bin/schemathesis"), "--config-file", settings, "run", server.URL+"/api/openapi.json", "--url", server.URL, "--header", "Authorization: Bearer secret",
		"--phases", "examples,coverage", "--suppress-health-check", "all", "--continue-on-failure", "--seed", "1", "--request-timeout", "30", "--no-color")
	if err != nil {
		t.Fatal(regexp.MustCompile(`(?m)(^.{400}).+$`).ReplaceAllString(out, "$1…"), err)
	}
	t.Log(regexp.MustCompile(`\d+ generated.*`).FindString(out))
}
