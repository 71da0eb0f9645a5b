package mutant

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const beat = `package acquisition

import "errors"

const factor = 3 // thrice

// renew keeps the lock.
func (k *keeper) renew(h *held) error {
	if err := k.store.Renew(h.epoch); err != nil && !h.trusted {
		h.lost(errors.Join(err))
		return err
	}
	k.renewed = true
	return nil
}

func (k *keeper) pause() bool { return k.renewed && !k.ended }

func idle(n int) bool { return n == 0 }
`

const take = `-- Takes the lock.
UPDATE tenure.lock SET holder = $1, epoch = epoch + 1 WHERE name = $2 AND epoch = $3;
`

func module(t require.TestingT, files map[string]string) *Code {
	c := &Code{texts: map[string]string{}, tests: map[string][]string{}, names: map[string]string{}}
	for file, text := range files {
		require.NoError(t, c.add(file, text))
	}
	return c
}

func TestFind(t *testing.T) {
	t.Parallel()
	trust := Mutant{Name: "trust", File: "acquisition/beat.go", Func: "(*keeper).renew", Old: "err != nil && !h.trusted {", New: "err != nil && h.epoch > 0 {"}
	renewed := Mutant{Name: "renewed", File: "acquisition/beat.go", Func: "(*keeper).renew", Old: "k.renewed = true"}
	factor := Mutant{Name: "factor", File: "acquisition/beat.go", Old: "factor = 3", New: "factor = 1"}
	epoch := Mutant{Name: "epoch", File: "store/take.sql", Old: "AND epoch = $3", New: "AND $3::bigint > 0"}
	for name, c := range map[string]struct {
		mutant  Mutant
		replace []string          // in the code
		more    map[string]string // files
		moved   string            // the folder that beat.go is moved to
		where   string
		broken  string // stands in the broken file
		err     string
	}{
		"as it was":             {mutant: trust, where: "acquisition/beat.go:9", broken: "err != nil && h.epoch > 0 {"},
		"formatted otherwise":   {mutant: trust, replace: []string{"err != nil && !h", "err != nil && // it is over\n\t\t!h"}, where: "acquisition/beat.go:9", broken: "err != nil && h.epoch > 0 {"},
		"a field renamed":       {mutant: trust, replace: []string{"trusted", "stands"}, where: "acquisition/beat.go:9, renamed: trusted → stands"},
		"names of New, too":     {mutant: trust, replace: []string{"h *held", "l *lease", "h.", "l."}, where: "acquisition/beat.go:9, renamed: h → l", broken: "err != nil && l.epoch > 0 {"},
		"a receiver's type":     {mutant: trust, replace: []string{"*keeper", "*Lease"}, where: "acquisition/beat.go:9"},
		"a function renamed":    {mutant: trust, replace: []string{") renew(", ") extend("}, where: "acquisition/beat.go:9"},
		"to another package":    {mutant: trust, moved: "internal/lease/renew.go", replace: []string{"trusted", "Trusted"}, where: "internal/lease/renew.go:9, renamed: trusted → Trusted"},
		"outside of functions":  {mutant: factor, where: "acquisition/beat.go:5", broken: "factor = 1 // thrice"},
		"a constant moved":      {mutant: factor, moved: "acquisition/factor.go", replace: []string{"factor", "outlast"}, err: "does not stand"},
		"a constant only moved": {mutant: factor, moved: "acquisition/factor.go", where: "acquisition/factor.go:5"},
		"SQL":                   {mutant: epoch, where: "store/take.sql:2", broken: "name = $2 AND $3::bigint > 0;"},
		"a column renamed":      {mutant: epoch, replace: []string{"epoch", "term"}, where: "store/take.sql:2, renamed: epoch → term"},
		"a keyword is no name":  {mutant: epoch, replace: []string{"AND epoch", "OR epoch"}, err: "does not stand"},
		"true is no name":       {mutant: renewed, replace: []string{"renewed = true", "renewed = nil"}, err: "does not stand"},
		"twice":                 {mutant: renewed, replace: []string{"\treturn nil", "\tk.renewed = true\n\treturn nil"}, err: "lengthen Old"},
		"twice, by other names": {mutant: renewed, replace: []string{"k.renewed = true", "k.held = true\n\tk.seen = true"}, err: "lengthen Old"},
		"another one looks alike": {mutant: renewed, replace: []string{"k.renewed = true", "k.seen = true"},
			more: map[string]string{"acquisition/other.go": "package acquisition\n\nfunc other(k *keeper) { k.renewed = true }\n"}, where: "acquisition/beat.go:13, renamed: renewed → seen"},
		"an old name that is left is less likely": {mutant: renewed, replace: []string{"k.renewed = true", "k.seen = true\n\tk.ended = true\n\tk.renewed()", "trusted", "ended"}, err: "lengthen Old"},
		"half a token": {mutant: Mutant{Name: "half", File: "acquisition/beat.go", Old: `"err`}, err: "whole tokens"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := strings.NewReplacer(c.replace...)
			at := "acquisition/beat.go"
			if c.moved != "" {
				at = c.moved
			}
			files := map[string]string{at: r.Replace(beat), "store/take.sql": r.Replace(take)}
			maps.Copy(files, c.more)
			f, err := module(t, files).Find(c.mutant)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.where, f.String())
			broken, err := f.Broken()
			require.NoError(t, err)
			require.Contains(t, broken, c.broken)
		})
	}
}

// Whatever names are given to the code, the mutants follow, and break what they broke.
func TestFindFollowsNames(t *testing.T) {
	t.Parallel()
	mutants := []Mutant{
		{Name: "trust", File: "acquisition/beat.go", Func: "(*keeper).renew", Old: "if err := k.store.Renew(h.epoch); err != nil && !h.trusted {", New: "if err := k.store.Renew(h.epoch + 1); err == nil {"},
		{Name: "pause", File: "acquisition/beat.go", Func: "(*keeper).pause", Old: "k.renewed && !k.ended", New: "k.ended && !k.renewed"},
		{Name: "idle", File: "acquisition/beat.go", Func: "idle", Old: "n == 0", New: "n > 0"},
		{Name: "epoch", File: "store/take.sql", Old: "epoch = epoch + 1", New: "epoch = epoch"},
	}
	files := map[string]string{"acquisition/beat.go": beat, "store/take.sql": take}
	was := module(t, files)
	kept := []string{"renew", "pause", "idle"} // a function that is renamed with all that it says is another
	rapid.Check(t, func(t *rapid.T) {
		names, now := map[string]string{}, map[string]string{}
		for _, p := range was.places {
			for name := range p.has {
				names[name] = name
			}
		}
		for i, name := range rapid.Permutation(slices.Sorted(maps.Keys(names))).Draw(t, "names") {
			if rapid.Bool().Draw(t, name) && !slices.Contains(kept, name) {
				names[name] = strings.Repeat("x", i+1) + "y"
			}
		}
		for file, text := range files {
			to, err := rename(file, text, names)
			require.NoError(t, err)
			now[file] = to
		}
		is := module(t, now)
		for _, m := range mutants {
			before, err := was.Find(m)
			require.NoError(t, err)
			broken, err := before.Broken()
			require.NoError(t, err)
			want, err := rename(m.File, broken, names)
			require.NoError(t, err)
			after, err := is.Find(m)
			require.NoError(t, err)
			have, err := after.Broken()
			require.NoError(t, err)
			require.Equal(t, want, have)
		}
	})
}
