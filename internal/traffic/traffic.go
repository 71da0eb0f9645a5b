// Package traffic is recorded or generated load: which tenant asks for what, when,
// and how long that takes.
//
// It reads two published formats (see [Read]) and generates traffic of the same
// shape where no recording is at hand: bursts, durations with a heavy tail, a few
// loud tenants and many quiet ones. All but [Play] is a pure function of its input.
package traffic

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tenurehq/tenure/internal/wait"
)

// Call is one request for work.
type Call struct {
	At     time.Duration // since the first call
	Tenant string        // as the recording names it
	Kind   string        // as the recording names it
	Took   time.Duration
}

// Read reads a recording, the earliest call first. The format is told by the header:
//
//	app,func,end_timestamp,duration           Azure Functions Invocation Trace 2021:
//	                                          an application is a tenant, times in seconds
//	TIMESTAMP,ContextTokens,GeneratedTokens   Azure LLM Inference Trace 2023: arrivals at
//	                                          one service, whose tenant is "llm"
//
// Errors name the file and the line.
func Read(path string) ([]Call, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	calls, err := parse(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return calls, nil
}

var (
	functionsHeader = []string{"app", "func", "end_timestamp", "duration"}
	llmHeader       = []string{"TIMESTAMP", "ContextTokens", "GeneratedTokens"}
)

func parse(r io.Reader) ([]Call, error) {
	rows := csv.NewReader(r)
	rows.ReuseRecord = true
	header, err := rows.Read()
	if err != nil {
		return nil, fmt.Errorf("no header: %w", err)
	}
	var row func([]string) (Call, error)
	switch {
	case slices.Equal(header, functionsHeader):
		row = functionsRow
	case slices.Equal(header, llmHeader):
		row = llmRow
	default:
		return nil, fmt.Errorf("line 1: columns %v are not those of a known trace: %v or %v", header, functionsHeader, llmHeader)
	}
	var calls []Call
	for {
		fields, err := rows.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err // names the line
		}
		c, err := row(fields)
		if err != nil {
			line, _ := rows.FieldPos(0)
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		calls = append(calls, c)
	}
	if len(calls) == 0 {
		return nil, errors.New("no calls in it")
	}
	return fromFirst(calls), nil
}

// fromFirst sorts calls and counts their times from the first.
func fromFirst(calls []Call) []Call {
	slices.SortStableFunc(calls, func(a, b Call) int { return cmp.Compare(a.At, b.At) })
	first := calls[0].At
	for i := range calls {
		calls[i].At -= first
	}
	return calls
}

func functionsRow(f []string) (Call, error) {
	end, err := seconds(f[2])
	if err != nil {
		return Call{}, err
	}
	took, err := seconds(f[3])
	if err != nil {
		return Call{}, err
	}
	if took < 0 {
		return Call{}, fmt.Errorf("a duration of %s s", f[3])
	}
	return Call{At: end - took, Tenant: f[0], Kind: f[1], Took: took}, nil
}

func seconds(s string) (time.Duration, error) {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(v) || math.Abs(v) > 1e9 {
		return 0, fmt.Errorf("%q is not a number of seconds", s)
	}
	return time.Duration(v * float64(time.Second)), nil
}

// The recording has tokens but no durations. These stand for them: reading the
// context at some 20,000 tokens/s, writing at some 50 tokens/s.
const (
	perContextToken   = 50 * time.Microsecond
	perGeneratedToken = 20 * time.Millisecond
)

func llmRow(f []string) (Call, error) {
	at, err := time.Parse("2006-01-02 15:04:05.9999999", f[0])
	if err != nil {
		return Call{}, fmt.Errorf("%q is not a time", f[0])
	}
	var tokens [2]int
	for i := range tokens {
		if tokens[i], err = strconv.Atoi(f[i+1]); err != nil || tokens[i] < 0 || tokens[i] > 1e7 {
			return Call{}, fmt.Errorf("%q is not a number of tokens", f[i+1])
		}
	}
	took := time.Duration(tokens[0])*perContextToken + time.Duration(tokens[1])*perGeneratedToken
	return Call{At: time.Duration(at.UnixNano()), Tenant: "llm", Kind: "completion", Took: took}, nil
}

// Generate makes n calls of tenants "app-1" … over about an hour: arrivals in
// bursts, durations from milliseconds to minutes, and the k-th tenant asking about
// 1/k as often as the first.
func Generate(seed uint64, n, tenants int) []Call {
	r := rand.New(rand.NewPCG(seed, 1))
	zipf := rand.NewZipf(r, 1.3, 1, uint64(max(tenants, 1)-1))
	calls := make([]Call, 0, n)
	at := time.Duration(0)
	for len(calls) < n {
		// A burst: a geometric number of calls, close together; then a pause.
		burst := 1 + int(r.ExpFloat64()*8)
		tenant := fmt.Sprintf("app-%d", zipf.Uint64()+1)
		kind := fmt.Sprintf("func-%d", r.IntN(3)+1)
		for range min(burst, n-len(calls)) {
			at += time.Duration(r.ExpFloat64() * float64(20*time.Millisecond))
			took := time.Duration(math.Exp(r.NormFloat64()*1.8) * float64(80*time.Millisecond))
			calls = append(calls, Call{At: at, Tenant: tenant, Kind: kind, Took: min(took, 5*time.Minute)})
		}
		at += time.Duration(r.ExpFloat64() * float64(3*time.Second))
	}
	return fromFirst(calls)
}

// Fit shrinks calls to a number and a length of time: n of them, evenly chosen, the
// last beginning at about the given time, and no one taking longer than longest.
// Shape is kept: arrivals and durations are scaled, not redrawn. With fewer calls
// than n the recording is repeated, one round after another.
func Fit(calls []Call, n int, over, longest time.Duration) []Call {
	if n <= 0 || len(calls) == 0 {
		return nil
	}
	span := calls[len(calls)-1].At + time.Millisecond
	rounds := (n + len(calls) - 1) / len(calls)
	pool := make([]Call, 0, rounds*len(calls))
	for i := range rounds {
		for _, c := range calls {
			c.At += time.Duration(i) * span
			pool = append(pool, c)
		}
	}
	out := make([]Call, n)
	slowest := time.Duration(1)
	for i := range out {
		out[i] = pool[i*len(pool)/n]
		slowest = max(slowest, out[i].Took)
	}
	out = fromFirst(out)
	last := max(out[n-1].At, 1)
	for i := range out {
		out[i].At = time.Duration(float64(out[i].At) / float64(last) * float64(over))
		out[i].Took = time.Duration(float64(out[i].Took) / float64(slowest) * float64(longest))
	}
	return out
}

// Tenants lists the tenants of calls, the loudest first.
func Tenants(calls []Call) []string {
	count := map[string]int{}
	for _, c := range calls {
		count[c.Tenant]++
	}
	names := make([]string, 0, len(count))
	for name := range count {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b))
	})
	return names
}

// atOnce is how many calls are made at a time: one after the other would fall behind a burst.
const atOnce = 8

// Play makes every call at its time. The first one that fails ends it.
func Play(ctx context.Context, calls []Call, do func(ctx context.Context, i int, c Call) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	began := time.Now()
	for i, c := range calls {
		if wait.For(ctx, c.At-time.Since(began)) != nil {
			break
		}
		slots <- struct{}{}
		group.Go(func() {
			if err := do(ctx, i, c); err != nil {
				cancel(err)
			}
			<-slots
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

// Merge puts recordings together in order of time.
func Merge(all ...[]Call) []Call {
	out := slices.Concat(all...)
	slices.SortStableFunc(out, func(a, b Call) int { return cmp.Compare(a.At, b.At) })
	return out
}
