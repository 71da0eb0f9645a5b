package tenure_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/external"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// Render is done by a program outside the cluster, which may be written in any language: over HTTP it sends the same
// requests.
type Render struct {
	Page string `json:"page"`
}

// Kind implements job.Args.
func (Render) Kind() string { return "page.render" }

// A worker locks jobs of a topic for a time, and ends each by its lock.
func ExampleClient_ExternalWorkers() {
	cfg, stop := exampleConfig()
	defer stop()
	node, stop := exampleNode(cfg, func(*job.Registry) {})
	defer stop()

	ctx := tenancy.For(context.Background(), "acme")
	added, err := node.Client().Enqueue(ctx, Render{"home"}, tenure.External())
	check(err)

	workers := node.Client().ExternalWorkers()
	locked, err := workers.Acquire(ctx, external.AcquireRequest{Topic: "page.render", Worker: "renderer-1", Max: 10, LockFor: time.Minute, Wait: 10 * time.Second})
	check(err)
	for _, j := range locked {
		fmt.Println(j.Tenant, string(j.Payload))
		check(workers.Complete(ctx, external.Result{Lock: j.Lock, Output: json.RawMessage(`{"bytes": 512}`)}))
	}
	j, _, err := node.Operator().Jobs().Get(ctx, added.ID)
	check(err)
	fmt.Println(j.State, string(j.Reports[0].Output))
	// Output:
	// acme {"page": "home"}
	// done {"bytes": 512}
}
