package faultproxy

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgproto3"
)

// link is one client's connection with its own to the server.
type link struct {
	proxy          *Proxy
	client, server net.Conn
	once           sync.Once
	ended          chan struct{}
	name           atomic.Pointer[string] // application_name
	dropping       atomic.Bool            // the answer is dropped, and ends the link
}

func (l *link) app() string {
	if s := l.name.Load(); s != nil {
		return *s
	}
	return ""
}

func (l *link) close() {
	l.once.Do(func() {
		close(l.ended)
		_ = l.client.Close()
		if l.server != nil {
			_ = l.server.Close()
		}
	})
}

// Codes that stand where a start-up message has its version.
const (
	codeCancel = 80877102
	codeTLS    = 80877103
	codeGSS    = 80877104
)

var errCut = errors.New("cut")

// fromClient passes on what the client says, and asks the rule about it.
func (l *link) fromClient() {
	in := bufio.NewReaderSize(l.client, 64<<10)
	out := &limited{w: l.server}
	if err := l.startup(in, out); err != nil {
		return
	}
	statements, portals := map[string]string{}, map[string]string{} // names to SQL
	pending := bufio.NewWriterSize(out, 64<<10)                     // a batch travels in one piece
	for {
		kind, message, err := read(in)
		if err != nil {
			return
		}
		body := message[5:]
		sql, executes := "", false
		switch kind {
		case 'Q':
			sql, _ = text(body)
			executes = true
		case 'P':
			name, rest := text(body)
			statements[name], _ = text(rest)
		case 'B':
			portal, rest := text(body)
			name, _ := text(rest)
			portals[portal] = statements[name]
		case 'E':
			portal, _ := text(body)
			sql, executes = portals[portal], true
		}
		if executes && !l.dropping.Load() {
			switch l.proxy.judge(Event{App: l.app(), SQL: sql}) {
			case CutBefore:
				_ = pending.Flush() // what stood before it in the batch did arrive
				return
			case CutAfter:
				l.dropping.Store(true)
			}
		}
		if _, err := pending.Write(message); err != nil {
			return
		}
		if in.Buffered() == 0 {
			l.proxy.wait(l, ToServer)
			if pending.Flush() != nil {
				return
			}
		}
	}
}

// startup passes the first message on, which has no kind.
func (l *link) startup(in *bufio.Reader, out *limited) error {
	for {
		var head [8]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return err
		}
		n := binary.BigEndian.Uint32(head[:])
		if n < 8 || n > 1<<20 {
			return errCut
		}
		message := append(head[:], make([]byte, n-8)...)
		if _, err := io.ReadFull(in, message[8:]); err != nil {
			return err
		}
		switch binary.BigEndian.Uint32(head[4:]) {
		case codeTLS, codeGSS:
			if _, err := l.client.Write([]byte{'N'}); err != nil {
				return err
			}
			continue
		case codeCancel:
			_, err := out.Write(message)
			return err
		}
		var hello pgproto3.StartupMessage
		if err := hello.Decode(message[4:]); err != nil {
			return err
		}
		app := hello.Parameters["application_name"]
		l.name.Store(&app)
		if l.proxy.judge(Event{App: app}) != Pass {
			return errCut
		}
		l.proxy.mu.Lock()
		limit := l.proxy.limit
		l.proxy.mu.Unlock()
		if limit != nil {
			out.left = limit(app)
		}
		l.proxy.wait(l, ToServer)
		_, err := out.Write(message)
		return err
	}
}

// fromServer passes the answers on, or drops them.
func (l *link) fromServer() {
	in := bufio.NewReaderSize(l.server, 64<<10)
	out := bufio.NewWriterSize(l.client, 64<<10)
	for {
		kind, message, err := read(in)
		if err != nil {
			return
		}
		if l.dropping.Load() {
			const ready = 'Z' // the answer to the end of a batch: all of it is done
			if kind == ready {
				return
			}
			continue
		}
		if _, err := out.Write(message); err != nil {
			return
		}
		if in.Buffered() == 0 {
			l.proxy.wait(l, ToClient)
			if out.Flush() != nil {
				return
			}
		}
	}
}

// read returns one whole message: its kind, its length, its body.
func read(in *bufio.Reader) (kind byte, message []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n < 4 || n > 1<<30 {
		return 0, nil, errCut
	}
	message = append(head[:], make([]byte, n-4)...)
	_, err = io.ReadFull(in, message[5:])
	return head[0], message, err
}

// text cuts off a string that ends in NUL.
func text(b []byte) (string, []byte) {
	s, rest, _ := bytes.Cut(b, []byte{0})
	return string(s), rest
}

// limited writes until so many bytes have passed.
type limited struct {
	w    io.Writer
	left int64 // 0 or less: no limit
}

func (l *limited) Write(b []byte) (int, error) {
	if l.left <= 0 {
		return l.w.Write(b)
	}
	if int64(len(b)) < l.left {
		l.left -= int64(len(b))
		return l.w.Write(b)
	}
	n, err := l.w.Write(b[:l.left])
	if err == nil {
		err = errCut
	}
	return n, err
}
