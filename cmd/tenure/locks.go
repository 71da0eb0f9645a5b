package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
)

func newLocks(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "locks",
		Short: "Say which node holds each pool's acquire lock",
		Args:  cobra.NoArgs,
	}
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := a.loadConfig()
		if err != nil {
			return err
		}
		return a.read(cmd.Context(), cfg, func(ctx context.Context, client *tenure.Client) (unanswered, err error) {
			locks, unanswered := readLocks(ctx, client)
			if *output == asJSON {
				return unanswered, printJSON(a.stdout, locks)
			}
			return unanswered, a.printLocks(locks)
		})
	}
	return cmd
}

// jsonLock is an acquire lock as -o json prints it.
type jsonLock struct {
	Pool    string     `json:"pool"`
	Node    string     `json:"node,omitempty"`
	Member  string     `json:"member,omitempty"` // the holder; none: nobody
	Next    string     `json:"reserved_for,omitempty"`
	Epoch   int64      `json:"epoch"`
	Since   *time.Time `json:"since"`
	Expires float64    `json:"expires_in_seconds"` // unheld: until its reservation ends
	Paused  bool       `json:"paused"`
}

// readLocks reads the locks and, for their names, the sessions of their holders.
func readLocks(ctx context.Context, client *tenure.Client) (locks []jsonLock, unanswered error) {
	nodes := map[uuid.UUID]string{}
	sessions, _ := client.SessionStatuses(ctx) // the lock of a pool that fails here fails, too
	for _, s := range sessions {
		nodes[s.ID] = s.Node
	}
	locks = []jsonLock{}
	var errs []error
	unfit := client.Unfit() // whoever calls says why they are
	for _, l := range client.LockStatuses(ctx) {
		if unfit[l.Pool] != nil {
			continue
		}
		if l.Err != nil {
			errs = append(errs, fmt.Errorf("pool %s: %w", l.Pool, l.Err))
			continue
		}
		locks = append(locks, jsonLock{
			Pool: l.Pool, Node: nodes[l.Session], Member: l.Holder, Next: l.Next, Epoch: l.Epoch,
			Since: jsonTime(l.TakenAt), Expires: l.Remaining.Seconds(), Paused: l.Paused,
		})
	}
	return locks, errors.Join(errs...)
}

func (a *app) printLocks(locks []jsonLock) error {
	var rows [][]string
	for _, l := range locks {
		row := []string{l.Pool, l.Node, l.Member, strconv.FormatInt(l.Epoch, 10), "", "", yesNo(l.Paused)}
		left := time.Duration(l.Expires * float64(time.Second)).Round(100 * time.Millisecond)
		switch {
		case l.Member == "" && l.Next != "":
			row[2] = "reserved for " + l.Next
		case l.Member == "":
			row[2] = "nobody"
		default:
			row[4], row[5] = a.when(deref(l.Since)), left.String()
			if left <= 0 {
				row[5] = "expired"
			}
		}
		rows = append(rows, row)
	}
	return printTable(a.stdout, []string{"POOL", "NODE", "MEMBER", "EPOCH", "SINCE", "EXPIRES IN", "PAUSED"}, rows)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func deref(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
