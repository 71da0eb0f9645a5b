package routing

import (
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// renewSecrets takes over what the files that a DSN names say by now: the user, the
// password, the certificates and the key. It is called before each connect, as files may be replaced at any time,
// and costs little beside that. A file that cannot be read just now is left for the next time, and
// where a DSN leads only changes with the configuration.
func renewSecrets(c *pgx.ConnConfig, dsn string) {
	now, err := pgx.ParseConfig(dsn)
	if err != nil || !slices.EqualFunc(hostsOf(c), hostsOf(now), samePlace) {
		return
	}
	c.User, c.Password, c.TLSConfig = now.User, now.Password, now.TLSConfig
	for i := range c.Fallbacks {
		c.Fallbacks[i].TLSConfig = now.Fallbacks[i].TLSConfig
	}
}

func samePlace(a, b *pgconn.FallbackConfig) bool { return a.Host == b.Host && a.Port == b.Port }
