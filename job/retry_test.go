package job_test

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tenurehq/tenure/job"
)

const day = 24 * time.Hour

func TestParseDuration(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]time.Duration{
		"0":                      0,
		"90s":                    90 * time.Second,
		"1h30m":                  90 * time.Minute,
		"1.5h":                   90 * time.Minute,
		"-5m":                    -5 * time.Minute, // callers say which sign they want
		"PT90S":                  90 * time.Second,
		"PT0S":                   0,
		"PT5M":                   5 * time.Minute,
		"P1D":                    day,
		"P2W":                    14 * day,
		"P1W2DT3H4M5S":           9*day + 3*time.Hour + 4*time.Minute + 5*time.Second,
		"PT36H":                  36 * time.Hour, // a unit may run over
		"PT0.001S":               time.Millisecond,
		"PT1.000000001S":         time.Second + 1,
		"P1WT0.000000001S":       7*day + 1,
		"P5000WT1.000000001S":    5000*7*day + time.Second + 1, // more digits than a float64 has
		"PT000000000000000005S":  5 * time.Second,
		"PT0.00000000000000001S": 0, // finer than a duration can be
	} {
		t.Run(s, func(t *testing.T) {
			t.Parallel()
			got, err := job.ParseDuration(s)
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
}

func TestParseDuration_refuses(t *testing.T) {
	t.Parallel()
	const (
		goForm  = "is not a duration: write 90s, 5m, 1h30m or PT5M"
		isoForm = "is not a duration: write PT90S, PT5M or P1DT12H, without years and months"
		tooLong = "is too long a duration"
	)
	for s, want := range map[string]string{
		"":      goForm,
		"5":     `has no unit: write 5s, 5m or 5h`,
		"-5":    `has no unit: write -5s, -5m or -5h`,
		"1.5":   `has no unit: write 1.5s, 1.5m or 1.5h`,
		"soon":  goForm,
		"5 m":   goForm,
		"5d":    goForm,
		"pt5m":  goForm,
		"-PT5M": goForm,
		"1h30":  goForm,
		// Numbers in strconv's eyes, but no unit would make durations of them.
		"nan":      goForm,
		"NaN":      goForm,
		"inf":      goForm,
		"-inf":     goForm,
		"+Inf":     goForm,
		"infinity": goForm,
		"1e5":      goForm,
		"0x1p4":    goForm,

		"P":        isoForm,
		"PT":       isoForm,
		"P1DT":     isoForm,
		"P1Y":      isoForm,
		"P1M":      isoForm,
		"P5":       isoForm,
		"PT5":      isoForm,
		"PT1S2M":   isoForm,
		"P1D2W":    isoForm,
		"PT5M5M":   isoForm,
		"PT-5M":    isoForm,
		"P-1D":     isoForm,
		"PT1.5H":   isoForm,
		"PT.5S":    isoForm,
		"PT5.S":    isoForm,
		"PT0,5S":   isoForm,
		"P1DT12":   isoForm,
		"PT5M ":    isoForm,
		"PT5M\n":   isoForm,
		"P1T5M":    isoForm,
		"PT١S":     isoForm,
		"P1DPT1S":  isoForm,
		"PT5S/P1D": isoForm,

		"P99999999D":                          tooLong,
		"PT9223372036854775807H":              tooLong,
		"P" + strings.Repeat("9", 400) + "D":  tooLong,
		"PT" + strings.Repeat("9", 400) + "S": tooLong,
		"P106751DT9223372036S":                tooLong, // each part alone would do
	} {
		t.Run(strconv.Quote(s), func(t *testing.T) {
			t.Parallel()
			d, err := job.ParseDuration(s)
			require.ErrorContains(t, err, strconv.Quote(s)+" "+want)
			require.Zero(t, d)
		})
	}
}

// durations that ISO 8601 can say in every unit, up to some seventy years.
func drawDuration(rt *rapid.T) time.Duration {
	return time.Duration(rapid.Int64Range(0, math.MaxInt64/4).Draw(rt, "duration"))
}

func iso(d time.Duration) string {
	part := func(unit time.Duration) time.Duration {
		n := d / unit
		d %= unit
		return n
	}
	return fmt.Sprintf("P%dW%dDT%dH%dM%d.%09dS", part(7*day), part(day), part(time.Hour), part(time.Minute), part(time.Second), d)
}

func TestParseDuration_roundTrips(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		d := drawDuration(rt)
		for _, s := range []string{d.String(), iso(d)} {
			got, err := job.ParseDuration(s)
			require.NoError(rt, err)
			require.Equal(rt, d, got, s)
		}
	})
}

func FuzzParseDuration(f *testing.F) {
	for _, s := range []string{"90s", "5", "nan", "P1W2DT3H4M5.6S", "PT", "P", "PT9999999999999999H", "-1h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := job.ParseDuration(s)
		if err != nil {
			require.Zero(t, d)
			return
		}
		again, err := job.ParseDuration(d.String())
		require.NoError(t, err)
		require.Equal(t, d, again)
		if strings.HasPrefix(s, "P") {
			require.GreaterOrEqual(t, d, time.Duration(0), s)
		}
	})
}

func TestParsePolicy(t *testing.T) {
	t.Parallel()
	const m = time.Minute
	for s, want := range map[string][]time.Duration{ // the delays after attempts 1, 2, …; one fewer than attempts
		"R5/PT5M":        {5 * m, 5 * m, 5 * m, 5 * m},
		"R1/PT5M":        {},
		"R2/PT0S":        {0},
		"PT1M":           {m},
		"PT1M,PT5M,PT1H": {m, 5 * m, 60 * m},
		"1m, 5m ,1h":     {m, 5 * m, 60 * m},
		"0s":             {0},
		" R3/P1D ":       {day, day},
	} {
		t.Run(s, func(t *testing.T) {
			t.Parallel()
			p, err := job.ParsePolicy(s)
			require.NoError(t, err)
			require.Equal(t, len(want)+1, p.Attempts())
			for i, d := range want {
				require.Equal(t, d, p.Delay(i+1), "after attempt %d", i+1)
			}
			require.Equal(t, strings.TrimSpace(s), p.String())
		})
	}
}

func TestParsePolicy_exponential(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"exponential(10, 10s, 6h)", "exponential(10,PT10S,PT6H)", "exponential(  10 ,10s  , 6h )"} {
		p, err := job.ParsePolicy(s)
		require.NoError(t, err, s)
		require.Equal(t, 10, p.Attempts())
		for attempt, want := range []float64{10, 30, 90, 270, 810, 2430, 7290, 21600, 21600} {
			require.InEpsilon(t, want, p.Delay(attempt+1).Seconds(), 0.1000001, "after attempt %d", attempt+1)
		}
	}
	p, err := job.ParsePolicy("exponential(10, 10s, 6h)")
	require.NoError(t, err)
	require.Equal(t, job.DefaultPolicy(), p)
}

func TestParsePolicy_refuses(t *testing.T) {
	t.Parallel()
	const forms = "write a cycle such as R5/PT5M, a list such as PT1M,PT5M,PT1H, or exponential(10, 10s, 6h)"
	for s, want := range map[string]string{
		"":                                 forms,
		"5":                                forms,
		"never":                            forms,
		"R5":                               forms,
		"R/PT5M":                           forms, // for ever
		"R-1/PT5M":                         forms,
		"R5/90s":                           forms,
		"PT1M,":                            forms,
		",PT1M":                            forms,
		"PT1M;PT5M":                        "without years and months",
		"exponential(10, 10s)":             forms,
		"exponential(10, 10s, 6h, 7h)":     forms,
		"exponential(ten, 10s, 6h)":        forms,
		"Exponential(10, 10s, 6h)":         forms,
		"R5/PT5M,PT6M":                     "is not a duration",
		"R5/P1M":                           "without years and months",
		"exponential(10, 10, 6h)":          `"10" has no unit`,
		"exponential(10, 10s, 6)":          `"6" has no unit`,
		"exponential(10, nan, 6h)":         `"nan" is not a duration`,
		"exponential(10, 0s, 6h)":          "the first delay must be positive",
		"exponential(10, -1s, 6h)":         "the first delay must be positive",
		"exponential(10, 7h, 6h)":          "the longest not below it",
		"exponential(10, 10s, P367D)":      "at most 366 days",
		"R0/PT5M":                          "0 attempts: 1 to 1000 are allowed",
		"R1001/PT5M":                       "1001 attempts: 1 to 1000 are allowed",
		"R99999999999999999999/PT5M":       "99999999999999999999 attempts: 1 to 1000 are allowed",
		"exponential(0, 10s, 6h)":          "0 attempts: 1 to 1000 are allowed",
		"exponential(1001, 10s, 6h)":       "1001 attempts: 1 to 1000 are allowed",
		"R5/P367D":                         "a delay of 8808h0m0s: 0 to 366 days are allowed",
		"1m,-1m":                           "a delay of -1m0s: 0 to 366 days are allowed",
		strings.Repeat("1s,", 1000) + "1s": "1002 attempts: 1 to 1000 are allowed",
	} {
		t.Run(s[:min(len(s), 40)], func(t *testing.T) {
			t.Parallel()
			p, err := job.ParsePolicy(s)
			require.ErrorContains(t, err, want)
			require.ErrorContains(t, err, "retry "+strconv.Quote(s))
			require.Zero(t, p)
		})
	}
}

func drawPolicy(rt *rapid.T) string {
	seconds := rapid.IntRange(0, int(job.MaxDelay/time.Second))
	form := func(n int) string {
		if rapid.Bool().Draw(rt, "iso") {
			return iso(time.Duration(n) * time.Second)
		}
		return (time.Duration(n) * time.Second).String()
	}
	attempts := rapid.IntRange(1, job.MaxMaxAttempts).Draw(rt, "attempts")
	switch rapid.SampledFrom([]string{"cycle", "list", "exponential"}).Draw(rt, "form") {
	case "cycle":
		return fmt.Sprintf("R%d/%s", attempts, iso(time.Duration(seconds.Draw(rt, "delay"))*time.Second))
	case "list":
		var parts []string
		for _, n := range rapid.SliceOfN(seconds, 1, 20).Draw(rt, "delays") {
			parts = append(parts, form(n))
		}
		return strings.Join(parts, ",")
	}
	most := rapid.IntRange(1, int(job.MaxDelay/time.Second)).Draw(rt, "max")
	return fmt.Sprintf("exponential(%d, %s, %s)", attempts, form(rapid.IntRange(1, most).Draw(rt, "first")), form(most))
}

func TestPolicy_roundTripsAndIsBounded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		p, err := job.ParsePolicy(drawPolicy(rt))
		require.NoError(rt, err)
		again, err := job.ParsePolicy(p.String())
		require.NoError(rt, err)
		require.Equal(rt, p, again)
		d := p.Delay(rapid.Int().Draw(rt, "attempt"))
		require.GreaterOrEqual(rt, d, time.Duration(0))
		require.LessOrEqual(rt, d, job.MaxDelay+job.MaxDelay/10)
	})
}

func FuzzParsePolicy(f *testing.F) {
	for _, s := range []string{"R5/PT5M", "PT1M,PT5M,PT1H", "exponential(10, 10s, 6h)", "R/", ",", "exponential(", "R1/P"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := job.ParsePolicy(s)
		if err != nil {
			require.Zero(t, p)
			return
		}
		require.Positive(t, p.Attempts())
		require.LessOrEqual(t, p.Attempts(), job.MaxMaxAttempts)
		for _, attempt := range []int{math.MinInt, 0, 1, 2, p.Attempts(), math.MaxInt} {
			require.GreaterOrEqual(t, p.Delay(attempt), time.Duration(0))
		}
		again, err := job.ParsePolicy(p.String())
		require.NoError(t, err)
		require.Equal(t, p, again)
	})
}

func TestPolicy_Delay(t *testing.T) {
	t.Parallel()
	t.Run("a list repeats its last", func(t *testing.T) {
		t.Parallel()
		p, err := job.ParsePolicy("1m,5m,1h")
		require.NoError(t, err)
		// A job's own max_attempts may be higher than the policy's.
		for attempt, want := range map[int]time.Duration{
			math.MinInt: time.Minute, 0: time.Minute, 1: time.Minute, 2: 5 * time.Minute,
			3: time.Hour, 4: time.Hour, 1000: time.Hour, math.MaxInt: time.Hour,
		} {
			require.Equal(t, want, p.Delay(attempt), "after attempt %d", attempt)
		}
	})
	t.Run("exponential spreads by a tenth either way, and no more", func(t *testing.T) {
		t.Parallel()
		p := job.DefaultPolicy()
		for attempt, middle := range map[int]time.Duration{-1: 10 * time.Second, 1: 10 * time.Second, 3: 90 * time.Second, 8: 6 * time.Hour, math.MaxInt: 6 * time.Hour} {
			least, most := time.Duration(math.MaxInt64), time.Duration(0)
			for range 1000 {
				d := p.Delay(attempt)
				least, most = min(least, d), max(most, d)
			}
			require.GreaterOrEqual(t, least, middle*9/10-1, "attempt %d", attempt)
			require.LessOrEqual(t, most, middle*11/10, "attempt %d", attempt)
			require.Less(t, least, middle*95/100, "attempt %d: a thousand jobs that failed together return together", attempt)
			require.Greater(t, most, middle*105/100, "attempt %d: a thousand jobs that failed together return together", attempt)
		}
	})
	t.Run("the default outlasts a night", func(t *testing.T) {
		t.Parallel()
		p := job.DefaultPolicy()
		var total time.Duration
		for attempt := 1; attempt < p.Attempts(); attempt++ {
			total += p.Delay(attempt)
		}
		require.InDelta(t, 15, total.Hours(), 2)
	})
}
