package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// healthLimit bounds what asking a node for its health takes.
const healthLimit = 5 * time.Second

// healthAnswer is what a node answers to GET /healthz and /readyz.
type healthAnswer struct {
	Status  string   `json:"status"`
	Reasons []string `json:"reasons"`
}

func newHealth(a *app) *cobra.Command {
	live := false
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask the node on this machine whether it takes part; exits with 0 if it does",
		Long: "Asks /readyz at node.listen: whether the node has joined the cluster, is not stopping,\n" +
			"and reaches some pool. With --live it asks /healthz: whether the process can go on as it\n" +
			"is, or should be started again. For the health checks of containers without a shell.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.loadConfig()
			if err != nil {
				return err
			}
			if cfg.Node.Address() == "" {
				return usagef("node.listen is off, so the node cannot be asked")
			}
			path := "/readyz"
			if live {
				path = "/healthz"
			}
			node, err := newNodeClient(cfg.Node)
			if err != nil {
				return err
			}
			answer, err := askHealth(cmd.Context(), node, path)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(a.stdout, answer.Status)
			return err
		},
	}
	cmd.Flags().BoolVar(&live, "live", false, "ask only whether the process has to be started again")
	return cmd
}

// askHealth asks a node, and fails if its answer is not a good one.
func askHealth(ctx context.Context, node *nodeClient, path string) (answer healthAnswer, err error) {
	ctx, cancel := context.WithTimeout(ctx, healthLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, node.url+path, nil)
	if err != nil {
		return answer, err
	}
	resp, err := node.client.Do(req)
	if err != nil {
		return answer, &advised{fmt.Errorf("ask the node at %s: %w", node.url, err), "is it running here?"}
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(http.MaxBytesReader(nil, resp.Body, 1<<20)).Decode(&answer); err != nil {
		return answer, fmt.Errorf("the node at %s answered %s, which cannot be read: %w", node.url, resp.Status, err)
	}
	if resp.StatusCode != http.StatusOK {
		return answer, errors.New(strings.Join(append([]string{answer.Status}, answer.Reasons...), ": "))
	}
	return answer, nil
}
