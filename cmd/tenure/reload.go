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
		Short: "Make the node on this machine read its configuration again, now",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.loadConfig()
			if err != nil {
				return err
			}
			if cfg.Node.Address() == "" {
				return usagef("node.listen is off, so the node cannot be asked: send SIGHUP to its process")
			}
			answer, err := askReload(cmd.Context(), cfg.Node.Address())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(a.stdout, answer.summary())
			return err
		},
	}
}

func askReload(ctx context.Context, address string) (reloadAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, reloadLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/-/reload", nil)
	if err != nil {
		return reloadAnswer{}, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return reloadAnswer{}, &advised{fmt.Errorf("ask the node at %s: %w", address, err), "is it running here? it reads a changed file by itself within seconds"}
	}
	defer resp.Body.Close()
	var answer reloadAnswer
	if err := json.NewDecoder(http.MaxBytesReader(nil, resp.Body, 1<<20)).Decode(&answer); err != nil {
		return answer, fmt.Errorf("the node at %s answered %s, and nothing that can be read: %w", address, resp.Status, err)
	}
	if answer.Error != "" {
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
		parts = append(parts, "pools left: "+strings.Join(r.Removed, ", "))
	}
	if len(parts) == 0 {
		parts = append(parts, "pools unchanged")
	}
	if len(r.Later) > 0 {
		parts = append(parts, "after a restart: "+strings.Join(r.Later, ", "))
	}
	return strings.Join(parts, "; ")
}
