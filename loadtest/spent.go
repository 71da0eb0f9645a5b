package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/tenurehq/tenure/loadtest/internal/bed"
	"github.com/tenurehq/tenure/loadtest/internal/report"
)

// spent is what some work took.
type spent struct {
	took           time.Duration
	here, postgres time.Duration // of the processor; 0 where nothing tells
	allocated      uint64        // bytes of this process, those already freed among them
}

func (s spent) perSecond(jobs int) int  { return int(float64(jobs) / s.took.Seconds()) }
func (s spent) client(jobs int) float64 { return perJob(s.here, jobs) }
func (s spent) server(jobs int) float64 { return perJob(s.postgres, jobs) }
func perJob(d time.Duration, jobs int) float64 {
	return report.Round(float64(d.Microseconds())/1000/float64(jobs), 4)
}

// bytes is how many bytes were allocated for each job.
func (s spent) bytes(jobs int) int { return int(s.allocated) / jobs }

// measureFrom returns what tells what was spent since: time, the processor's of this process
// and of Postgres, and memory.
func measureFrom(postgres int) func() spent {
	allocated := allocatedHere()
	here, there, began := processorOf(os.Getpid(), false), processorOf(postgres, true), time.Now()
	return func() spent {
		return spent{
			time.Since(began), processorOf(os.Getpid(), false) - here, processorOf(postgres, true) - there,
			allocatedHere() - allocated,
		}
	}
}

func allocatedHere() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// measure tells what some work took.
func measure(postgres int, work func() error) (spent, error) {
	spend := measureFrom(postgres)
	err := work()
	return spend(), err
}

// postmaster is the process of the bed's Postgres, whose children the others are.
func postmaster(ctx context.Context, b *bed.Bed) (pid int, err error) {
	conn, err := b.Connect(ctx, "pool-1")
	if err != nil {
		return 0, err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, "SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)::int").Scan(&pid)
	return pid, err
}

// processorOf is the processor's time that a process, and with its family its children, those
// that have ended included, took so far; 0 where there is no /proc.
func processorOf(pid int, family bool) (d time.Duration) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is a constant
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		_, fields, _ := strings.Cut(string(text), ") ") // behind the name, which may hold anything
		var state byte
		var parent int
		var skip, user, system, endedUser, endedSystem int64
		_, err = fmt.Sscanf(fields, "%c %d %d %d %d %d %d %d %d %d %d %d %d %d %d", &state, &parent, &skip, &skip, &skip, &skip, &skip, &skip,
			&skip, &skip, &skip, &user, &system, &endedUser, &endedSystem)
		switch {
		case err != nil:
		case file == fmt.Sprintf("/proc/%d/stat", pid):
			d += time.Duration(user+system) * clockTick
			if family {
				d += time.Duration(endedUser+endedSystem) * clockTick
			}
		case family && parent == pid:
			d += time.Duration(user+system) * clockTick
		}
	}
	return d
}

// clockTick is the unit of /proc's times on Linux.
const clockTick = 10 * time.Millisecond
