package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The environment is set once, so that the tests can run in parallel.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{
		"DATABASE_URL": "postgres://app@dbexample:5432/app",
		"OTHER_URL":    "postgres://app@dbexample:5432/other",
		"HOSTNAME":     "node-1",
		"EMPTY":        "",
		"TEN":          "10",
		"TWO":          "2",
		"ADDRESS":      "hidden-host-name:7946",
		"PUBLIC":       "192.0.2.7:7946",
		"MONKEY":       "see-no-evil",
		"SHORT":        "PT5S",
		"YAML":         "x: [1, *y]\n# \"z\"",
		"KEY":          "AAECAwQFBgcICQoLDA0ODw==",

		"TENURE_CLUSTER_KEY_1": "AAECAwQFBgcICQoLDA0ODw==",
		"TENURE_CLUSTER_KEY_2": "AQIDBAUGBwgJCgsMDQ4PEA==",
		"TENURE_CLUSTER_KEY_3": "AgMEBQYHCAkKCwwNDg8QEQ==",
	} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// ok is a part that every file needs and no case is about.
const ok = "pools: {main: {dsn: '${env:DATABASE_URL}'}}\n"

// TestFaults has the exact text for each class of mistake. A case whose last line
// is missing has one problem.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, in, want string }{
		{"the example of the documentation", `
pools:
  eu-1:
    dsn: ${env:DATABASE_URL}
    max_con: 5
acquire:
  lock:
    ttl: 5 minutes
tenants:
  static:
    acme: eu-1
    globex: eu1
`, `
node.yaml:4:5: error: unknown key "max_con"
    4 |     max_con: 5
      |     ^
      = did you mean max_conns?
node.yaml:7:10: error: "5 minutes" is not a duration: write 90s, 5m, 1h30m or PT5M
    7 |     ttl: 5 minutes
      |          ^
node.yaml:11:13: error: tenant "globex" is mapped to pool "eu1", which is not under pools
   11 |     globex: eu1
      |             ^
      = did you mean eu-1?
3 problems in node.yaml; nothing was changed`},

		// What is there at all.
		{"empty file", "", `
node.yaml:1:1: error: the file has no settings; a node needs a pool
the shortest file that works:

    pools:
      main:
        dsn: ${env:DATABASE_URL}
    tenants:
      static:
        acme: main

1 problem in node.yaml; nothing was changed`},
		{"comments only", "# to do\n", `
node.yaml:1:1: error: the file has no settings; a node needs a pool
the shortest file that works:

    pools:
      main:
        dsn: ${env:DATABASE_URL}
    tenants:
      static:
        acme: main

1 problem in node.yaml; nothing was changed`},
		{"no pools", "node:\n  name: a\n", `
node.yaml:1:1: error: pools: there is no pool
      = name at least one:  pools: {main: {dsn: postgres://…}}
the shortest file that works:

    pools:
      main:
        dsn: ${env:DATABASE_URL}
    tenants:
      static:
        acme: main

1 problem in node.yaml; nothing was changed`},
		{"a list", "- a\n", `
node.yaml:1:1: error: the file needs keys of its own, but is a list
    1 | - a
      | ^
      = its keys are: node, cluster, pools, tenants, connections, acquire, execution, handlers, encryption, schedules, limits`},

		// Keys.
		{"unknown key: another section's", ok + "listen: off\n", `
node.yaml:2:1: error: unknown key "listen"
    2 | listen: off
      | ^
      = did you mean node.listen?`},
		{"unknown key: camel case", ok + "acquire: {idleWait: 1s}\n", `
node.yaml:2:11: error: unknown key "idleWait"
    2 | acquire: {idleWait: 1s}
      |           ^
      = did you mean idle_wait?`},
		{"unknown key: half of it", ok + "acquire: {lock: {renew: 1s}}\n", `
node.yaml:2:18: error: unknown key "renew"
    2 | acquire: {lock: {renew: 1s}}
      |                  ^
      = did you mean renew_every?`},
		{"unknown key: nothing near", ok + "execution: {colour: blue}\n", `
node.yaml:2:13: error: unknown key "colour"
    2 | execution: {colour: blue}
      |             ^
      = the keys here are: workers, tenant_share, timeout, retry, retention, finish_within, paused`},
		{"unknown key: what it was meant to be is not reported as missing", "pools: {a: {dns: '${env:DATABASE_URL}'}}\n", `
node.yaml:1:13: error: unknown key "dns"
    1 | pools: {a: {dns: '${env:DATABASE_URL}'}}
      |             ^
      = did you mean dsn?`},
		{"unknown key: nor a section", "pool: {a: {dsn: '${env:DATABASE_URL}'}}\ntenants: {static: {acme: a}}\n", `
node.yaml:1:1: error: unknown key "pool"
    1 | pool: {a: {dsn: '${env:DATABASE_URL}'}}
      | ^
      = did you mean pools?`},
		{"duplicate key", "pools:\n  a:\n    dsn: ${env:DATABASE_URL}\n    max_conns: 5\n    dsn: ${env:OTHER_URL}\n", `
node.yaml:5:5: error: duplicate key "dsn": line 3 has it already
    5 |     dsn: ${env:OTHER_URL}
      |     ^
      = remove one of the two`},
		{"duplicate pool", "pools:\n  a: {dsn: '${env:DATABASE_URL}'}\n  a: {dsn: '${env:OTHER_URL}'}\n", `
node.yaml:3:3: error: duplicate key "a": line 2 has it already
    3 |   a: {dsn: '${env:OTHER_URL}'}
      |   ^
      = remove one of the two`},
		{"a key that is no word", ok + "? {a: 1}\n: 2\n", `
node.yaml:2:3: error: a key must be a single word, but is a section with keys
    2 | ? {a: 1}
      |   ^`},
		{"a reference as a key", "pools: {'${env:HOSTNAME}': {dsn: '${env:DATABASE_URL}'}}\n", `
node.yaml:1:9: error: a key cannot be a reference
    1 | pools: {'${env:HOSTNAME}': {dsn: '${env:DATABASE_URL}'}}
      |         ^
      = write the name itself`},

		// Types, in the user's words.
		{"types", `pools:
  a: {dsn: {host: x}}
  b: ${env:DATABASE_URL}
execution: 64
acquire: {batch: lots, lock: [a]}
tenants: {static: [acme], schema: [a]}
`, `
node.yaml:2:12: error: pools.a.dsn needs a single value, but is a section with keys
    2 |   a: {dsn: {host: x}}
      |            ^
node.yaml:3:6: error: pools.b needs keys of its own, but is a single value
    3 |   b: ${env:DATABASE_URL}
      |      ^
      = its keys are: dsn, tenant_dsn, max_conns, insecure, schemas
node.yaml:4:12: error: execution needs keys of its own, but is a single value
    4 | execution: 64
      |            ^
      = its keys are: workers, tenant_share, timeout, retry, retention, finish_within, paused
node.yaml:5:18: error: "lots" is not a whole number
    5 | acquire: {batch: lots, lock: [a]}
      |                  ^
node.yaml:5:30: error: acquire.lock needs keys of its own, but is a list
    5 | acquire: {batch: lots, lock: [a]}
      |                              ^
      = its keys are: ttl, renew_every
node.yaml:6:19: error: tenants.static needs lines of the form name: value, but is a list
    6 | tenants: {static: [acme], schema: [a]}
      |                   ^
node.yaml:6:35: error: tenants.schema needs a single value, but is a list
    6 | tenants: {static: [acme], schema: [a]}
      |                                   ^
7 problems in node.yaml; nothing was changed`},
		{"a list that is none", ok + "cluster: {join: 'a:1'}\n", `
node.yaml:2:17: error: cluster.join needs a list, but is a single value
    2 | cluster: {join: 'a:1'}
      |                 ^
      = write each entry on a line of its own after a dash, or all in brackets: [a, b]`},
		{"an empty entry", ok + "cluster:\n  join:\n    - a:1\n    -\n", `
node.yaml:5:6: error: cluster.join[1] is empty
    5 |     -
      |      ^`},
		{"numbers", ok + "acquire: {batch: 010}\nexecution: {workers: 1_000}\n", `
node.yaml:2:18: error: "010" is not a whole number
    2 | acquire: {batch: 010}
      |                  ^
      = did you mean 10?
node.yaml:3:22: error: "1_000" is not a whole number
    3 | execution: {workers: 1_000}
      |                      ^
      = did you mean 1000?
2 problems in node.yaml; nothing was changed`},
		{"a number out of this world", ok + "acquire: {batch: 99999999999999999999}\n", `
node.yaml:2:18: error: "99999999999999999999" is too large a number
    2 | acquire: {batch: 99999999999999999999}
      |                  ^`},
		{"truth", ok + "node: {insecure_listen: yes}\n", `
node.yaml:2:25: error: "yes" is neither true nor false
    2 | node: {insecure_listen: yes}
      |                         ^
      = did you mean true?`},
		{"a cluster without a word", ok + "cluster:\n", `
node.yaml:2:1: error: cluster is empty
    2 | cluster:
      | ^
      = write cluster: {} to have it with its defaults, or remove the line`},
		{"anchors, aliases, merge keys and tags", ok + "node: &n {name: a}\nacquire: *n\nexecution:\n  <<: *n\n  workers: !!int 3\n", `
node.yaml:2:7: error: anchors (&name) are not supported
    2 | node: &n {name: a}
      |       ^
      = write the value out where it is needed
node.yaml:3:10: error: aliases (*name) and merge keys (<<) are not supported
    3 | acquire: *n
      |          ^
      = write the value out
node.yaml:5:3: error: aliases (*name) and merge keys (<<) are not supported
    5 |   <<: *n
      |   ^
      = write the value out
node.yaml:6:12: error: tags (!name) are not supported
    6 |   workers: !!int 3
      |            ^
      = leave it out; quotes make a text of anything
4 problems in node.yaml; nothing was changed`},

		// Reliability (b) 2: durations.
		{"durations", ok + "acquire: {idle_wait: 5, session: {ttl: 1d}, lock: {ttl: 0s}}\nexecution: {timeout: -5s, retention: P1Y, finish_within: 2h}\n", `
node.yaml:2:22: error: "5" has no unit
    2 | acquire: {idle_wait: 5, session: {ttl: 1d}, lock: {ttl: 0s}}
      |                      ^
      = did you mean 5s?
node.yaml:2:40: error: "1d" is not a duration
    2 | acquire: {idle_wait: 5, session: {ttl: 1d}, lock: {ttl: 0s}}
      |                                        ^
      = did you mean P1D?
node.yaml:2:57: error: 0s: 50ms to 1h are allowed
    2 | acquire: {idle_wait: 5, session: {ttl: 1d}, lock: {ttl: 0s}}
      |                                                         ^
node.yaml:3:22: error: -5s: at least 1s
    3 | execution: {timeout: -5s, retention: P1Y, finish_within: 2h}
      |                      ^
node.yaml:3:38: error: "P1Y" is not a duration: write 90s, 5m, 1h30m or PT5M
    3 | execution: {timeout: -5s, retention: P1Y, finish_within: 2h}
      |                                      ^
node.yaml:3:58: error: 2h0m0s: more than 0 and at most 1h
    3 | execution: {timeout: -5s, retention: P1Y, finish_within: 2h}
      |                                                          ^
6 problems in node.yaml; nothing was changed`},
		{"durations that do not go together", ok + "acquire:\n  lock:\n    ttl: PT30S\n    renew_every: 20s\n  session: {ttl: 40s, heartbeat_every: 20s}\n", `
node.yaml:5:18: error: 20s leaves no second try within acquire.lock.ttl 30s
    5 |     renew_every: 20s
      |                  ^
      = a quarter of the TTL is usual
node.yaml:6:40: error: 20s allows fewer than three heartbeats within acquire.session.ttl 40s
    6 |   session: {ttl: 40s, heartbeat_every: 20s}
      |                                        ^
      = a fifth of the TTL is usual
2 problems in node.yaml; nothing was changed`},
		{"a default that does not go with what the file says", ok + "acquire:\n  lock:\n    ttl: 20s\n", `
node.yaml:4:10: error: acquire.session.ttl: 15s is shorter than acquire.lock.ttl 20s: jobs would be taken from a node that still acquires
    4 |     ttl: 20s
      |          ^
      = make it the longer one`},
		{"nothing that follows from a refused value", ok + "acquire:\n  lock: {ttl: 5 minutes, renew_every: 20s}\n", `
node.yaml:3:15: error: "5 minutes" is not a duration: write 90s, 5m, 1h30m or PT5M
    3 |   lock: {ttl: 5 minutes, renew_every: 20s}
      |               ^`},

		// Reliability (b) 3: amounts.
		{"amounts", "pools: {a: {dsn: '${env:DATABASE_URL}', max_conns: 0}, b: {dsn: '${env:OTHER_URL}', max_conns: 2}}\nacquire: {batch: 20000}\nexecution: {workers: 0, retry: R5}\n", `
node.yaml:1:52: error: 0 connections are too few
    1 | pools: {a: {dsn: '${env:DATABASE_URL}', max_conns: 0}, b: {dsn: '${env:OTHER_URL}', max_conns: 2}}
      |                                                    ^
      = remove the line to have the default
node.yaml:1:96: error: 2 connections: 4 to 1000 are allowed
    1 | pools: {a: {dsn: '${env:DATABASE_URL}', max_conns: 0}, b: {dsn: '${env:OTHER_URL}', max_conns: 2}}
      |                                                                                                ^
node.yaml:2:18: error: 20000 jobs: 1 to 10000 are allowed
    2 | acquire: {batch: 20000}
      |                  ^
node.yaml:3:22: error: 0 workers: 1 to 10000 are allowed
    3 | execution: {workers: 0, retry: R5}
      |                      ^
node.yaml:3:32: error: retry "R5": "R5" is not a duration: write 90s, 5m, 1h30m or PT5M; write a cycle such as R5/PT5M, a list such as PT1M,PT5M,PT1H, or exponential(10, 10s, 6h)
    3 | execution: {workers: 0, retry: R5}
      |                                ^
5 problems in node.yaml; nothing was changed`},

		{"limits", ok + "limits:\n  kinds:\n    sap.call: {max_running: 0, pools: {mian: 1, main: 200}}\n", `
node.yaml:4:5: error: limits nothing
    4 |     sap.call: {max_running: 0, pools: {mian: 1, main: 200}}
      |     ^
      = write max_running: 50, or rate: 20, or both
node.yaml:4:46: error: no pool has this name
    4 |     sap.call: {max_running: 0, pools: {mian: 1, main: 200}}
      |                                              ^
      = did you mean main?
node.yaml:4:55: error: a weight of 200: 0 to 100 are allowed
    4 |     sap.call: {max_running: 0, pools: {mian: 1, main: 200}}
      |                                                       ^
      = a pool that is not named has 1
3 problems in node.yaml; nothing was changed`},

		{"queues", ok + "acquire: {queues: {weights: {mail: 0, reports: many, bills: , rest: 1000, \"a b\": 1}, age_every: 1ms}}\n", `
node.yaml:2:36: error: a weight of 0: 1 to 1000 are allowed
    2 | acquire: {queues: {weights: {mail: 0, reports: many, bills: , rest: 1000, "a b": 1}, age_every: 1ms}}
      |                                    ^
      = a queue that is not named has 1
node.yaml:2:48: error: "many" is not a whole number
    2 | acquire: {queues: {weights: {mail: 0, reports: many, bills: , rest: 1000, "a b": 1}, age_every: 1ms}}
      |                                                ^
node.yaml:2:61: error: acquire.queues.weights.bills is empty
    2 | acquire: {queues: {weights: {mail: 0, reports: many, bills: , rest: 1000, "a b": 1}, age_every: 1ms}}
      |                                                             ^
node.yaml:2:82: error: queue "a b": 1 to 128 letters, digits and . _ : / - are allowed, beginning with a letter or a digit
    2 | acquire: {queues: {weights: {mail: 0, reports: many, bills: , rest: 1000, "a b": 1}, age_every: 1ms}}
      |                                                                                  ^
node.yaml:2:97: error: 1ms: 50ms to 1h are allowed
    2 | acquire: {queues: {weights: {mail: 0, reports: many, bills: , rest: 1000, "a b": 1}, age_every: 1ms}}
      |                                                                                                 ^
5 problems in node.yaml; nothing was changed`},

		{"observability", ok + "node: {tenant_metrics: some, otlp_endpoint: 'collector:4318', trace_url: 'https://example.com'}\n", `
node.yaml:2:24: error: "some" is not off, top or all
    2 | node: {tenant_metrics: some, otlp_endpoint: 'collector:4318', trace_url: 'https://example.com'}
      |                        ^
      = choose off, top or all
node.yaml:2:45: error: node.otlp_endpoint is not the URL of a collector
    2 | node: {tenant_metrics: some, otlp_endpoint: 'collector:4318', trace_url: 'https://example.com'}
      |                                             ^
      = write a URL such as http://127.0.0.1:4318
node.yaml:2:74: error: node.trace_url is not a URL with {trace} in it
    2 | node: {tenant_metrics: some, otlp_endpoint: 'collector:4318', trace_url: 'https://example.com'}
      |                                                                          ^
      = write a URL such as https://grafana.example.com/trace/{trace}
3 problems in node.yaml; nothing was changed`},
		// Reliability (b) 4, 5, 6: the node.
		{"node", ok + "node: {name: a/b, listen: 'localhost:8080', log: {level: warning, format: text}}\n", `
node.yaml:2:14: error: "a/b" is not a node's name: 1 to 63 letters, digits and . _ - are allowed
    2 | node: {name: a/b, listen: 'localhost:8080', log: {level: warning, format: text}}
      |              ^
      = choose a name that no other node has
node.yaml:2:27: error: "localhost:8080" is not an address
    2 | node: {name: a/b, listen: 'localhost:8080', log: {level: warning, format: text}}
      |                           ^
      = did you mean 127.0.0.1:8080?
node.yaml:2:58: error: "warning" is not a log level
    2 | node: {name: a/b, listen: 'localhost:8080', log: {level: warning, format: text}}
      |                                                          ^
      = choose debug, info, warn or error
node.yaml:2:75: error: "text" is not a log format
    2 | node: {name: a/b, listen: 'localhost:8080', log: {level: warning, format: text}}
      |                                                                           ^
      = choose json or console
4 problems in node.yaml; nothing was changed`},
		{"a port alone", ok + "node: {listen: 8080}\n", `
node.yaml:2:16: error: "8080" is not an address
    2 | node: {listen: 8080}
      |                ^
      = did you mean 127.0.0.1:8080?`},
		{"listening for everybody", ok + "node: {listen: ':8080'}\n", `
node.yaml:2:16: error: :8080 can be reached from other machines, and there is no TLS: what is sent there, tokens among it, can be read on the way
    2 | node: {listen: ':8080'}
      |                ^
      = set node.tls_cert and node.tls_key, or node.trusted_proxies if a proxy in front has TLS and knows who calls, or listen on 127.0.0.1; node.insecure_listen: true allows it as it is`},
		{"listening for everybody, who is a stranger", ok + "node: {listen: ':8080', tls_cert: /c, tls_key: /k}\n", `
node.yaml:2:16: error: :8080 can be reached from other machines, and nobody is named who may call: anyone who connects would be a stranger
    2 | node: {listen: ':8080', tls_cert: /c, tls_key: /k}
      |                ^
      = add one under node.tokens (tenure token new makes its secret), or set node.oidc, or listen on 127.0.0.1; node.insecure_listen: true allows it as it is`},
		{"half of TLS", ok + "node: {tls_cert: c.pem}\n", `
node.yaml:2:18: error: node.tls_cert and node.tls_key go together, and one of them is empty
    2 | node: {tls_cert: c.pem}
      |                  ^
      = set both, or neither
node.yaml:2:18: error: "c.pem" is not the whole path of a file
    2 | node: {tls_cert: c.pem}
      |                  ^
      = write the whole path, beginning with /
2 problems in node.yaml; nothing was changed`},
		{"trusted proxies", ok + "node: {trusted_proxies: {networks: [0.0.0.0/0], user_header: Authorization}}\n", `
node.yaml:2:8: error: node.trusted_proxies.users is empty, so that nobody would be let in
    2 | node: {trusted_proxies: {networks: [0.0.0.0/0], user_header: Authorization}}
      |        ^
      = write a line such as ann@example.com: {role: admin}; "*" is for whoever is not named
node.yaml:2:37: error: node.trusted_proxies.networks[0] is every network: anybody could say who they are
    2 | node: {trusted_proxies: {networks: [0.0.0.0/0], user_header: Authorization}}
      |                                     ^
      = name the proxies' own addresses
node.yaml:2:62: error: Authorization does not say who calls
    2 | node: {trusted_proxies: {networks: [0.0.0.0/0], user_header: Authorization}}
      |                                                              ^
      = write the one in which the proxy puts the user's name, such as X-Forwarded-User
3 problems in node.yaml; nothing was changed`},
		{"sign-in", ok + `node:
  oidc:
    issuer: http://login.example.com
    redirect_url: https://tenure.example.com
    claim: ""
    session: 48h
    cookie_key_file: key
    roles: {ops: {role: root}}
`, `
node.yaml:3:3: error: node.oidc.client_id is empty
    3 |   oidc:
      |   ^
      = write the name that the provider knows the dashboard by
node.yaml:4:13: error: "http://login.example.com" is not the URL of a provider
    4 |     issuer: http://login.example.com
      |             ^
      = write the provider's URL such as https://login.example.com
node.yaml:5:19: error: "https://tenure.example.com" is not where a browser is sent back to
    5 |     redirect_url: https://tenure.example.com
      |                   ^
      = write the dashboard's address and /oidc/callback, such as https://tenure.example.com/oidc/callback
node.yaml:6:12: error: node.oidc.claim is empty
    6 |     claim: ""
      |            ^
      = write the one that has people's groups, such as groups
node.yaml:7:14: error: 48h0m0s: 1m0s to 24h0m0s are allowed
    7 |     session: 48h
      |              ^
node.yaml:8:22: error: "key" is not the whole path of a file
    8 |     cookie_key_file: key
      |                      ^
      = write the whole path, beginning with /
node.yaml:9:25: error: "root" is not a role
    9 |     roles: {ops: {role: root}}
      |                         ^
      = choose read, operate or admin
7 problems in node.yaml; nothing was changed`},
		{"profiles for everybody", ok + "node: {pprof_listen: ':6060'}\n", `
node.yaml:2:22: error: ":6060" is not an address of this machine alone: profiles ask nobody who they are, and show what is in the memory
    2 | node: {pprof_listen: ':6060'}
      |                      ^
      = write 127.0.0.1 and a port, or off; from elsewhere go through ssh -L or kubectl port-forward`},
		{"a token that is no hash", ok + "node: {tokens: {ops: {secret_hash: hunter2, expires: soon, role: root}}}\n", `
node.yaml:2:36: error: it is not a SHA-256 hash: 64 hexadecimal digits are
    2 | node: {tokens: {ops: {secret_hash: hunter2, expires: soon, role: root}}}
      |                                    ^
      = write the hash that tenure token new prints, or what this prints for a long random secret: printf %s "$SECRET" | sha256sum
node.yaml:2:54: error: "soon" is not a time
    2 | node: {tokens: {ops: {secret_hash: hunter2, expires: soon, role: root}}}
      |                                                      ^
      = write a time such as 2027-01-31T09:00:00Z
node.yaml:2:66: error: "root" is not a role
    2 | node: {tokens: {ops: {secret_hash: hunter2, expires: soon, role: root}}}
      |                                                                  ^
      = choose read, operate or admin
3 problems in node.yaml; nothing was changed`},
		{"two listeners on a port", ok + "node: {listen: '127.0.0.1:7946'}\ncluster: {}\n", `
node.yaml:2:16: error: node.listen has the port of cluster.bind, where gossip listens
    2 | node: {listen: '127.0.0.1:7946'}
      |                ^
      = choose another port for one of them`},

		// Reliability (b) 8, 9, 10, 11: gossip.
		{"gossip", ok + `cluster:
  bind: myhost:7946
  advertise: node-1.example
  join: [seed-1]
  keys: [c2hvcnQ=, "%%"]
  label: ""
  profile: lann
`, `
node.yaml:3:9: error: "myhost:7946" is not an address; gossip would listen on every interface
    3 |   bind: myhost:7946
      |         ^
      = write an IP literal and a port, such as 0.0.0.0:7946
node.yaml:4:14: error: "node-1.example" is not an IP address
    4 |   advertise: node-1.example
      |              ^
      = write the IP, with or without a port, at which the other nodes reach this one
node.yaml:5:10: error: "seed-1": has no port
    5 |   join: [seed-1]
      |          ^
      = write host:port, or dns:name:port for every address of a name
node.yaml:6:10: error: cluster.keys[0] has 5 bytes: 16, 24 or 32 are allowed
    6 |   keys: ***
      |         ^
      = make one with: openssl rand -base64 32
node.yaml:6:20: error: cluster.keys[1] is not base64
    6 |   keys: ***
      |         ^
      = make one with: openssl rand -base64 32
node.yaml:7:10: error: cluster.label has 0 bytes
    7 |   label: ""
      |          ^
      = give 1 to 64 bytes
node.yaml:8:12: error: "lann" is not a profile
    8 |   profile: lann
      |            ^
      = choose local, lan or wan
7 problems in node.yaml; nothing was changed`},
		{"gossip for everybody", ok + "cluster:\n  bind: 0.0.0.0:7946\n", `
node.yaml:3:9: error: cluster.keys: no key, but cluster.bind 0.0.0.0 is not loopback: anybody who reaches it could join
    3 |   bind: 0.0.0.0:7946
      |         ^
      = make one with: openssl rand -base64 32; or set cluster.insecure: true if the network is trusted`},
		{"gossip that nobody reaches", ok + "cluster: {advertise: 10.0.0.5, join: ['[::1]:7947', 'node-b.example.com:7946']}\n", `
node.yaml:2:22: error: 10.0.0.5 cannot be reached while cluster.bind 127.0.0.1 is loopback, from where nothing gets to another machine
    2 | cluster: {advertise: 10.0.0.5, join: ['[::1]:7947', 'node-b.example.com:7946']}
      |                      ^
      = set cluster.bind to 0.0.0.0:7946 or to an address of this machine
node.yaml:2:39: error: [::1]:7947 and cluster.bind 127.0.0.1 are of different address families, so that it would never be reached
    2 | cluster: {advertise: 10.0.0.5, join: ['[::1]:7947', 'node-b.example.com:7946']}
      |                                       ^
      = give the address that it has in the family of cluster.bind, or bind 0.0.0.0, which takes both
2 problems in node.yaml; nothing was changed`},
		{"gossip on loopback, seeds elsewhere", ok + "cluster: {join: ['10.0.0.5:7946']}\n", `
node.yaml:2:11: error: cluster.bind is loopback (127.0.0.1) while cluster.join names other machines, which cannot be reached from there
    2 | cluster: {join: ['10.0.0.5:7946']}
      |           ^
      = bind an address of this machine, or 0.0.0.0`},
		{"a key that could not be read is not missing, too", ok + "cluster:\n  bind: 0.0.0.0:7946\n  keys: ['${env:NO_SUCH}']\n", `
node.yaml:4:10: error: environment variable NO_SUCH is not set
    4 |   keys: ['${env:NO_SUCH}']
      |          ^
      = set it where the node is started, or read a file: ${file:/path}`},

		// Pools.
		{"pools", "pools:\n  -x: {dsn: '${env:DATABASE_URL}'}\n  y:\n  z: {dsn: 'postgres://app:hunter2@db:port/x'}\n", `
node.yaml:2:3: error: pool name "-x": 1 to 63 letters, digits and . _ - are allowed, beginning with a letter or a digit
    2 |   -x: {dsn: '${env:DATABASE_URL}'}
      |   ^
node.yaml:3:3: error: pools.y.dsn is empty
    3 |   y:
      |   ^
      = write dsn: ${env:NAME} or dsn: ${file:/path}
node.yaml:4:12: error: pools.z.dsn cannot be read as a Postgres connection string
    4 |   z: {dsn: 'postgres://app:***@db:port/x'}
      |            ^
      = write postgres://user@host:5432/database?sslmode=verify-full
3 problems in node.yaml; nothing was changed`},
		{"no TLS to another network", "pools:\n  a:\n    dsn: postgres://app@db.example.com/a\n  b:\n    dsn: postgres://app@10.1.2.3/b?sslmode=disable\n    insecure: true\n", `
node.yaml:3:10: error: pools.a.dsn does not insist on TLS, so that anybody on the way can read and change what db.example.com is sent
    3 |     dsn: postgres://app@db.example.com/a
      |          ^
      = add sslmode=verify-full, or set insecure: true beside it if nobody else is on the network
1 problem in node.yaml; nothing was changed`},
		{"two pools in one database", "pools:\n  a:\n    dsn: ${env:DATABASE_URL}\n  b:\n    dsn: host=dbexample dbname=app user=other password=hunter2 sslmode=disable\n", `
node.yaml:5:10: error: pools a and b are the same database
    5 |     dsn: host=dbexample dbname=app user=other password=*** sslmode=disable
      |          ^
      = remove one of them`},

		// Reliability (b) 19, 20, 21: tenants.
		{"tenants", `pools:
  eu-1: {dsn: '${env:DATABASE_URL}'}
tenants:
  static:
    acme: eu-1
    ACME: eu-1
    " x": eu-1
    globex: {pool: eu_1}
    pub: {pool: eu-1, schema: public}
    twin: {pool: eu-1, schema: acme}
    lost:
  table: {pool: eu2, query: SELECT 1, cache: 0}
  schema: "{tenant}"
`, `
node.yaml:5:5: error: tenants.static.acme differs from tenant "ACME" only in case
    5 |     acme: eu-1
      |     ^
      = rename one of them
node.yaml:7:5: error: tenant id " x" begins or ends with white space
    7 |     " x": eu-1
      |     ^
node.yaml:8:20: error: tenant "globex" is mapped to pool "eu_1", which is not under pools
    8 |     globex: {pool: eu_1}
      |                    ^
      = did you mean eu-1?
node.yaml:9:5: error: tenant "pub": schema "public" is not a tenant's: give it a schema of its own
    9 |     pub: {pool: eu-1, schema: public}
      |     ^
node.yaml:10:5: error: tenants "acme" and "twin" share schema "acme" in pool "eu-1"
   10 |     twin: {pool: eu-1, schema: acme}
      |     ^
      = give each its own schema
node.yaml:11:5: error: tenants.static.lost.pool is empty
   11 |     lost:
      |     ^
      = name one of pools
node.yaml:12:17: error: "eu2" is not under pools
   12 |   table: {pool: eu2, query: SELECT 1, cache: 0}
      |                 ^
      = did you mean eu-1?
node.yaml:12:29: error: tenants.table.query does not use $1, the tenant's id
   12 |   table: {pool: eu2, query: SELECT 1, cache: 0}
      |                             ^
      = such as: SELECT pool, schema_name FROM app.tenant WHERE id = $1
node.yaml:12:46: error: 0 would ask the table for every job
   12 |   table: {pool: eu2, query: SELECT 1, cache: 0}
      |                                              ^
      = write 1s or more, or remove the line to have the default
9 problems in node.yaml; nothing was changed`},
		{"an unknown pool like no other", ok + "tenants: {static: {acme: frankfurt}}\n", `
node.yaml:2:26: error: tenant "acme" is mapped to pool "frankfurt", which is not under pools
    2 | tenants: {static: {acme: frankfurt}}
      |                          ^
      = pools are: main`},
		{"a pattern without a schema is told once", ok + "tenants: {static: {a: main, b: main}, schema: ''}\n", `
node.yaml:2:47: error: tenants.schema is empty
    2 | tenants: {static: {a: main, b: main}, schema: ''}
      |                                               ^
      = write a pattern such as "t_{tenant}"`},

		{"handlers", ok + "handlers: {http_request: {allow: [10.0.0.1/8, 10.0.0.1, intranet, 0.0.0.0/0]}}\n", `
node.yaml:2:35: error: "10.0.0.1/8" is not the beginning of a network
    2 | handlers: {http_request: {allow: [10.0.0.1/8, 10.0.0.1, intranet, 0.0.0.0/0]}}
      |                                   ^
      = did you mean 10.0.0.0/8?
node.yaml:2:47: error: "10.0.0.1" is not a network
    2 | handlers: {http_request: {allow: [10.0.0.1/8, 10.0.0.1, intranet, 0.0.0.0/0]}}
      |                                               ^
      = did you mean 10.0.0.1/32?
node.yaml:2:57: error: "intranet" is not a network: write one such as 10.20.0.0/16
    2 | handlers: {http_request: {allow: [10.0.0.1/8, 10.0.0.1, intranet, 0.0.0.0/0]}}
      |                                                         ^
node.yaml:2:67: error: handlers.http_request.allow[3] opens every network, a cloud's metadata service included
    2 | handlers: {http_request: {allow: [10.0.0.1/8, 10.0.0.1, intranet, 0.0.0.0/0]}}
      |                                                                   ^
      = name the networks that webhooks need
4 problems in node.yaml; nothing was changed`},

		// Reliability (b) 7: references.
		{"references", `pools:
  a: {dsn: "${env:NO_SUCH}"}
  b: {dsn: "${env:EMPTY}"}
  c: {dsn: "${file:/no/such/file}"}
  d: {dsn: "${file:secret}"}
  e: {dsn: "${file:/}"}
  f: {dsn: "${DATABASE_URL}"}
  g: {dsn: "postgres://app:${vault}@db/x"}
  h: {dsn: "${file:${env:NO_SUCH}/x}"}
`, `
node.yaml:2:12: error: environment variable NO_SUCH is not set
    2 |   a: {dsn: "${env:NO_SUCH}"}
      |            ^
      = set it where the node is started, or read a file: ${file:/path}
node.yaml:3:12: error: environment variable EMPTY is empty
    3 |   b: {dsn: "${env:EMPTY}"}
      |            ^
      = set it where the node is started, or read a file: ${file:/path}
node.yaml:4:12: error: ${file:/no/such/file}: no such file or directory
    4 |   c: {dsn: "${file:/no/such/file}"}
      |            ^
node.yaml:5:12: error: ${file:secret}: write the whole path, beginning with /
    5 |   d: {dsn: "${file:secret}"}
      |            ^
node.yaml:6:12: error: ${file:/}: not a file
    6 |   e: {dsn: "${file:/}"}
      |            ^
node.yaml:7:12: error: ${ begins a reference, but neither ${env:NAME} nor ${file:/path} follows
    7 |   f: {dsn: "${DATABASE_URL}"}
      |            ^
      = did you mean ${env:DATABASE_URL}?
node.yaml:8:12: error: ${ begins a reference, but neither ${env:NAME} nor ${file:/path} follows
    8 |   g: {dsn: "postgres://app:***@db/x"}
      |            ^
      = write $${ for the characters themselves
node.yaml:9:12: error: environment variable NO_SUCH is not set
    9 |   h: {dsn: "${file:${env:NO_SUCH}/x}"}
      |            ^
      = set it where the node is started, or read a file: ${file:/path}
8 problems in node.yaml; nothing was changed`},
		{"what references stood for is not told", `pools: {main: {dsn: '${env:DATABASE_URL}', max_conns: "${env:TWO}"}}
node: {listen: "${env:MONKEY}", log: {level: "${env:MONKEY}"}}
cluster: {bind: "${env:ADDRESS}", advertise: "${env:MONKEY}"}
acquire: {batch: "${env:MONKEY}", idle_wait: "${env:MONKEY}", lock: {renew_every: "${env:SHORT}"}}
tenants: {static: {"${x": main, acme: "${env:MONKEY}"}, schema: "${env:MONKEY}_{tenant}"}
handlers: {http_request: {allow: ["${env:MONKEY}"]}}
`, `
node.yaml:1:55: error: ${env:TWO} connections: 4 to 1000 are allowed
    1 | pools: {main: {dsn: '${env:DATABASE_URL}', max_conns: "${env:TWO}"}}
      |                                                       ^
node.yaml:2:16: error: "${env:MONKEY}" is not an address
    2 | node: {listen: "${env:MONKEY}", log: {level: "${env:MONKEY}"}}
      |                ^
      = write an IP literal and a port, such as 127.0.0.1:8080, or off to serve nothing
node.yaml:2:46: error: "${env:MONKEY}" is not a log level
    2 | node: {listen: "${env:MONKEY}", log: {level: "${env:MONKEY}"}}
      |                                              ^
      = choose debug, info, warn or error
node.yaml:3:17: error: "${env:ADDRESS}" is not an address; gossip would listen on every interface
    3 | cluster: {bind: "${env:ADDRESS}", advertise: "${env:MONKEY}"}
      |                 ^
      = write an IP literal and a port, such as 0.0.0.0:7946
node.yaml:3:46: error: "${env:MONKEY}" is not an IP address
    3 | cluster: {bind: "${env:ADDRESS}", advertise: "${env:MONKEY}"}
      |                                              ^
      = write the IP, with or without a port, at which the other nodes reach this one
node.yaml:4:18: error: ${env:MONKEY} is not a whole number
    4 | acquire: {batch: "${env:MONKEY}", idle_wait: "${env:MONKEY}", lock: {renew_every: "${env:SHORT}"}}
      |                  ^
node.yaml:4:46: error: ${env:MONKEY} is not a duration: write 90s, 5m, 1h30m or PT5M
    4 | acquire: {batch: "${env:MONKEY}", idle_wait: "${env:MONKEY}", lock: {renew_every: "${env:SHORT}"}}
      |                                              ^
node.yaml:4:83: error: ${env:SHORT} leaves no second try within acquire.lock.ttl 8s
    4 | acquire: {batch: "${env:MONKEY}", idle_wait: "${env:MONKEY}", lock: {renew_every: "${env:SHORT}"}}
      |                                                                                   ^
      = a quarter of the TTL is usual
node.yaml:5:20: error: a key cannot be a reference
    5 | tenants: {static: {"${x": main, acme: "${env:MONKEY}"}, schema: "${env:MONKEY}_{tenant}"}
      |                    ^
      = write the name itself
node.yaml:5:39: error: tenant "acme" is mapped to pool "${env:MONKEY}", which is not under pools
    5 | tenants: {static: {"${x": main, acme: "${env:MONKEY}"}, schema: "${env:MONKEY}_{tenant}"}
      |                                       ^
      = pools are: main
node.yaml:6:35: error: ${env:MONKEY} is not a network: write one such as 10.20.0.0/16
    6 | handlers: {http_request: {allow: ["${env:MONKEY}"]}}
      |                                   ^
11 problems in node.yaml; nothing was changed`},
		{"nor a piece of it", ok + "cluster: {bind: '${env:PUBLIC}'}\n", `
node.yaml:2:17: error: cluster.keys does not go with cluster.bind ${env:PUBLIC}
    2 | cluster: {bind: '${env:PUBLIC}'}
      |                 ^
      = make one with: openssl rand -base64 32; or set cluster.insecure: true if the network is trusted`},

		// What is not YAML; the sections above it are checked all the same.
		{"a bracket left open", "acquire: {batch: x}\npools:\n  a: {dsn: ${env:DATABASE_URL}}\n", `
node.yaml:1:18: error: "x" is not a whole number
    1 | acquire: {batch: x}
      |                  ^
node.yaml:3:6: error: this bracket is not closed
    3 |   a: {dsn: ${env:DATABASE_URL}}
      |      ^
      = close it, with commas between the entries; within brackets a reference needs quotes: "${env:NAME}"
2 problems in node.yaml; nothing was changed`},
		{"a quote left open", "pools:\n  a: {dsn: 'postgres://app:hunter2@db/x}\n", `
node.yaml:2:12: error: this quote is not closed
    2 |   a: {dsn: 'postgres://app:***@db/x}
      |            ^
      = close it`},
		{"a tab", "pools:\n\tmain: 1\n", `
node.yaml:2:1: error: a tab indents this line
    2 |  main: 1
      | ^
      = use spaces`},
		{"an indentation that does not fit", "pools:\n  a:\n    dsn: x\n   b: 1\n", `
node.yaml:4:4: error: the indentation does not fit the lines above
    4 |    b: 1
      |    ^
      = align keys of one section, and the dashes of one list`},
		{"a colon too many", "pools: {}\nnode: name: x\n", `
node.yaml:2:11: error: a colon cannot stand here
    2 | node: name: x
      |           ^
      = quote a value that holds a colon and a space, align keys of one section, and look for a key without a colon above`},
		{"a colon too few", "pools:\n  a:\n    max_conns: 5\n    dsn x\nnode: {}\n", `
node.yaml:4:5: error: a key without a colon
    4 |     dsn x
      |     ^
      = write key: value`},
		{"something after a value", "node: {name: 'a'}}\n", `
node.yaml:1:18: error: the value before this has ended already
    1 | node: {name: 'a'}}
      |                  ^
      = put the whole value in quotes, or remove what is left over`},
		{"a character that begins no value", "node: {name: @a}\n", `
node.yaml:1:14: error: a value cannot begin with this character
    1 | node: {name: @a}
      |              ^
      = put the value in quotes`},
		{"an alias of nothing", "node: *a\n", `
node.yaml:1:7: error: aliases (*name) are not supported
    1 | node: *a
      |       ^
      = write the value out, or quote a value that begins with *`},
		{"two documents", ok + "---\nnode: {}\n", `
node.yaml:2:1: error: a second document begins here
    2 | ---
      | ^
      = keep one, and remove the line with the three dashes`},
		{"too deep", "node: " + strings.Repeat("[", 40), `
node.yaml:1:39: error: values are nested more than 32 deep
    1 | node: [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[
      |                                       ^`},
		{"a control character", "node: {name: a\x1b[31m}\n", `
node.yaml:1:15: error: the character U+001B cannot stand in a YAML file
    1 | node: {name: a [31m}
      |               ^
      = in double quotes, write it as an escape such as \x07`},
		{"not UTF-8", "node:\n  name: \xe9\n", `
node.yaml:2:9: error: the file is not UTF-8 text
    2 |   name: ` + "\uFFFD" + `
      |         ^
      = save it as UTF-8`},
		{"too large", strings.Repeat("#", maxFile+1), `
node.yaml:1:1: error: the file is larger than 1024 KiB`},
		{"a long line is cut around the caret", ok + "node: {name: " + strings.Repeat("a", 100) + ", lisen: off, log: {level: " + strings.Repeat("b", 100) + "}}\n", `
node.yaml:2:14: error: "` + strings.Repeat("a", 80) + `" is not a node's name: 1 to 63 letters, digits and . _ - are allowed
    2 | node: {name: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa, lise…
      |              ^
      = choose a name that no other node has
node.yaml:2:116: error: unknown key "lisen"
    2 | …aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa, lisen: off, log: {level: bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb…
      |                                                             ^
      = did you mean listen?
node.yaml:2:141: error: "` + strings.Repeat("b", 80) + `" is not a log level
    2 | …aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa, lisen: off, log: {level: bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb…
      |                                                             ^
      = choose debug, info, warn or error
3 problems in node.yaml; nothing was changed`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			want := strings.TrimPrefix(c.want, "\n")
			if !strings.HasSuffix(want, "nothing was changed") {
				want += "\n1 problem in node.yaml; nothing was changed"
			}
			// The long example begins on a line of its own.
			_, err := Parse("node.yaml", []byte(strings.TrimPrefix(c.in, "\n")))
			require.EqualError(t, err, want)
		})
	}
}

func TestFaultsAsJSON(t *testing.T) {
	t.Parallel()
	_, err := Parse("node.yaml", []byte("pools:\n  a: {dsn: '${env:DATABASE_URL}', max_con: 5}\n"))
	text, jsonErr := json.Marshal(err)
	require.NoError(t, jsonErr)
	require.JSONEq(t, `{"file":"node.yaml","faults":[{"file":"node.yaml","line":2,"column":35,"path":"pools.a.max_con",
		"what":"unknown key \"max_con\"","fix":"did you mean max_conns?",
		"excerpt":"    2 |   a: {dsn: '${env:DATABASE_URL}', max_con: 5}\n      |                                   ^\n"}]}`, string(text))
}

// Reliability (b) 7: a file that everybody can read and that holds a secret.
func TestLoadRefusesExposedSecrets(t *testing.T) {
	t.Parallel()
	const literal = `pools:
  a:
    dsn: postgres://app:hunter2@db/x
  b:
    dsn: host=db dbname=y password='hunter2'
  c:
    dsn: postgres://app:${env:KEY}@db/z
cluster:
  keys:
    - ${env:KEY}
    - AQIDBAUGBwgJCgsMDQ4PEA==
`
	path := filepath.Join(t.TempDir(), "node.yaml")
	require.NoError(t, os.WriteFile(path, []byte(literal), 0o600))
	_, err := Load(path)
	require.NoError(t, err)

	require.NoError(t, os.Chmod(path, 0o640)) // a group is not everybody
	_, err = Load(path)
	require.NoError(t, err)

	require.NoError(t, os.Chmod(path, 0o644))
	_, err = Load(path)
	require.EqualError(t, err, strings.ReplaceAll(`FILE:3:10: error: pools.a.dsn spells out a secret, and every user of this machine can read the file
    3 |     dsn: postgres://app:***@db/x
      |          ^
      = chmod 600 FILE, or write ${env:NAME} or ${file:/path} in its place
FILE:5:10: error: pools.b.dsn spells out a secret, and every user of this machine can read the file
    5 |     dsn: host=db dbname=y password=***
      |          ^
      = chmod 600 FILE, or write ${env:NAME} or ${file:/path} in its place
FILE:11:7: error: cluster.keys[1] spells out a secret, and every user of this machine can read the file
   11 |     - ***
      |       ^
      = chmod 600 FILE, or write ${env:NAME} or ${file:/path} in its place
3 problems in FILE; nothing was changed`, "FILE", path))

	require.NoError(t, os.WriteFile(path, []byte(Minimal), 0o644)) // references only
	require.NoError(t, os.Chmod(path, 0o644))
	_, err = Load(path)
	require.NoError(t, err)
}

func TestLoadMissingFile(t *testing.T) {
	t.Parallel()
	_, err := Load(filepath.Join(t.TempDir(), "node.yaml"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
