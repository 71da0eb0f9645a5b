package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/tenurehq/tenure/cmd/tenure/internal/demo"
	"github.com/tenurehq/tenure/internal/plural"
)

// progress tells how far a long command is: a bar on a terminal, a line now and then
// elsewhere. Safe for concurrent use.
type progress struct {
	out   io.Writer
	what  string
	bar   *progressbar.ProgressBar // nil: out is no terminal
	began time.Time
	end   chan struct{}
	group sync.WaitGroup

	printing            sync.Mutex
	mu                  sync.Mutex
	total, done, failed int // guarded by mu
}

// progressEvery is how often a line is printed: a log is read later.
const progressEvery = 5 * time.Second

func newProgress(out io.Writer, what string, total int) *progress {
	p := &progress{out: out, what: what, total: total, began: time.Now(), end: make(chan struct{})}
	if demo.IsTerminal(out) {
		p.bar = progressbar.NewOptions(total, progressbar.OptionSetWriter(out), progressbar.OptionSetWidth(30), progressbar.OptionShowCount(),
			progressbar.OptionShowIts(), progressbar.OptionSetItsString("pools"), progressbar.OptionSetPredictTime(true),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(), progressbar.OptionSetDescription(what))
		return p
	}
	p.group.Go(func() {
		tick := time.Tick(progressEvery)
		for {
			select {
			case <-p.end:
				return
			case <-tick:
				p.print(p.line(time.Since(p.began)))
			}
		}
	})
	return p
}

// add counts one pool.
func (p *progress) add(failed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	if failed {
		p.failed++
	}
	if p.bar != nil {
		if failed {
			p.bar.Describe(fmt.Sprintf("%s, %d failed", p.what, p.failed))
		}
		_ = p.bar.Add(1) // a terminal that is gone ends nothing
	}
}

// print prints a line beside what is shown.
func (p *progress) print(line string) {
	p.printing.Lock()
	defer p.printing.Unlock()
	if p.bar != nil {
		_ = p.bar.Clear() // it is drawn again with the next pool
	}
	fmt.Fprintln(p.out, line)
}

// line says how far it is after so long.
func (p *progress) line(passed time.Duration) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	rate := float64(p.done) / passed.Seconds()
	left := "unknown"
	if p.done > 0 {
		left = time.Duration(float64(p.total-p.done) / rate * float64(time.Second)).Round(time.Second).String()
	}
	return fmt.Sprintf("%s %d of %s, %d failed, %.0f per second, time left: %s", p.what, p.done, plural.Count(p.total, "pool", "pools"), p.failed, rate, left)
}

// stop ends what is shown.
func (p *progress) stop() {
	close(p.end)
	p.group.Wait()
	if p.bar != nil {
		_ = p.bar.Clear() // likewise
	}
}
