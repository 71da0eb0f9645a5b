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

	"github.com/tenurehq/tenure"
)

// reloadLimit bounds one reload, with what the node itself allows for it.
const reloadLimit = 31 * time.Second

// reloadAnswer is what a node answers to POST /-/reload.
type reloadAnswer struct {
	tenure.Reloaded
	Error string `json:"error,omitempty"`
}

func newReload(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "reload",
		Short: "Make the node on this machine reload its configuration now",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.loadConfig()
			if err != nil {
				return err
			}
			if cfg.Node.Address() == "" {
				return usagef("node.listen is off, so the node cannot be asked; send SIGHUP to its process instead")
			}
			node, err := newNodeClient(cfg.Node)
			if err != nil {
				return err
			}
			answer, err := askReload(cmd.Context(), node)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(a.stdout, answer.summary())
			return err
		},
	}
}

func askReload(ctx context.Context, node *nodeClient) (reloadAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, reloadLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, node.url+"/-/reload", nil)
	if err != nil {
		return reloadAnswer{}, err
	}
	resp, err := node.client.Do(req)
	if err != nil {
		return reloadAnswer{}, &advised{fmt.Errorf("ask the node at %s: %w", node.url, err), "is it running here? it also picks up a changed file by itself within seconds"}
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden {
		return reloadAnswer{}, &advised{fmt.Errorf("the node at %s reloads only for programs on its own machine, and answered %s", node.url, resp.Status), "type it there, or send SIGHUP to its process"}
	}
	var answer reloadAnswer
	if err := json.NewDecoder(http.MaxBytesReader(nil, resp.Body, 1<<20)).Decode(&answer); err != nil {
		return answer, fmt.Errorf("the node at %s answered %s, which cannot be read: %w", node.url, resp.Status, err)
	}
	switch {
	case answer.Error == "":
	case resp.StatusCode == http.StatusServiceUnavailable:
		return answer, errors.New(answer.Error)
	default:
		return answer, &configError{errors.New(answer.Error)}
	}
	return answer, nil
}

func (r reloadAnswer) summary() string {
	var parts []string
	if len(r.Added) > 0 {
		parts = append(parts, "pools added: "+strings.Join(r.Added, ", "))
	}
	if len(r.Removed) > 0 {
		parts = append(parts, "pools removed: "+strings.Join(r.Removed, ", "))
	}
	if len(r.Applied) > 0 {
		parts = append(parts, "changed: "+strings.Join(r.Applied, ", "))
	}
	if len(parts) == 0 {
		parts = append(parts, "nothing changed since the node read its configuration last")
	}
	if len(r.Later) > 0 {
		parts = append(parts, "after a restart: "+strings.Join(r.Later, ", "))
	}
	for _, id := range r.Unknown {
		parts = append(parts, fmt.Sprintf("no routing rule knows tenant %q of schedules, which add no jobs for it", id))
	}
	return strings.Join(parts, "; ")
}
