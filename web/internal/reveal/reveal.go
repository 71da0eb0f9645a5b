// Package reveal decides what of a job's arguments and outputs somebody gets to see.
//
// Whoever shows a job to people or programs asks it, so that there is one place where they may be
// hidden. Workers outside the cluster, who do the work, get what they acquire as it is. Safe for
// concurrent use, if the redaction is.
package reveal

import (
	"context"
	"encoding/json"

	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/job/encryption"
	"github.com/tenurehq/tenure/operate"
)

// hidden stands for what cannot be shown.
const hidden = `"***"`

// Redactor takes out of the arguments or an output of a job what nobody is to see.
type Redactor func(kind string, text json.RawMessage) json.RawMessage

// Revealer shows arguments and outputs.
type Revealer struct {
	op     *operate.Operator
	redact Redactor // nil: nothing is taken out

	Sealed bool // arguments that are encrypted stay so, and the key's name is shown in their place
}

// New returns a Revealer that takes out of what it shows what redact takes out; nil: nothing.
func New(op *operate.Operator, redact Redactor) Revealer { return Revealer{op: op, redact: redact} }

// Args are a job's arguments, decrypted, or nothing if the sender of the request that ctx belongs to
// may not see them.
func (v Revealer) Args(ctx context.Context, j operate.JobStatus) (json.RawMessage, error) {
	if !access.From(ctx).Args || len(j.Payload) == 0 {
		return nil, nil
	}
	if v.Sealed && encryption.IsEncrypted(j.Payload) {
		return json.Marshal("encrypted with key " + encryption.KeyOf(j.Payload))
	}
	text, err := v.op.Jobs().OpenPayload(ctx, j)
	if err != nil {
		return nil, err
	}
	return v.take(j.Kind, text), nil
}

// Output is what a run of a job of that kind put out, or nothing if the sender of the request that
// ctx belongs to may not see it.
func (v Revealer) Output(ctx context.Context, kind string, output []byte) json.RawMessage {
	if !access.From(ctx).Args || len(output) == 0 {
		return nil
	}
	return v.take(kind, output)
}

// ScheduleArgs are the arguments of a schedule's jobs of that kind, which nobody encrypts, or nothing if the
// sender of the request that ctx belongs to may not see them.
func (v Revealer) ScheduleArgs(ctx context.Context, kind string, args []byte) json.RawMessage {
	return v.Output(ctx, kind, args)
}

// take redacts. What comes back and is no JSON is not shown: nobody knows what it is.
func (v Revealer) take(kind string, text json.RawMessage) json.RawMessage {
	if v.redact != nil {
		text = v.redact(kind, text)
	}
	if !json.Valid(text) {
		return json.RawMessage(hidden)
	}
	return text
}
