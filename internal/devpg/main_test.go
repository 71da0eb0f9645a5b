package devpg

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// childEnv makes this binary a parent of a server, to be killed by
// TestStart_endsWithItsParent.
const childEnv = "DEVPG_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		beParent()
		return
	}
	goleak.VerifyTestMain(m)
}

func beParent() {
	s, err := Start(context.Background(), Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(s.dir.path)
	_, _ = os.Stdin.Read(make([]byte, 1)) // until killed
}
