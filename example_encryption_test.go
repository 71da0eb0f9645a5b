package tenure_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"

	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/job/encryption"
	"github.com/tenurehq/tenure/tenancy"
)

// Capture has arguments that nobody may read in a dump.
type Capture struct {
	Card string `json:"card"`
}

// Kind implements job.Args.
func (Capture) Kind() string { return "payment.capture" }

// The ledger has ciphertext; handlers, and operators whose configuration has the key, see the arguments.
func Example_encryption() {
	cfg, stop := exampleConfig()
	defer stop()
	secret := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32)) // of a file, and random, in a real program
	cfg.Encryption = encryption.Config{Keys: []string{"2026-11:" + secret}, Kinds: []string{"payment.capture"}}
	node, stop := exampleNode(cfg, func(r *job.Registry) {
		job.Handle(r, func(_ context.Context, j *job.Job[Capture]) error {
			fmt.Println("the handler gets", j.Args.Card)
			return nil
		})
	})
	defer stop()

	operator, ctx := node.Operator(), tenancy.For(context.Background(), "acme")
	added, err := node.Client().Enqueue(ctx, Capture{"4242"})
	check(err)
	j, _, err := operator.Jobs().Await(ctx, added.ID)
	check(err)
	fmt.Println("the ledger has it encrypted:", encryption.IsEncrypted(j.Payload), "with", encryption.KeyOf(j.Payload))
	plain, err := operator.Jobs().OpenPayload(ctx, j)
	check(err)
	fmt.Println("an operator may open it:", string(plain))
	// Output:
	// the handler gets 4242
	// the ledger has it encrypted: true with 2026-11
	// an operator may open it: {"card":"4242"}
}
