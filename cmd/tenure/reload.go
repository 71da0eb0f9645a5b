package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
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
	case resp.StatusCode == http.StatusUnprocessableEntity:
		return answer, &configError{fmt.Errorf("%s; the node goes on with what it had", answer.Error)}
	default:
		return answer, errors.New(answer.Error)
	}
	return answer, nil
}

func (r reloadAnswer) summary() string {
	var parts, added, changed, removed []string
	for _, pool := range r.Added {
		if slices.Contains(r.Removed, pool) { // of other settings
			changed = append(changed, pool)
		} else {
			added = append(added, pool)
		}
	}
	for _, pool := range r.Removed {
		if !slices.Contains(r.Added, pool) {
			removed = append(removed, pool)
		}
	}
	rest := slices.DeleteFunc(slices.Clone(r.Applied), func(section string) bool { return section == "pools" && len(changed) > 0 })
	for _, of := range []struct {
		what  string
		names []string
	}{{"pools added", added}, {"pools changed", changed}, {"pools removed", removed}, {"changed", rest}} {
		if len(of.names) > 0 {
			parts = append(parts, of.what+": "+strings.Join(of.names, ", "))
		}
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
