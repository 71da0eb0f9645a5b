package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
)

func newLocks(a *app) *cobra.Command {
	head := []string{"POOL", "NODE", "MEMBER", "EPOCH", "SINCE", "EXPIRES IN", "TIMELINE", "FROZEN"}
	row := func(l jsonLock) []string { return lockRow(a.now, l) }
	cmd := list(a, &cobra.Command{Use: "locks", Short: "Show which node holds each pool's acquire lock"}, head, row, readLocks, explainConstant)
	cmd.AddCommand(newLockHistory(a))
	return cmd
}

func newLockHistory(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "history",
		Short: "Show how the pools' locks have changed hands, the newest change first",
		Long: "Lists who took and released the acquire locks, and when pools were frozen. Each ledger keeps the last\n" +
			"500 epochs of its lock; what nodes of before ledger version 28 do is not in it.",
	}
	f := tenure.LockChangeFilter{Limit: 50}
	cmd.Flags().StringVar(&f.Pool, "pool", "", "only this `pool`")
	cmd.Flags().IntVar(&f.Limit, "limit", f.Limit, "how many changes to show, at most")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if err := checkLimit(f.Limit); err != nil {
			return err
		}
		return a.checkPool(f.Pool)
	}
	row := func(c jsonLockChange) []string {
		return []string{a.now.stamp(c.At.Time), c.Pool, strconv.FormatInt(c.Epoch, 10), c.Text}
	}
	return list(a, cmd, []string{"AT", "POOL", "EPOCH", "WHAT"}, row, func(ctx context.Context, o *operation) ([]jsonLockChange, error) {
		changes, err := o.LockChanges(ctx, f)
		var all []jsonLockChange
		for _, c := range changes {
			all = append(all, jsonLockChange{jsonTime{c.At}, c.Pool, c.Epoch, c.Change, c.Node, c.Member, c.LostBy, c.Text()})
		}
		return all, err
	})
}

// jsonLockChange is a change of an acquire lock as -o json prints it.
type jsonLockChange struct {
	At     jsonTime `json:"at"`
	Pool   string   `json:"pool"`
	Epoch  int64    `json:"epoch"`
	Change string   `json:"change"` // taken, released, frozen or thawed
	Node   string   `json:"node,omitempty"`
	Member string   `json:"member,omitempty"`
	LostBy string   `json:"lost_by,omitempty"` // had it until then, and had not released it
	Text   string   `json:"text"`
}

// jsonLock is an acquire lock as -o json prints it.
type jsonLock struct {
	Pool    string   `json:"pool"`
	Node    string   `json:"node,omitempty"`
	Member  string   `json:"member,omitempty"` // the holder; none: nobody
	Next    string   `json:"reserved_for,omitempty"`
	Epoch   int64    `json:"epoch"`
	Since   jsonTime `json:"since"`
	Expires float64  `json:"expires_in_seconds"` // unheld: until its reservation ends
	Frozen  bool     `json:"frozen"`
	// Timeline is raised by each promotion of the pool's server; null: it cannot be read.
	Timeline        *int32 `json:"timeline"`
	TimelineRefused string `json:"timeline_refused,omitempty"` // why it cannot be read
}

// readLocks reads the locks and, for their names, the sessions of their holders.
func readLocks(ctx context.Context, o *operation) (locks []jsonLock, unanswered error) {
	nodes := map[uuid.UUID]string{}
	sessions, _ := o.SessionStatuses(ctx) // the lock of a pool that fails here fails, too
	for _, s := range sessions {
		nodes[s.ID] = s.Node
	}
	var errs []error
	unfit := o.Unfit() // the caller says why they are
	for _, l := range o.LockStatuses(ctx) {
		if unfit[l.Pool] != nil {
			continue
		}
		if l.Err != nil {
			errs = append(errs, fmt.Errorf("pool %s: %w", l.Pool, l.Err))
			continue
		}
		locks = append(locks, jsonLock{
			Pool: l.Pool, Node: nodes[l.Session], Member: l.Holder, Next: l.Next, Epoch: l.Epoch,
			Since: jsonTime{l.TakenAt}, Expires: l.Remaining.Seconds(), Frozen: l.Frozen,
			TimelineRefused: l.TimelineRefused,
		})
		if l.Timeline != 0 {
			locks[len(locks)-1].Timeline = &l.Timeline
		}
	}
	return locks, errors.Join(errs...)
}

func lockRow(now clock, l jsonLock) []string {
	row := []string{l.Pool, l.Node, l.Member, strconv.FormatInt(l.Epoch, 10), "", "", "constant", map[bool]string{false: "no", true: "yes"}[l.Frozen]}
	if l.Timeline != nil {
		row[6] = strconv.Itoa(int(*l.Timeline))
	}
	left := time.Duration(l.Expires * float64(time.Second)).Round(100 * time.Millisecond)
	switch {
	case l.Member == "" && l.Next != "":
		row[2] = "reserved for " + l.Next
	case l.Member == "":
		row[2] = "nobody"
	default:
		row[4], row[5] = now.stamp(l.Since.Time), left.String()
		if left <= 0 {
			row[5] = "expired"
		}
	}
	return row
}

// explainConstant says what a timeline that cannot be read means for the pools that have one.
func explainConstant(locks []jsonLock) string {
	var constant []string
	for _, l := range locks {
		if l.Timeline == nil {
			constant = append(constant, fmt.Sprintf("%s (%s)", l.Pool, l.TimelineRefused))
		}
	}
	if len(constant) == 0 {
		return ""
	}
	return "\nconstant: the server does not let its timeline be read, so nobody here notices a primary that was replaced, and its storage has to refuse that one's writes: " + strings.Join(constant, ", ") + "\n"
}
