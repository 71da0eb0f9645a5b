package demo

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/schollz/progressbar/v3"

	"github.com/tenurehq/tenure/internal/plural"
)

// screen tells how the demo goes: in lines, and while jobs run in a progress bar and a table
// that is drawn again in place on a terminal, or one line now and then elsewhere.
type screen struct {
	out      io.Writer
	terminal bool

	stage  *stage
	play   *play
	bar    *progressbar.ProgressBar
	before map[string]int64 // finished at the last look, by pool
	began  time.Time
	at     time.Time // of the last look

	mu    sync.Mutex
	drawn int // guarded by mu; lines of the table that stands at the end of what was written
}

// How often to look: a terminal is watched, a log is read later.
const (
	terminalEvery = 500 * time.Millisecond
	plainEvery    = 4 * time.Second
)

// columns is how wide a line gets.
const columns = 80

func newScreen(out io.Writer) *screen { return &screen{out: out, terminal: IsTerminal(out)} }

// say writes a line of text, broken where it is too long, above what is drawn. It may be
// called concurrently.
func (s *screen) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(wrap(fmt.Sprintf(format, args...)), 0)
}

// write replaces what was drawn; drawn is how many lines of text are to be replaced in
// their turn. The caller has mu.
func (s *screen) write(text string, drawn int) {
	if s.drawn > 0 {
		text = fmt.Sprintf("\x1b[%dA\x1b[J", s.drawn) + text
	}
	s.drawn = drawn
	_, _ = io.WriteString(s.out, text) // nobody to tell
}

// wrap breaks a text between words. What begins with a space, such as a command, stays.
func wrap(text string) string {
	if strings.HasPrefix(text, " ") {
		return text + "\n"
	}
	var b strings.Builder
	at := 0
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case at+1+n > columns:
			b.WriteString("\n  ")
			at = 2
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += n
	}
	return b.String() + "\n"
}

// start draws how the play goes until the returned function is called, which draws a last
// time.
func (s *screen) start(ctx context.Context, stage *stage, play *play) (stop func()) {
	s.stage, s.play, s.before, s.began, s.at = stage, play, map[string]int64{}, time.Now(), time.Now()
	s.bar = progressbar.NewOptions(play.total, progressbar.OptionSetWriter(io.Discard), progressbar.OptionSetWidth(40),
		progressbar.OptionShowCount(), progressbar.OptionSetDescription("finished"), progressbar.OptionSetPredictTime(false))
	every := plainEvery
	if s.terminal {
		every = terminalEvery
	}
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		tick := time.Tick(every)
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick:
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
		s.mu.Lock()
		defer s.mu.Unlock()
		s.drawn = 0 // it stays
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
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.terminal {
		s.write(s.line(rows, finished), 0)
		return
	}
	_ = s.bar.Set64(min(finished, int64(s.play.total)))
	var b strings.Builder
	b.WriteString(strings.TrimSpace(s.bar.String()) + "\n")
	t := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "POOL\tELECTED\tHOLDER\tEPOCH\tDONE/S\tWAITING")
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%.0f\t%d\n", r.pool, r.elected, r.holder, r.epoch, r.perSecond, r.waiting)
	}
	t.Flush()
	if left := s.left(); left != "" {
		b.WriteString(left + "\n")
	}
	s.write(b.String(), strings.Count(b.String(), "\n"))
}

// line is how it goes, in one line.
func (s *screen) line(rows []row, finished int64) string {
	held := map[string]int{}
	perSecond := 0.0
	for _, r := range rows {
		perSecond += r.perSecond
		if r.holder != nobody {
			held[r.holder]++
		}
	}
	text := fmt.Sprintf("%4.0f s  %d of %d finished, %.0f/s; ", time.Since(s.began).Seconds(), finished, s.play.total, perSecond)
	if left := s.left(); left != "" {
		return text + left + "\n"
	}
	var holders []string
	for _, name := range slices.Sorted(maps.Keys(held)) {
		holder := fmt.Sprintf("%s %d", name, held[name])
		if v := s.play.victim.Load(); v != nil && *v == name {
			holder += " (dead)"
		}
		holders = append(holders, holder)
	}
	if locks := "locks: " + strings.Join(holders, ", "); len(text)+len(locks) <= columns {
		return text + locks + "\n"
	}
	return text + plural.Count(len(held), "node holds", "nodes hold") + " locks\n"
}

// left says when what a killed node left behind starts again, as long as that is to come.
func (s *screen) left() string {
	r := s.play.again.Load()
	if r == nil {
		return ""
	}
	in := time.Until(r.at).Round(time.Second)
	if in < 0 {
		return ""
	}
	return fmt.Sprintf("%s of %s %s again in %.0f s", plural.Count(r.jobs, "job", "jobs"), r.node, plural.Which(r.jobs, "starts", "start"), in.Seconds())
}

// look asks every pool; nil when one did not answer this time.
func (s *screen) look(ctx context.Context) (rows []row, finished int64) {
	counts, err := s.stage.client.Operator().Pools().Count(ctx)
	if err != nil {
		return nil, 0
	}
	now := time.Now()
	passed := now.Sub(s.at).Seconds()
	s.at = now
	for i, l := range s.stage.client.Operator().Pools().Locks(ctx) {
		if l.Err != nil {
			return nil, 0
		}
		c := counts[i]
		r := row{pool: l.Pool, elected: cmp.Or(s.stage.client.Operator().Pools().Elected(l.Pool), nobody), holder: cmp.Or(holderOf(l.Holder), nobody), epoch: l.Epoch, waiting: c.Waiting}
		r.perSecond = float64(c.Finished-s.before[l.Pool]) / max(passed, 0.001)
		s.before[l.Pool] = c.Finished
		finished += c.Finished
		rows = append(rows, r)
	}
	return rows, finished
}

// nobody stands where no node's name does.
const nobody = "–"
