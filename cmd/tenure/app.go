package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure/cmd/tenure/internal/demo"
)

// app is what the commands share: the outside world, and the flags of the root.
// It lives for one run and is used by one goroutine.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	now            clock

	config  string // --config
	remote  remote // --server
	reached bool   // a command's own code was reached, so that usage was right so far
}

// run is the program without its process: tests call it. ctx ending stops it.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, now: time.Now}
	root := newRoot(a)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	return a.report(cmd, err)
}

func newRoot(a *app) *cobra.Command {
	root := newGroup("tenure", "Run background jobs for many tenants in many Postgres databases")
	root.SilenceUsage, root.SilenceErrors = true, true
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.Version = readVersion().String()
	root.SetVersionTemplate("{{.Version}}\n")
	root.PersistentFlags().StringVar(&a.config, "config", "", "configuration `file` (default: $"+configEnv+", then "+defaultConfig+")")
	root.AddCommand(newServe(a), demo.Command(), demo.NodeCommand(), newMigrate(a), newConfig(a), newReload(a), newToken(a), newHealth(a), newVersion(a))
	root.AddCommand(newOperating(a)...)
	root.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() } // who types nothing more wants to know what there is
	a.remote.add(a, root)
	a.noteReached(root)
	showShort(root)
	addCompletion(a, root)
	return root
}

// noteReached notes when a command's own code is reached: an error before that is about
// usage, whichever part of cobra found it.
func (a *app) noteReached(cmd *cobra.Command) {
	if own := cmd.RunE; own != nil && cmd.Annotations[onlyHolds] == "" {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			a.reached = true
			return own(cmd, args)
		}
	}
	for _, sub := range cmd.Commands() {
		a.noteReached(sub)
	}
}

// showShort puts what a command does, in a line, before what else is to say of it: cobra's help
// shows only one of the two.
func showShort(cmd *cobra.Command) {
	cmd.Long = strings.TrimSpace(cmd.Short + ".\n\n" + cmd.Long)
	for _, sub := range cmd.Commands() {
		showShort(sub)
	}
}

// onlyHolds is the annotation of a command that does nothing but hold others.
const onlyHolds = "only holds others"

// newGroup is a command that only holds others. Cobra would take a misspelt one
// for a wish for help, and succeed.
func newGroup(use, short string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use + " COMMAND", Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			near := ""
			if s := cmd.SuggestionsFor(args[0]); len(s) > 0 {
				near = "; did you mean " + strings.Join(s, " or ") + "?"
			}
			return fmt.Errorf("unknown command %q for %q%s", args[0], cmd.CommandPath(), near)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			var names []string
			for _, sub := range cmd.Commands() {
				if sub.IsAvailableCommand() {
					names = append(names, sub.Name())
				}
			}
			return fmt.Errorf("a command is missing; choose from: %s", strings.Join(names, ", "))
		},
		Annotations:                map[string]string{onlyHolds: "yes"},
		SuggestionsMinimumDistance: 2,
		DisableFlagsInUseLine:      true,
	}
	cmd.AddCommand(subs...)
	return cmd
}
