package membership

import "github.com/tenurehq/tenure/internal/mutant"

var _ = []mutant.Mutant{
	{
		Promise: "P9", Name: "whom packets do not reach is not asked over TCP",
		File: "membership/profile.go", Func: "common",
		Old:  "m.DisableTcpPings = false",
		New:  "m.DisableTcpPings = true",
		Test: "TestUDPBlocked",
	},
	{
		Promise: "P9", Name: "members are not looked for again after a partition",
		File: "membership/join.go", Func: "(*joiner).keepJoining",
		Old: `case <-time.After(wait):
}`,
		New: `case <-time.After(wait):
	if !first {
		return
	}
}`,
		Test: "TestPartitionHeals",
	},
	{
		Promise: "P9", Name: "a packet may say that it was encrypted as in the first version",
		File: "membership/packetfilter.go", Func: "(*packetFilter).run",
		Old:  "|| p.Buf[g.label] != encryptionVersion {",
		New:  "{",
		Test: "TestPacketFilter",
	},
	{
		Promise: "P9", Name: "a stream may have nothing in it",
		File: "membership/packetfilter.go", Func: "(*checkedStream).Read",
		Old:  "<= encryptedNothing",
		New:  "< 1",
		Test: "TestPacketFilter",
	},
	{
		Promise: "P2", Name: "what members exchange is not taken in",
		File: "membership/exchange.go", Func: "(*exchange).mergeState",
		Old:  "if len(b) == 0 || e.merge == nil {",
		New:  "if true {",
		Test: "TestExchange",
	},
	{
		Promise: "P10", Name: "what strangers send is kept",
		File: "membership/packetfilter.go", Func: "(*checkedStream).Read",
		Old: `func (s *checkedStream) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)`,
		New: `var hoard []byte

func (s *checkedStream) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	hoard = append(hoard, b[:n]...)`,
		Test: "TestRawBytes",
	},
	{
		Promise: "P9", Name: "gossip that cannot be decrypted is not counted",
		File: "membership/logger.go", Func: "(*bridge).Write",
		Old:  "b.metrics.undecryptable.Inc()",
		New:  "",
		Test: "TestKeysAndLabelsKeepApart",
	},
	{
		Promise: "P9", Name: "anyone who is kept apart by its key does not say so",
		File: "membership/logger.go", Func: "(*bridge).Write",
		Old:  "level, message = zapcore.WarnLevel,",
		New:  "message =",
		Test: "TestKeysDiffer",
	},
	{
		Promise: "P9", Name: "a new key of gossip never comes first",
		File: "membership/keys.go", Func: "(*keys).replace",
		Old:  "k.ring.UseKey(want[0])",
		New:  "k.ring.UseKey(k.ring.GetPrimaryKey())",
		Test: "TestKeysChangeWhileNodesTalk",
	},
	{
		Promise: "P9", Name: "an old key of gossip is never forgotten",
		File: "membership/keys.go", Func: "(*keys).replace",
		Old:  "range slices.Backward(have[same:]) {",
		New:  "range slices.Backward(have[:0]) {",
		Test: "TestKeysChangeWhileNodesTalk",
	},
	{
		Promise: "P9", Name: "a node that only its own machine reaches joins others",
		File: "membership/join.go", Func: "(*joiner).dropOneWay",
		Old:  "if !j.advertised.Addr().IsLoopback() {",
		New:  "if j.advertised.IsValid() {",
		Test: "TestOneWay",
	},
	{
		Promise: "P9", Name: "that seeds cannot answer is said at every attempt",
		File: "membership/join.go", Func: "(*joiner).dropOneWay",
		Old:  "j.oneWay = true",
		New:  "",
		Test: "TestOneWay",
	},
	{
		Promise: "P9", Name: "anyone who advertises loopback joins nobody",
		File: "membership/join.go", Func: "(*joiner).dropOneWay",
		Old:  "return !isLocal(addr.Addr()) })",
		New:  "return addr.IsValid() })",
		Test: "TestOneWay",
	},
	{
		Promise: "P9", Name: "an address may be advertised at which nobody listens",
		File: "membership/config.go", Func: "(Config).validateAdvertise",
		Old:  "bind.Addr().IsLoopback() && !a.Addr().IsLoopback():",
		New:  "bind.Addr().IsLoopback() && !a.IsValid():",
		Test: "TestConfigValidate",
	},
	{
		Promise: "P9", Name: "a seed may be of a family that cannot be reached",
		File: "membership/config.go", Func: "(Config).Validate",
		Old:  "ip.Unmap().Is4() != bind.Addr().Is4() {",
		New:  "!ip.IsValid() {",
		Test: "TestConfigValidate",
	},
}
