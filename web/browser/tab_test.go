package browser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// patience is how long something may take to be seen. The tests share two processors with a cluster.
const patience = 30 * time.Second

// startBrowser starts Chromium without a window. It ends with ctx.
func startBrowser(ctx context.Context) (context.Context, context.CancelFunc, error) {
	path := os.Getenv("TENURE_CHROMIUM")
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil && path == "" {
			path = found
		}
	}
	if path == "" {
		return nil, nil, errors.New("find Chromium: none is on the PATH; install it (apt-get install chromium), or set TENURE_CHROMIUM to its program")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-gpu", true))
	allocator, end := chromedp.NewExecAllocator(ctx, options...)
	browser, cancel := chromedp.NewContext(allocator)
	stop := func() { cancel(); end() }
	if err := chromedp.Do(browser); err != nil {
		stop()
		return nil, nil, fmt.Errorf("start %s: %w", path, err)
	}
	return browser, stop, nil
}

// step is something that is done in a tab.
type step = chromedp.Action[chromedp.Void]

// call is a step of the browser's own protocol.
func call[P any](command cdp.Command[P, cdp.Empty], params P) step {
	return func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, t, command, params)
		return chromedp.Void{}, err
	}
}

// tab is one of the browser's, that notes what goes wrong in it.
type tab struct {
	t       *testing.T
	ctx     context.Context
	address string // of the node whose dashboard it shows

	mu     sync.Mutex
	faults []string // guarded by mu
}

// open opens a tab on a node's dashboard.
func (b *bed) open(t *testing.T, node *process, steps ...step) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(b.browser)
	t.Cleanup(cancel)
	p := &tab{t: t, ctx: ctx, address: node.address}
	require.NoError(t, chromedp.Listen(ctx, p.note))
	require.NoError(t, chromedp.Do(ctx, append([]step{call(network.Enable, network.EnableParams{}), call(log.Enable, cdp.Empty{}), chromedp.EmulateViewport(1440, 900)}, steps...)...))
	return p
}

// note notes what a page must not cause.
func (p *tab) note(event any) {
	fault := ""
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning || e.Type == runtime.ConsoleAPICalledTypeAssert {
			var words []string
			for _, a := range e.Args {
				words = append(words, string(a.Value)+a.Description)
			}
			fault = "console: " + strings.Join(words, " ")
		}
	case *runtime.EventExceptionThrown:
		fault = "exception: " + e.ExceptionDetails.Text
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			fault = "log: " + e.Entry.Text + " " + e.Entry.URL
		}
	case *network.EventLoadingFailed:
		if !e.Canceled { // as when a page is left while it is fetched again
			fault = "request: " + e.ErrorText
		}
	case *network.EventResponseReceived:
		if e.Response.Status >= 400 {
			fault = fmt.Sprintf("answer %d: %s", e.Response.Status, e.Response.URL)
		}
	}
	if fault != "" {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.faults = append(p.faults, fault)
	}
}

// faultless requires that nothing has gone wrong so far.
func (p *tab) faultless() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	require.Empty(p.t, p.faults)
}

func (p *tab) run(steps ...step) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	require.NoError(p.t, chromedp.Do(ctx, steps...))
}

// visit loads a page, and requires that it is one.
func (p *tab) visit(path string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	answer, err := chromedp.RunResponse(ctx, chromedp.Navigate("http://"+p.address+path))
	require.NoError(p.t, err, path)
	require.EqualValues(p.t, 200, answer.Status, path)
}

// press clicks on what leads to another page, and waits for that.
func (p *tab) press(selector string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	_, err := chromedp.RunResponse(ctx, chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
	require.NoError(p.t, err, selector)
}

// eval evaluates an expression, also where pages may run no scripts.
func eval[T any](p *tab, expression string) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	out, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	require.NoError(p.t, err)
	return out
}

// quoted is a text as JavaScript has it.
func quoted(text string) string {
	b, _ := json.Marshal(text) // a string always can be
	return string(b)
}

// text is what can be read in the first element that a selector finds; "": there is none.
func (p *tab) text(selector string) string {
	p.t.Helper()
	return eval[string](p, "(document.querySelector("+quoted(selector)+") || {}).innerText || ''")
}

// until waits until an expression is true, and the page has not been loaded again meanwhile.
func (p *tab) until(expression string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return eval[bool](p, expression) }, patience, 100*time.Millisecond, expression)
}

// path is where the tab is by now.
func (p *tab) path() string {
	p.t.Helper()
	u, err := url.Parse(eval[string](p, "location.href"))
	require.NoError(p.t, err)
	return u.Path
}

// scheme has pages look as in a dark or light room, at once.
func scheme(name string) step {
	return call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"}}})
}

// withoutScripts has pages run none.
func withoutScripts() step {
	return call(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
}

// unfold opens what is folded around what a selector finds, and waits until that can be seen.
func unfold(selector string) []step {
	return []step{chromedp.Click(chromedp.CSS("details:has("+selector+") summary"), chromedp.NodeVisible), chromedp.WaitVisible(chromedp.CSS(selector))}
}
