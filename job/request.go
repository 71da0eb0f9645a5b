package job

import (
	"bytes"
	"encoding/json"
)

// requestKey is where a job's meta says of which request it was made.
const requestKey = ReservedPrefix + "request"

// WithRequest returns meta, a JSON object, null or nil, of a job that was made of a request with this hash.
func WithRequest(meta []byte, hash string) ([]byte, error) { return withMeta(meta, requestKey, hash) }

// RequestOf is the hash of the request that a job with this meta was made of; "": of none, or that is not known.
func RequestOf(meta []byte) string {
	if !bytes.Contains(meta, []byte(requestKey)) {
		return ""
	}
	var of struct {
		Request string `json:"tenure:request"`
	}
	if json.Unmarshal(meta, &of) != nil {
		return ""
	}
	return of.Request
}
