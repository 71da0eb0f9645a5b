package demo

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/schollz/progressbar/v3"
)

// screen shows how the play goes: a progress bar and a table that is drawn again in
// place on a terminal, and a line now and then elsewhere.
type screen struct {
	out      io.Writer
	stage    *stage
	play     *play
	terminal bool
	bar      *progressbar.ProgressBar
	drawn    int              // lines to go back over
	before   map[string]int64 // finished at the last look, by pool
	at       time.Time        // of the last look
}

// How often to look: a terminal is watched, a log is read later.
const (
	terminalEvery = 500 * time.Millisecond
	plainEvery    = 4 * time.Second
)

func newScreen(out io.Writer, s *stage, p *play) *screen {
	return &screen{out: out, stage: s, play: p, terminal: IsTerminal(out), before: map[string]int64{}, at: time.Now(),
		bar: progressbar.NewOptions(p.total, progressbar.OptionSetWriter(io.Discard), progressbar.OptionSetWidth(40),
			progressbar.OptionShowCount(), progressbar.OptionSetDescription("finished"), progressbar.OptionSetPredictTime(false))}
}

// start draws until the returned function is called, which draws a last time.
func (s *screen) start(ctx context.Context) (stop func()) {
	every := plainEvery
	if s.terminal {
		every = terminalEvery
	}
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				s.draw(ctx)
			}
		}
	})
	return func() {
		cancel()
		group.Wait()
		last, done := context.WithTimeout(context.Background(), 5*time.Second)
		defer done()
		s.draw(last)
	}
}

// row is a pool on the screen.
type row struct {
	pool, elected, holder string
	epoch                 int64
	perSecond             float64
	waiting               int64
}

func (s *screen) draw(ctx context.Context) {
	rows, finished := s.look(ctx)
	if rows == nil {
		return
	}
	_ = s.bar.Set64(min(finished, int64(s.play.total)))
	var b strings.Builder
	if s.terminal {
		if s.drawn > 0 {
			fmt.Fprintf(&b, "\x1b[%dA\x1b[J", s.drawn)
		}
		b.WriteString(strings.TrimSpace(s.bar.String()) + "\n")
		t := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
		fmt.Fprintln(t, "POOL\tELECTED\tHOLDER\tEPOCH\tDONE/S\tWAITING")
		for _, r := range rows {
			fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%.0f\t%d\n", r.pool, r.elected, r.holder, r.epoch, r.perSecond, r.waiting)
		}
		t.Flush()
		s.drawn = len(rows) + 2
	} else {
		fmt.Fprintf(&b, "%d of %d finished", finished, s.play.total)
		for _, r := range rows {
			fmt.Fprintf(&b, " | %s: holder %s, %.0f/s, %d waiting", r.pool, r.holder, r.perSecond, r.waiting)
		}
		b.WriteByte('\n')
	}
	_, _ = io.WriteString(s.out, b.String())
}

// look asks every pool; nil when one did not answer this time.
func (s *screen) look(ctx context.Context) (rows []row, finished int64) {
	counts, err := s.stage.client.Count(ctx)
	if err != nil {
		return nil, 0
	}
	now := time.Now()
	passed := now.Sub(s.at).Seconds()
	s.at = now
	for i, l := range s.stage.client.LockStatuses(ctx) {
		if l.Err != nil {
			return nil, 0
		}
		c := counts[i]
		r := row{pool: l.Pool, elected: orDash(s.stage.client.Elected(l.Pool)), holder: orDash(holderOf(l.Holder)), epoch: l.Epoch, waiting: c.Waiting}
		r.perSecond = float64(c.Finished-s.before[l.Pool]) / max(passed, 0.001)
		s.before[l.Pool] = c.Finished
		finished += c.Finished
		rows = append(rows, r)
	}
	return rows, finished
}

func orDash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}
