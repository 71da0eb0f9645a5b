package signin

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClaims(t *testing.T) {
	t.Parallel()
	var c claims
	require.NoError(t, json.Unmarshal([]byte(`{"sub": "1", "preferred_username": "ann", "email": "ann@example.com", "groups": ["a", 2, "b"],
		"realm_access": {"roles": ["ops"]}, "https://example.com/roles": "admin"}`), &c))
	require.Equal(t, "ann (1)", c.name(), "nobody has verified the address")
	require.Equal(t, []string{"a", "b"}, c.values("groups"))
	require.Equal(t, []string{"ops"}, c.values("realm_access.roles"))
	require.Equal(t, []string{"admin"}, c.values("https://example.com/roles"))
	for _, claim := range []string{"none", "groups.a", "realm_access", "realm_access.none", "sub.x", "email"} {
		require.Empty(t, c.values(claim), claim)
	}
	c["preferred_username"] = "bob@example.com\n\u202e"
	require.Equal(t, "bob@example.com�� (1)", c.name(), "as somebody calls himself")
	c["preferred_username"] = strings.Repeat("x", 300)
	require.Equal(t, strings.Repeat("x", mostChosen)+" (1)", c.name(), "who they are is not cut off")
	delete(c, "preferred_username")
	require.Equal(t, "1", c.name())
	c["email_verified"] = true
	require.Equal(t, []string{"ann@example.com"}, c.values("email"))
	require.Equal(t, "ann@example.com", c.name())
}
