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
}
