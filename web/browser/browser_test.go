package browser

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

// bed is a cluster with some work, and a browser.
type bed struct {
	*cluster
	browser context.Context
	dead    job.ID // one dead letter
	waits   job.ID // a job that waits for tomorrow
}

// acme is who lives in acme's schema.
func acme(ctx context.Context) context.Context { return tenancy.For(ctx, "acme") }

func setup(t *testing.T) *bed {
	ctx := context.WithoutCancel(t.Context())
	c, err := startCluster(ctx, t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { c.stop(ctx) })
	b := &bed{cluster: c}
	browser, stop, err := startBrowser(ctx)
	require.NoError(t, err)
	t.Cleanup(stop)
	b.browser = browser

	// A job of each sort that pages show.
	b.exec(t, "eu", "INSERT INTO acme.outage VALUES (now())")
	for card := range 5 {
		e, err := c.client.Enqueue(acme(ctx), payment{fmt.Sprintf("4000-000%d", card)})
		require.NoError(t, err)
		b.dead = e.ID
	}
	later, err := c.client.Enqueue(acme(ctx), report{Pages: 2}, tenure.In(24*time.Hour))
	require.NoError(t, err)
	b.waits = later.ID
	_, err = c.op.Schedules().Set(ctx, operate.Schedule{Tenant: "acme", Name: "nightly", Args: report{3}, Rule: "0 7 * * *"})
	require.NoError(t, err)
	require.NoError(t, c.op.Limits().Set(ctx, operate.Limit{Tenant: "globex", MaxRunning: 7, Kind: "report.make"}))
	_, err = c.client.EnqueueBatch(acme(ctx), tenure.Batch{Then: invoice{1}, Jobs: []tenure.Entry{{Args: report{1}, Options: []tenure.Option{tenure.In(time.Hour)}}}})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return b.deadLetters(t) == 5 }, patience, 50*time.Millisecond)

	flowing, stopTraffic := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { c.traffic(flowing); close(ended) }()
	t.Cleanup(func() { stopTraffic(); <-ended })
	return b
}

func (b *bed) exec(t *testing.T, pool, sql string) {
	t.Helper()
	_, err := b.db[pool].Exec(t.Context(), sql)
	require.NoError(t, err)
}

func (b *bed) count(t *testing.T, pool, sql string) (n int) {
	t.Helper()
	require.NoError(t, b.db[pool].QueryRow(t.Context(), sql).Scan(&n))
	return n
}

func (b *bed) deadLetters(t *testing.T) int {
	return b.count(t, "eu", "SELECT count(*) FROM tenure.dead_letter_job")
}

// pages are all that there are.
func (b *bed) pages() []string {
	return []string{"/", "/cluster", "/pools", "/tenants", "/tenant?id=acme", "/queues", "/audit", "/jobs", "/jobs?state=dead", "/jobs/all/suspend?tenant=acme", "/jobs/all/cancel?tenant=acme", "/jobs/" + b.dead.String(), "/jobs/" + b.waits.String(),
		"/dead", "/schedules", "/batches", "/nodes", "/operations", "/doctor"}
}

// holder is a running node that has a pool's lock, and another one that does not.
func (b *bed) holder(t *testing.T, pool string) (holder, other *process) {
	t.Helper()
	require.Eventually(t, func() bool {
		holder, other = nil, nil
		seen, err := b.op.Pools().Overview(t.Context(), pool)
		for _, p := range b.nodes {
			switch {
			case err != nil || !p.runs():
			case seen.Load.Held && seen.Load.Node == p.name:
				holder = p
			default:
				other = p
			}
		}
		return holder != nil && other != nil
	}, patience, 50*time.Millisecond)
	return holder, other
}

// All tests are of one cluster, and one after the other: what it takes to start one is a few seconds.
func TestDashboard(t *testing.T) {
	b := setup(t)
	t.Run("every page, without a fault", b.testPages)
	t.Run("axe finds nothing serious", b.testAxe)
	t.Run("looked at", b.testLooks)
	t.Run("without scripts", b.testWithoutScripts)
	t.Run("a dead group is retried", b.testRetry)
	t.Run("a frozen tenant stops", b.testFreeze)
	t.Run("a node dies", b.testDeath)
}

func (b *bed) testPages(t *testing.T) {
	p := b.open(t, b.nodes[0])
	for _, path := range b.pages() {
		p.visit(path)
		require.NotEmpty(t, p.text("h1"), path)
		p.faultless()
	}
	p.visit("/")
	p.run(chromedp.WaitVisible(chromedp.CSS("#live")))
	p.until("document.querySelectorAll('.chart path.line').length >= 4") // it was fetched again
	p.faultless()
}

// testDeath watches the map, which is never loaded again.
func (b *bed) testDeath(t *testing.T) {
	victim, witness := b.holder(t, "eu")
	p := b.open(t, witness)
	p.visit("/cluster")
	eval[string](p, "document.body.dataset.loaded = 'once'")
	cell := func(node string) string {
		return fmt.Sprintf(`(() => {
			const column = [...document.querySelectorAll('.map thead th')].findIndex((h) => h.innerText.trim() === %s);
			const row = [...document.querySelectorAll('.map tbody tr')].find((r) => r.cells[0].innerText === 'eu');
			return column < 0 || !row ? '' : row.cells[column].innerText;
		})()`, quoted(node))
	}
	p.until(cell(victim.name) + ".includes('holds')")
	victim.kill()
	p.until("!" + cell(victim.name) + ".includes('holds')")
	p.until("document.querySelectorAll('.map .holder').length === 2")
	p.until("document.querySelector('.changes').innerText.includes(" + quoted("which "+victim.name+" had not released") + ")")
	require.Equal(t, "once", eval[string](p, "document.body.dataset.loaded"))
	p.faultless()
}

// testRetry has the dead letters run once what kept them from it is over.
func (b *bed) testRetry(t *testing.T) {
	b.exec(t, "eu", "DELETE FROM acme.outage")
	p := b.open(t, b.nodes[0])
	p.visit("/dead?tenant=acme")
	require.Contains(t, p.text("table"), "payment.charge")
	require.Contains(t, p.text("tbody"), "5")
	p.press(`a[href*="action=retry"]`)
	require.Contains(t, p.text("main"), "5 of kind payment.charge")
	p.press(`form[action$="/dead/retry"] button`)
	require.Equal(t, "/operations", p.path())
	p.until("document.querySelector('main').innerText.includes('done')") // by itself
	p.visit("/dead?tenant=acme")
	p.until("document.querySelector('main').innerText.includes('No dead letter')")
	require.Zero(t, b.deadLetters(t))
	p.visit("/jobs/" + b.dead.String())
	p.until("document.querySelector('.facts').innerText.includes('done')")
	p.faultless()
}

// testFreeze stops a tenant, and sees that its jobs do, and others' do not.
func (b *bed) testFreeze(t *testing.T) {
	p := b.open(t, b.nodes[0])
	p.visit("/tenant?id=globex")
	p.run(unfold(`form[action$="/tenant/freeze"] button`)...)
	p.press(`form[action$="/tenant/freeze"] button`)
	require.Contains(t, p.text("main"), "frozen")
	sent := func(tenant string) int { return b.count(t, "eu", "SELECT count(*) FROM "+tenant+".sent") }
	running := func() int {
		return b.count(t, "eu", "SELECT count(*) FROM tenure.claim c CROSS JOIN LATERAL unnest(c.job_ids) AS run (id) JOIN tenure.job j ON j.id = run.id WHERE j.tenant_id = 'globex'")
	}
	require.Eventually(t, func() bool { return running() == 0 }, patience, 50*time.Millisecond)
	globex, others := sent("globex"), sent("acme")
	p.until("Number(document.querySelector('.facts a').innerText) >= 10") // they wait, as the page says by itself
	require.Greater(t, sent("acme"), others)
	require.Equal(t, globex, sent("globex"))
	p.press(`form[action$="/tenant/thaw"] button`)
	require.Eventually(t, func() bool { return sent("globex") > globex }, patience, 50*time.Millisecond)
	p.faultless()
}

// testWithoutScripts does by forms and links alone what can be done.
func (b *bed) testWithoutScripts(t *testing.T) {
	p := b.open(t, b.nodes[0], withoutScripts())
	for _, path := range b.pages() {
		p.visit(path)
		require.NotEmpty(t, p.text("h1"), path)
	}
	require.False(t, eval[bool](p, "!document.getElementById('live').hidden"), "what needs scripts is not shown")
	says := func(text string) {
		t.Helper()
		require.Contains(t, p.text("main"), text)
	}
	pressFolded := func(button string) {
		t.Helper()
		p.run(unfold(button)...)
		p.press(button)
	}
	p.visit("/jobs")
	p.run(chromedp.SetValue(chromedp.CSS(`select[name="state"]`), "dead"), chromedp.SendKeys(chromedp.CSS(`input[name="tenant"]`), "acme"))
	p.press("form.filter button")
	says("payment.charge")
	require.NotContains(t, p.text("tbody"), "invoice.send")
	p.press(`tbody a[href*="/jobs/"]`)
	says("bank refused card")

	p.visit("/jobs?state=dead")
	p.run(chromedp.Click(chromedp.CSS(`.pick input`), chromedp.NodeVisible))
	p.press(`#chosen button[formaction$="/retry"]`)
	says("1 job will be retried")
	p.press(`form[action$="/jobs/chosen/retry"] button`)
	says("It is done to 1 of the 1")
	require.Eventually(t, func() bool { return b.deadLetters(t) == 5 }, patience, 50*time.Millisecond, "it dies once more")

	p.visit("/jobs/" + b.waits.String())
	p.press(`form[action$="/suspend"] button`)
	says("It is suspended")
	p.press(`form[action$="/resume"] button`)
	says("It is resumed")
	p.press(`form[action$="/run"] button`)
	says("It runs before all others")
	extra, err := b.client.Enqueue(acme(t.Context()), report{1}, tenure.In(time.Hour))
	require.NoError(t, err)
	p.visit("/jobs/" + extra.ID.String())
	pressFolded(`form[action$="/cancel"] button`)
	says("It is cancelled")

	_, err = b.client.Enqueue(acme(t.Context()), invoice{1}, tenure.In(time.Hour))
	require.NoError(t, err)
	p.visit("/jobs")
	p.run(chromedp.SetValue(chromedp.CSS(`select[name="state"]`), "scheduled"), chromedp.SendKeys(chromedp.CSS(`input[name="kind"]`), "invoice.send"))
	p.press("form.filter button")
	p.press(`a[href*="/jobs/all/suspend"]`)
	says("will be suspended")
	p.press(`main a.button`)
	require.Equal(t, "/jobs", p.path())
	p.press(`a[href*="/jobs/all/cancel"]`)
	says("will be cancelled")
	p.press(`main a.button`)
	require.Equal(t, "/jobs", p.path())

	p.visit("/schedules")
	p.press(`form[action$="/schedules/pause"] button`)
	says("It is paused")
	p.press(`form[action$="/schedules/resume"] button`)
	says("It is resumed")
	p.press(`form[action$="/schedules/run"] button`)
	require.Contains(t, p.path(), "/jobs/")

	p.visit("/batches")
	pressFolded(`form[action$="/cancel"] button`)
	says("It is cancelled")

	p.visit("/tenants")
	p.run(chromedp.SendKeys(chromedp.CSS(`input[name="q"]`), "umb"))
	p.press("form.filter button")
	require.NotContains(t, p.text("tbody"), "acme")
	p.press(`tbody a[href*="/tenant?id=umbrella"]`)
	pressFolded(`form[action$="/tenant/freeze"] button`)
	says("It is frozen")
	p.press(`form[action$="/tenant/thaw"] button`)
	says("It is thawed")

	p.visit("/pools")
	pressFolded(`form[action$="/pools/freeze"] input[value="us"] ~ button`)
	says("It is frozen")
	require.Eventually(t, func() bool { return b.count(t, "us", "SELECT count(*) FROM tenure.acquire_lock WHERE paused") == 1 }, patience, 50*time.Millisecond)
	p.press(`form[action$="/pools/thaw"] button`)
	says("It is thawed")

	p.visit("/dead")
	p.press(`a[href*="action=delete"]`)
	says("will be deleted")
	p.press(`main a.button`)
	require.Equal(t, "/dead", p.path())
	p.visit("/queues?pool=eu")
	p.press("form.filter button")
	require.Equal(t, "/queues", p.path())
	p.visit("/")
	require.Equal(t, 4, eval[int](p, "document.querySelectorAll('.chart svg').length"))
	p.faultless()
}

// testAxe has axe-core look for what people who see, hear or move otherwise would stumble over.
func (b *bed) testAxe(t *testing.T) {
	path := os.Getenv("TENURE_AXE")
	if path == "" {
		t.Fatal("TENURE_AXE is not set: it is the path of axe.min.js, which `make test-browser` fetches")
	}
	axe, err := os.ReadFile(path)
	require.NoError(t, err)
	p := b.open(t, b.nodes[0])
	for _, path := range b.pages() {
		p.visit(path)
		eval[bool](p, string(axe)+"; true")
		for _, room := range rooms {
			p.run(scheme(room))
			found := eval[[]string](p, `axe.run(document, {resultTypes: ['violations']}).then((r) => r.violations
				.filter((v) => v.impact === 'serious' || v.impact === 'critical')
				.flatMap((v) => v.nodes.slice(0, 5).map((n) => v.id + ': ' + v.help + ': ' + n.html + ' ' + n.failureSummary)))`)
			require.Empty(t, found, "%s, %s", path, room)
		}
	}
	p.faultless()
}

// rooms are what the people may be in who look.
var rooms = []string{"light", "dark"}

// shots is where pictures of the pages are put, to be looked at.
const shots = "screenshots"

// rowHeight is how high a row with one line is, at most, in pixels.
const rowHeight = 45

// testLooks takes pictures of each page, and requires that none is wider than its window.
func (b *bed) testLooks(t *testing.T) {
	require.NoError(t, os.RemoveAll(shots))
	require.NoError(t, os.MkdirAll(shots, 0o755))
	p := b.open(t, b.nodes[0])
	for _, path := range b.pages() {
		p.visit(path)
		for _, width := range []int64{360, 1280, 3840} {
			if width == 3840 && path != "/" && path != "/cluster" {
				continue
			}
			p.run(chromedp.EmulateViewport(width, 900))
			require.LessOrEqual(t, eval[int](p, "document.scrollingElement.scrollWidth"), int(width), "%s at %d px", path, width)
			require.Less(t, eval[int](p, "document.querySelector('nav').offsetHeight"), 50, "the menu takes one line")
			require.LessOrEqual(t, eval[int](p, "Math.max(0, ...[...document.querySelectorAll('td.id a')].map((a) => a.offsetHeight))"), 25, "an id takes one line")
			if width > 360 && strings.HasPrefix(path, "/jobs") {
				require.LessOrEqual(t, eval[int](p, "Math.max(0, ...[...document.querySelectorAll('tbody tr')].map((r) => r.offsetHeight))"), rowHeight, path)
			}
			if width == 360 {
				require.Zero(t, eval[int](p, "[...document.querySelectorAll('.box')].filter((b) => b.scrollWidth > b.clientWidth + 1).length"), "%s: nothing is pushed sideways", path)
			}
			require.NotRegexp(t, `\b\d{16,}\b`, p.text("main"), "epochs tell people nothing")
			for _, room := range rooms {
				p.run(scheme(room))
				picture, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
				require.NoError(t, err)
				name := fmt.Sprintf("%s-%d-%s.png", strings.NewReplacer("/", "-", "?", "-", "=", "-", "&", "-").Replace("page"+path), width, room)
				require.NoError(t, os.WriteFile(filepath.Join(shots, name), picture, 0o644))
			}
		}
	}
	p.faultless()
}
