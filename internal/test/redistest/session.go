package redistest

import (
	"bufio"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// session is the connection of one client through the proxy. Three goroutines run it: one for
// requests, one for replies, and the outbox, which writes to the client. From the first command
// that a fault delays, a fourth goroutine handles the commands, and the one for requests only reads
// them.
type session struct {
	proxy  *Proxy
	client net.Conn
	server net.Conn
	at     *place // in a cluster; otherwise nil
	out    *outbox
	done   chan struct{}
	ending sync.Once

	role atomic.Int32
	// mute: the client must not notice that its connection has ended.
	mute atomic.Bool
	// black: bytes were lost, in either direction. The client would read later bytes as the answer
	// to something else, so it gets none.
	black atomic.Bool

	// Set by the goroutine of the requests.
	later *inOrder // handles the commands; nil until a fault delays one

	// Used by the goroutine that handles commands only.
	swallowing bool
	held       *late
	login      []command

	mu      sync.Mutex
	pending []*exchange // sent to the server and not answered, in order
}

// The first real command of a connection shows its role.
const (
	roleUndecided int32 = iota
	roleCommands
	roleSubscriber
)

// exchange is a command that the server has to answer.
type exchange struct {
	cmd   command
	login []command // for a copy, if a fault keeps one
	fault *Fault    // nil for most
	// confirmations is the number still to come. The server answers a subscription once per
	// channel, with messages instead of a reply. 0 for all other commands.
	confirmations int
}

func (x *exchange) kind() actionKind {
	if x == nil || x.fault == nil {
		return actPass
	}
	return x.fault.rule.Action.kind
}

func newSession(p *Proxy, client, server net.Conn, at *place) *session {
	s := &session{proxy: p, client: client, server: server, at: at, done: make(chan struct{})}
	s.out = newOutbox(client, s.done)
	return s
}

// end closes both sides. Any goroutine may call it, any number of times.
func (s *session) end() {
	s.ending.Do(func() {
		close(s.done)
		_ = s.client.Close()
		_ = s.server.Close()
		s.proxy.forget(s)
	})
}

// reset is end with a TCP reset, if the connection is TCP.
func (s *session) reset() {
	if tcp, ok := s.client.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	s.end()
}

// requests passes commands to the server until either side ends.
func (s *session) requests() {
	r := bufio.NewReaderSize(s.client, 1024)
	for {
		cmd, err := readCommand(r)
		switch {
		case err != nil && s.later == nil:
			s.end()
			return
		case err != nil:
			s.later.put(s.end)
			return
		case s.later == nil:
			s.handle(cmd, time.Now())
		default:
			read := time.Now()
			s.later.put(func() { s.handle(cmd, read) })
		}
	}
}

// handle passes a command to the server that was read at that time. It may block until the command
// is due.
func (s *session) handle(cmd command, read time.Time) {
	s.learn(cmd)
	if s.isSilenced() || s.swallowing {
		return
	}
	if s.held != nil {
		s.held.add(cmd)
		return
	}
	if until := s.stalledUntil(); !until.IsZero() {
		s.forwardAt(until, cmd)
		return
	}
	s.treat(cmd, read, s.proxy.faultFor(cmd))
}

// learn records the login of a connection, and its role.
func (s *session) learn(cmd command) {
	switch cmd.name() {
	case "HELLO", "AUTH", "SELECT":
		s.login = append(s.login, cmd)
	case "CLIENT", "READONLY", "READWRITE":
		// part of a handshake as well, but a late command does not need it
	case "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE":
		s.role.Store(roleSubscriber)
	default:
		s.role.CompareAndSwap(roleUndecided, roleCommands)
	}
}

// isSilenced reports whether to discard traffic, and remembers it.
func (s *session) isSilenced() bool {
	if !s.black.Load() && !s.proxy.isHoleFor(s.role.Load()) {
		return false
	}
	s.silence()
	s.proxy.discarded.Add(1)
	return true
}

func (s *session) silence() {
	s.mute.Store(true)
	s.black.Store(true)
}

// treat applies the fault to the command.
func (s *session) treat(cmd command, read time.Time, f *Fault) {
	if f == nil {
		s.forward(&exchange{cmd: cmd})
		return
	}
	switch action := f.rule.Action; action.kind {
	case actCutRequest:
		f.bite()
		s.end()
	case actReset:
		f.bite()
		s.reset()
	case actSwallow:
		s.mute.Store(true)
		s.swallowing = true
		f.bite()
	case actBlackHole:
		s.silence()
		f.bite()
	case actHoldBack:
		s.mute.Store(true)
		s.held = &late{dial: s.proxy.dialServer, login: slices.Clone(s.login), commands: []command{cmd}}
		f.keep(s.held)
		f.bite()
	case actDelayRequest:
		f.bite()
		s.forwardAt(read.Add(action.delay), cmd)
	case actAnswer:
		// A PING takes the place of the command, so that the answer keeps its place among the
		// replies to the commands around it.
		s.forward(&exchange{cmd: ping, fault: f})
	default:
		s.forward(&exchange{cmd: cmd, fault: f, login: slices.Clone(s.login)})
	}
}

// stalledUntil is when the node of a cluster answers again. It is zero if the node answers.
// Handshakes do not wait, because go-redis reads those of its PubSub under a mutex.
func (s *session) stalledUntil() time.Time {
	if s.at == nil || s.role.Load() == roleUndecided {
		return time.Time{}
	}
	return s.at.stalledUntil()
}

// forwardAt sends the command at due. The goroutine of the requests does not wait for that: it
// reads further commands meanwhile, so that each of them has its delay from the time when it was
// sent, as on a long wire. From the first delayed command on, another goroutine handles them.
func (s *session) forwardAt(due time.Time, cmd command) {
	forward := func() {
		if pause(time.Until(due), s.done) {
			s.forward(&exchange{cmd: cmd})
		}
	}
	if s.later != nil {
		forward()
		return
	}
	s.later = newInOrder(s.done)
	s.later.put(forward)
	s.proxy.running.Go(s.later.run)
}

var ping = command{args: []string{"PING"}, raw: []byte("*1\r\n$4\r\nPING\r\n")}

// forward sends the command. It first notes that an answer will come, because the answer may come
// immediately.
func (s *session) forward(x *exchange) {
	if slices.Contains([]string{"SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE",
		"UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE"}, x.cmd.name()) {
		x.confirmations = max(1, len(x.cmd.args)-1)
	}
	if s.at != nil && x.kind() != actAnswer {
		if answer := s.at.answer(x.cmd); answer != "" {
			if x.fault != nil {
				x.fault.giveBack() // the command did not run
			}
			x = &exchange{cmd: ping, fault: newFault(s.proxy.t, Rule{Action: Action{kind: actAnswer, reply: answer}})}
		}
	}
	s.mu.Lock()
	s.pending = append(s.pending, x)
	s.mu.Unlock()
	if x.kind() != actAnswer { // the command of the client does not go to the server
		s.proxy.count(x.cmd)
	}
	_, _ = s.server.Write(x.cmd.raw) // if it fails, the goroutine of the replies gets the end as well
}

// replies passes replies and messages to the client until either side ends.
func (s *session) replies() {
	r := bufio.NewReaderSize(s.server, 1024)
	for {
		f, err := readFrame(r)
		if err != nil {
			s.serverEnded()
			return
		}
		if s.isSilenced() {
			if s.isMessage(f) && f.firstWord() == "message" {
				s.proxy.unreceived.Add(1)
			}
			continue
		}
		s.pass(f, s.answered(f))
	}
}

// serverEnded ends the client's connection, after everything that the client has yet to get.
func (s *session) serverEnded() {
	if !s.mute.Load() {
		s.out.put(parcel{end: s.end})
	}
}

// answered returns the exchange that the frame is the first answer to. It returns nil for messages
// and further confirmations.
func (s *session) answered(f frame) *exchange {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) == 0 {
		return nil
	}
	x := s.pending[0]
	if s.isMessage(f) {
		if x.confirmations == 0 || f.firstWord() != strings.ToLower(x.cmd.name()) {
			return nil
		}
		x.confirmations--
	}
	if x.confirmations == 0 || !s.isMessage(f) { // an error confirms nothing
		s.pending = s.pending[1:]
	}
	first := *x
	x.fault = nil // it bites a command once, not once per confirmation
	return &first
}

// isMessage distinguishes messages of the server from its answers. RESP2 has no type for messages,
// only first words.
func (s *session) isMessage(f frame) bool {
	if f.kind == '>' {
		return true
	}
	return f.kind == '*' && s.role.Load() == roleSubscriber && slices.Contains([]string{
		"message", "pmessage", "smessage", "subscribe", "psubscribe", "ssubscribe",
		"unsubscribe", "punsubscribe", "sunsubscribe",
	}, f.firstWord())
}

// pass sends the frame to the client, or applies the fault of the exchange to it.
func (s *session) pass(f frame, x *exchange) {
	p := parcel{bytes: f.raw}
	if x == nil && f.firstWord() == "message" {
		p.due = s.proxy.messageDue()
	}
	if p.due.IsZero() {
		p.due = s.stalledUntil()
	}
	kind := x.kind()
	if kind != actPass && kind != actAnswer && f.isNoScript() {
		x.fault.giveBack()
		s.out.put(p)
		return
	}
	switch kind {
	case actLoseReply:
		s.silence()
		x.fault.bite()
		return
	case actCutReply:
		p = parcel{end: s.end}
	case actResetReply:
		p = parcel{end: s.reset}
	case actDelayReply:
		p.due = time.Now().Add(x.fault.rule.Action.delay)
	case actAnswer, actFailAfter:
		p.bytes = []byte(x.fault.rule.Action.reply)
	case actDuplicate:
		x.fault.keep(&late{dial: s.proxy.dialServer, login: x.login, commands: []command{x.cmd}})
	}
	if x != nil && x.fault != nil {
		x.fault.bite()
	}
	s.out.put(p)
}
