package encryption

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// text is a key as the configuration has it.
func text(id string, fill byte) string {
	return id + ":" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{fill}, KeySize))
}

func key(t testing.TB, id string, fill byte) Key {
	k, err := ParseKey(text(id, fill))
	require.NoError(t, err)
	return k
}

func TestSealedArgumentsAreReadByTheirTenantOnly(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := New(Keys{key(t, "k1", 1)})
	plain := []byte(`{"card": "4111"}`)
	first, err := c.Seal(ctx, "acme", "pay", plain)
	require.NoError(t, err)
	second, err := c.Seal(ctx, "acme", "pay", plain)
	require.NoError(t, err)
	require.NotEqual(t, first, second, "equal arguments do not look equal")
	require.True(t, IsEncrypted(first))
	require.Equal(t, "k1", KeyOf(first))
	require.NotContains(t, string(first), "4111")
	require.NoError(t, job.CheckPayload(first))
	got, err := c.Open(ctx, "acme", "pay", first)
	require.NoError(t, err)
	require.Equal(t, plain, got)

	spaced := bytes.Replace(first, []byte(`,{"key":`), []byte(`, {"key": `), 1) // as Postgres prints it
	require.NotEqual(t, first, spaced)
	got, err = c.Open(ctx, "acme", "pay", spaced)
	require.NoError(t, err)
	require.Equal(t, plain, got)

	for _, of := range [][2]string{{"globex", "pay"}, {"acme", "refund"}, {"acme\x00pay", ""}} {
		_, err = c.Open(ctx, of[0], of[1], first)
		require.ErrorIs(t, err, ErrUnreadable, "%q", of)
	}
	e, err := parse(first)
	require.NoError(t, err)
	e.Data[len(e.Data)-1] ^= 1
	changed, err := json.Marshal([]any{marker, e})
	require.NoError(t, err)
	_, err = c.Open(ctx, "acme", "pay", changed)
	require.ErrorIs(t, err, ErrUnreadable)
	require.ErrorContains(t, err, `arguments of kind "pay" for tenant "acme" with key "k1"`)

	for _, like := range []string{string(first), ` [ "tenure:encrypted"]`, `["tenure:\u0065ncrypted", 1]`} {
		require.True(t, IsEncrypted([]byte(like)), like)
		_, err = c.Seal(ctx, "acme", "pay", []byte(like))
		require.ErrorContains(t, err, `arguments of kind "pay": an array cannot begin with "tenure:encrypted"`)
	}
	for _, other := range []string{`{"tenure:encrypted": {}}`, `[["tenure:encrypted"]]`, `["tenure:", "tenure:encrypted"]`, `[]`, `"tenure:encrypted"`, ``, `[`} {
		require.False(t, IsEncrypted([]byte(other)), other)
	}
	got, err = c.Open(ctx, "acme", "pay", plain)
	require.NoError(t, err)
	require.Equal(t, plain, got, "what is not encrypted stays as it is")
}

// A program of before encryption takes no encrypted arguments for those of a job without any.
func TestEncryptedArgumentsAreNobodysStruct(t *testing.T) {
	t.Parallel()
	sealed, err := New(Keys{key(t, "k1", 1)}).Seal(t.Context(), "acme", "pay", []byte(`{"card": "4111"}`))
	require.NoError(t, err)
	require.Error(t, json.Unmarshal(sealed, &struct{ Card string }{}))
	require.Error(t, json.Unmarshal(sealed, &map[string]any{}))
	require.Error(t, json.Unmarshal(sealed, &[]string{}))
}

func TestKeysAreChangedAndDropped(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	before, now := key(t, "2026-10", 1), key(t, "2026-11", 2)
	c := New(Ring{Others: Keys{before}, Tenants: map[string]Keys{"acme": {key(t, "acme-1", 3)}}})
	plain := []byte(`{}`)
	old, err := c.Seal(ctx, "globex", "k", plain)
	require.NoError(t, err)
	own, err := c.Seal(ctx, "acme", "k", plain)
	require.NoError(t, err)
	require.Equal(t, "acme-1", KeyOf(own))

	c.Replace(Ring{Others: Keys{now, before}, Tenants: map[string]Keys{"acme": {}}}, "k")
	fresh, err := c.Seal(ctx, "globex", "k", plain)
	require.NoError(t, err)
	require.Equal(t, "2026-11", KeyOf(fresh))
	for _, sealed := range [][]byte{old, fresh} {
		got, err := c.Open(ctx, "globex", "k", sealed)
		require.NoError(t, err)
		require.Equal(t, plain, got)
	}
	_, err = c.Open(ctx, "acme", "k", own)
	require.ErrorIs(t, err, ErrNoKey, "its key is gone")
	_, err = c.Seal(ctx, "acme", "k", plain)
	require.ErrorIs(t, err, ErrNoKey)
	got, err := c.Seal(ctx, "acme", "other", plain)
	require.NoError(t, err)
	require.Equal(t, plain, got, "a kind that is not to be encrypted")

	record := &job.Record{Tenant: "acme", Kind: "k", Payload: own}
	require.Equal(t, job.Dead, job.Decide(c.OpenRecord(ctx, record), 1, 10, job.Policy{}).State)
	c.Replace(failing{})
	err = c.OpenRecord(ctx, record)
	require.ErrorContains(t, err, "the service is down")
	require.NotEqual(t, job.Dead, job.Decide(err, 1, 10, job.Policy{}).State, "it may come back")
	require.Equal(t, own, record.Payload)
	record = &job.Record{Tenant: "globex", Kind: "k", Payload: old}
	c.Replace(Keys{before})
	require.NoError(t, c.OpenRecord(ctx, record))
	require.Equal(t, plain, record.Payload)
	require.NoError(t, c.OpenRecord(ctx, record), "again")

	var none *Cipher
	_, err = none.Open(ctx, "acme", "k", own)
	require.ErrorIs(t, err, ErrNoKey)
	got, err = none.Seal(ctx, "acme", "k", plain)
	require.NoError(t, err)
	require.Equal(t, plain, got)
}

// failing is a key ring whose service does not answer.
type failing struct{}

var errDown = errors.New("the service is down")

func (failing) Newest(context.Context, string) (Key, error)       { return Key{}, errDown }
func (failing) Find(context.Context, string, string) (Key, error) { return Key{}, errDown }

func TestKeysDoNotPrint(t *testing.T) {
	t.Parallel()
	k := key(t, "k1", 'x')
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		require.Equal(t, `key "k1"`, fmt.Sprintf(verb, k), verb)
	}
	for _, broken := range []string{"", "k1", ":", "k 1:AA==", "k1:AA==", "k1:%", text("k1", 1) + "A", strings.Repeat("k", 65) + ":AA=="} {
		_, err := ParseKey(broken)
		require.Error(t, err, broken)
	}
	secret := strings.TrimRight(strings.TrimPrefix(text("k1", 'x'), "k1:"), "=")
	_, err := ParseKey(secret + ":k1") // the wrong way round
	require.Error(t, err)
	require.NotContains(t, err.Error(), secret)
}

func TestConfig(t *testing.T) {
	t.Parallel()
	require.NoError(t, Config{}.Validate())
	require.Nil(t, Config{}.Ring())
	good := Config{Kinds: []string{"pay"}, Keys: []string{text("k2", 2), text("k1", 1)}, Tenants: map[tenancy.ID]TenantKeys{"acme": {}}}
	require.NoError(t, good.Validate())
	newest, err := good.Ring().Newest(t.Context(), "globex")
	require.NoError(t, err)
	require.Equal(t, "k2", newest.ID())
	_, err = good.Ring().Newest(t.Context(), "acme")
	require.ErrorIs(t, err, ErrNoKey)
	bad := Config{Kinds: []string{"a b"}, Keys: []string{"short", text("k1", 1), text("k1", 2)}, Tenants: map[tenancy.ID]TenantKeys{"acme": {Keys: []string{"k:AA=="}}}}
	for _, says := range []string{"encryption.kinds[0]: is not a name", "encryption.keys[0]: is not a key", "encryption.keys[2]: has the id", "encryption.tenants.acme.keys[0]: has a secret of 1 bytes"} {
		require.ErrorContains(t, bad.Validate(), says)
	}
	require.ErrorContains(t, Config{Kinds: []string{"k"}}.Validate(), "encryption.kinds: has kinds to encrypt, and no keys")
}

func FuzzOpen(f *testing.F) {
	c := New(Keys{key(f, "k1", 1)})
	sealed, err := c.Seal(context.Background(), "acme", "k", []byte(`{}`))
	require.NoError(f, err)
	for _, seed := range []string{string(sealed), "", "{}", "[", `["tenure:encrypted"`, `["tenure:encrypted"]`, `["tenure:encrypted",null]`, `["tenure:encrypted",{"key":"k1"}]`, `["tenure:encrypted",{"key":"k1","data":"AAAA"}]`, `["tenure:encrypted",{"key":"k1","data":"AAAA"}] x`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		plain, err := c.Open(t.Context(), "acme", "k", payload)
		switch {
		case !IsEncrypted(payload):
			require.NoError(t, err)
			require.Equal(t, payload, plain)
		case err == nil: // only what was sealed
			require.JSONEq(t, "{}", string(plain))
		default:
			require.True(t, errors.Is(err, ErrNoKey) || errors.Is(err, ErrUnreadable), "%v", err)
		}
		KeyOf(payload)
	})
}
