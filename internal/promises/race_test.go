//go:build race

package promises_test

import "time"

func init() { raced, patience = true, 3*time.Minute }
