package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
)

func newTenantsWhy(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "why TENANT",
		Short: "Say why a tenant's work waits, and what to do about it",
		Long: "The first reason that is true, as the ledger of the tenant's pool has it. What only the node\n" +
			"knows that holds the pool's lock is told as waiting for its turn.",
		Args: cobra.ExactArgs(1),
	}
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := parseTenant(args[0])
		if err != nil {
			return &usageError{err}
		}
		return a.act(cmd.Context(), operateLimit, func(ctx context.Context, o *operation) error {
			e, err := o.ExplainTenant(ctx, id)
			if err != nil {
				return err
			}
			if *output == asJSON {
				return printJSON(a.stdout, e)
			}
			fmt.Fprintln(a.stdout, clean(e.Text))
			if e.Advice != "" {
				fmt.Fprintln(a.stdout, clean(e.Advice))
			}
			return nil
		})
	}
	return cmd
}
