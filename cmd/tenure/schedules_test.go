package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSchedules(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1", "p2")
	out := b.ok("schedules", "set", "nightly", "report.build", `{"pages": 3}`, "--tenant", "P1", "--rule", "0 7 * * 1-5", "--time-zone", "Europe/Amsterdam", "--missed", "skip", "--wait", "--queue", "mail")
	require.Contains(t, out, "schedule nightly is set; due next ")
	require.Contains(t, b.ok("schedules", "set", "close", "books.close", "--every-tenant", "--rule", "@monthly", "--jitter", "30m"), "each tenant has it within a minute")
	b.ok("schedules", "set", "close", "books.close", "--tenant", "P2", "--rule", "@daily")
	text := b.ok("schedules", "show", "close", "--every-tenant")
	require.Contains(t, text, "in pool p1 it stands for tenants: 0\nnot for tenants that do not have it yet: the node that holds the pool's lock gives it to them within a minute: 1: \"P1\"\n")
	require.Contains(t, text, "in pool p2 it stands for tenants: 0\nnot for tenants that have their own of that name instead: 1: \"P2\"\n")
	b.ok("schedules", "delete", "close", "--tenant", "P2")
	all := rows(b.ok("schedules", "list"))
	require.Equal(t, [][]string{{"(every tenant)", "close", "active"}, {"(every tenant)", "close", "active"}}, [][]string{all[0][:3], all[1][:3]}, "one in each pool")
	require.Equal(t, []string{"P1", "nightly", "active"}, all[2][:3])

	shown := b.list("schedules", "list", "--tenant", "P1")
	require.Len(t, shown, 1)
	for field, want := range map[string]any{"tenant": "P1", "name": "nightly", "pool": "p1", "origin": "set", "kind": "report.build", "queue": "mail", "rule": "0 7 * * 1-5",
		"time_zone": "Europe/Amsterdam", "missed": "skip", "wait": true, "state": "active", "args": map[string]any{"pages": 3.0}} {
		require.Equal(t, want, shown[0][field], field)
	}

	require.Equal(t, "schedule nightly is paused\n", b.ok("schedules", "pause", "nightly", "--tenant", "P1"))
	text = b.ok("schedules", "show", "nightly", "--tenant", "P1")
	require.Contains(t, text, "paused")
	require.Contains(t, text, `"pages": 3`)
	require.Equal(t, "schedule nightly goes on\n", b.ok("schedules", "resume", "nightly", "--tenant", "P1"))
	require.Contains(t, b.ok("schedules", "run", "nightly", "--tenant", "P1"), "schedule nightly has added job ")
	require.Contains(t, b.ok("jobs", "list", "--tenant", "P1"), "report.build")
	require.Equal(t, "schedule nightly is deleted\n", b.ok("schedules", "delete", "nightly", "--tenant", "P1"))
	require.Equal(t, "schedule close is deleted\n", b.ok("schedules", "delete", "close", "--every-tenant"))

	r := b.fails(exitUsage, "schedules", "set", "s", "k", "--tenant", "P1", "--rule", "61 * * * *")
	require.Contains(t, r.errors, "rule")
	require.Contains(t, r.errors, "61")
	r = b.fails(exitUsage, "schedules", "set", "s", "k", "--tenant", "P1", "--rule", "@daily", "--time-zone", "Europe/Amsterdm")
	require.Contains(t, r.errors, "time_zone")
	r = b.fails(exitUsage, "schedules", "set", "s", "k", "--rule", "@daily")
	require.Contains(t, r.errors, "--every-tenant")
	r = b.fails(exitUsage, "schedules", "set", "s", "k", "--tenant", "P1", "--rule", "@daily", "--end", "tomorrow")
	require.Contains(t, r.errors, "--end")
	r = b.fails(exitFailed, "schedules", "show", "nightly", "--tenant", "P1")
	require.Contains(t, r.errors, "see: tenure schedules list")
	r = b.fails(exitFailed, "schedules", "pause", "nightly", "--tenant", "P1")
	require.Contains(t, r.errors, "no such schedule")
}
