package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"

	"github.com/spf13/cobra"
)

func newToken(a *app) *cobra.Command {
	return newGroup("token", "Make tokens for the dashboard and the API", newTokenNew(a))
}

// jsonToken is a new token.
type jsonToken struct {
	Secret string `json:"secret"`
	Hash   string `json:"secret_hash"`
}

func newTokenNew(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "new",
		Short: "Print a new secret, and its hash for node.tokens",
		Long: "The secret is for whoever calls, and is printed this once; the hash is for the configuration:\n" +
			"node.tokens.NAME.secret_hash. It reads and changes nothing. docs/access.md says how a token's\n" +
			"secret is replaced while it is in use.",
		Args: cobra.NoArgs,
	}
	output := outputFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		t := makeToken()
		if *output == asJSON {
			return printJSON(a.stdout, t)
		}
		_, err := fmt.Fprintf(a.stdout, "secret: %s\nsecret_hash: %s\n", t.Secret, t.Hash)
		return err
	}
	return cmd
}

// makeToken makes a secret of 256 random bits, with a beginning by which scanners for lost secrets
// know it.
func makeToken() jsonToken {
	var random [32]byte
	rand.Read(random[:]) // never fails
	secret := "tenure_" + base64.RawURLEncoding.EncodeToString(random[:])
	hash := sha256.Sum256([]byte(secret))
	return jsonToken{secret, hex.EncodeToString(hash[:])}
}
