package routing

import (
	"context"
	"crypto/tls"
	"maps"
	"reflect"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenurehq/tenure/internal/store"
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

// credentials are the DSNs by which a pool's connections are made today, and the users in them.
type credentials struct {
	DSN, TenantDSN string
	users          []string
}

func newCredentials(c PoolConfig) *credentials {
	return &credentials{c.DSN, c.TenantDSN, usersOf(c.DSN, c.TenantDSN)}
}

// leadsTo tells whether another configuration of a pool differs in credentials only, and in what connections
// do not depend on.
func (c PoolConfig) leadsTo(other PoolConfig) bool {
	return c.MaxConns == other.MaxConns && c.Insecure == other.Insecure && sameWay(c.DSN, other.DSN) && sameWay(c.TenantDSN, other.TenantDSN)
}

// sameWay tells whether two DSNs differ at most in the user, the password and the certificates.
func sameWay(a, b string) bool {
	if a == b {
		return true
	}
	before, err := pgx.ParseConfig(a)
	if err != nil || a == "" || b == "" {
		return false
	}
	now, err := pgx.ParseConfig(b)
	same := func(of func(*pgx.ConnConfig) any) bool { return of(before) == of(now) }
	return err == nil && maps.Equal(before.RuntimeParams, now.RuntimeParams) &&
		same(func(c *pgx.ConnConfig) any {
			return [...]any{c.Database, c.ConnectTimeout, c.KerberosSrvName, c.KerberosSpn, c.SSLNegotiation, c.SSLCertMode, c.ChannelBinding, c.RequireAuth,
				c.MinProtocolVersion, c.MaxProtocolVersion, c.DefaultQueryExecMode, c.StatementCacheCapacity, c.DescriptionCacheCapacity,
				reflect.ValueOf(c.ValidateConnect).Pointer()} // which is target_session_attrs
		}) &&
		slices.EqualFunc(hostsOf(before), hostsOf(now), func(a, b *pgconn.FallbackConfig) bool { return samePlace(a, b) && sameTrust(a.TLSConfig, b.TLSConfig) })
}

// sameTrust tells whether connections insist on the same of the server.
func sameTrust(a, b *tls.Config) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.ServerName == b.ServerName && a.InsecureSkipVerify == b.InsecureSkipVerify && (a.VerifyPeerCertificate == nil) == (b.VerifyPeerCertificate == nil)
}

// tryCredentials refuses a configuration by whose credentials the pool could not be used. A server that does not answer
// cannot be asked.
func (p *Pool) tryCredentials(ctx context.Context, cfg PoolConfig, use store.Use) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	c := p.dsn.ConnConfig.Copy()
	renewSecrets(c, cfg.DSN)
	tuneCommon(c, "lock")
	conn, err := pgx.ConnectConfig(ctx, c)
	if err == nil {
		defer closeInTime(ctx, conn)
		_, err = store.Verify(ctx, conn, p.Name, use)
	}
	if err = store.Denied(p.Name, c, err); err == nil && p.pooled != nil {
		err = p.pooled.try(ctx, p.Name, cfg.TenantDSN)
	}
	if !isPermanent(err) {
		return nil
	}
	return err
}

// try looks whether credentials lead through the pooler.
func (w *pooled) try(ctx context.Context, pool, dsn string) error {
	c := w.dsn.ConnConfig.Copy()
	renewSecrets(c, dsn)
	tuneCommon(c, "tenants")
	w.takeSettings(c)
	sendNoCancels(c)
	conn, err := pgx.ConnectConfig(ctx, c)
	if err == nil {
		closeInTime(ctx, conn)
	}
	return store.Denied(pool, c, err)
}
