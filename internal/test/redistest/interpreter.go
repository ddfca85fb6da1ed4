package redistest

import (
	"bufio"
	"bytes"
	"crypto/sha1" // Redis names scripts by it
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// KeepLua makes the server run all scripts in Lua states that it keeps, and not only those of this
// library. Commands and their answers still come from miniredis. The module redis has only what
// scripts of locks need. The server calls before ahead of each script. loaded has the texts that
// the server knows from the start.
func (v *Virtual) KeepLua(before func(), loaded ...string) {
	v.keepLua(func([]string) bool { return true }, before, loaded...)
}

// keepLua is KeepLua for the scripts of some commands. miniredis runs the others. It makes a state
// with all of its libraries for each run, which is most of what a script costs, and more with the
// race detector. Nothing prevents a script in a kept state from making globals, but other tests run
// the same scripts as miniredis does.
func (v *Virtual) keepLua(keeps func(cmd []string) bool, before func(), loaded ...string) {
	k := &keptLua{m: v.Server, srv: v.Server.Server(), loaded: map[string]*lua.FunctionProto{}}
	k.nested = contextOfScripts(k.srv)
	for _, text := range loaded {
		s := compile(text)
		k.loaded[s.name] = s.proto
	}
	k.srv.SetPreHook(func(peer *server.Peer, cmd string, args ...string) (done bool) {
		switch {
		case cmd == "PUBLISH" && v.denied.Load():
			v.refused.Add(1)
			peer.WriteError("NOPERM User app has no permissions to access one of the channels used as arguments")
			return true
		case cmd == "SCRIPT" && len(args) > 0 && strings.EqualFold(args[0], "FLUSH"):
			k.forget()
			return false // miniredis has scripts too
		case cmd != "EVAL" && cmd != "EVALSHA", len(args) < 2, !keeps(append([]string{cmd}, args...)):
			return false
		}
		before()
		return k.eval(peer, cmd, args)
	})
}

// contextOfScripts is the context that miniredis gives to commands that a script calls. It shows
// them that the mutex of miniredis is held. It is the same for every server. Other packages cannot
// make it, so contextOfScripts catches it.
func contextOfScripts(srv *server.Server) any {
	caught.Lock()
	defer caught.Unlock()
	if caught.context == nil {
		srv.SetPreHook(func(peer *server.Peer, cmd string, _ ...string) bool {
			if cmd == "PING" {
				caught.context = peer.Ctx
			}
			return false
		})
		srv.Dispatch(server.NewPeer(bufio.NewWriter(io.Discard)), []string{"EVAL", "return redis.call('PING')", "0"})
	}
	return caught.context
}

var caught struct {
	sync.Mutex
	context any
}

// keptLua has the scripts of one server.
type keptLua struct {
	m      *miniredis.Miniredis
	srv    *server.Server
	nested any
	loaded map[string]*lua.FunctionProto // by name; guarded by m
}

func (k *keptLua) forget() {
	k.m.Lock()
	defer k.m.Unlock()
	clear(k.loaded)
}

// eval leaves to miniredis what it does not know: scripts that were never sent, and invalid numbers
// of keys.
func (k *keptLua) eval(peer *server.Peer, cmd string, args []string) (done bool) {
	k.m.Lock()
	defer k.m.Unlock()
	s := compiled{name: args[0], proto: k.loaded[args[0]]}
	if cmd == "EVAL" {
		s = compile(args[0])
	}
	keys, err := strconv.Atoi(args[1])
	if s.proto == nil || err != nil || keys < 0 || keys > len(args)-2 {
		return false
	}
	i := takeInterpreter()
	i.srv, i.peer.Ctx = k.srv, k.nested
	if i.run(peer, s.proto, args[2:2+keys], args[2+keys:]) {
		k.loaded[s.name] = s.proto
		keepInterpreter(i) // not one in which something went wrong
	}
	return true
}

type compiled struct {
	name  string
	proto *lua.FunctionProto
}

var compiledScripts sync.Map // compiled by text

func compile(text string) compiled {
	if s, ok := compiledScripts.Load(text); ok {
		return s.(compiled)
	}
	chunk, err := parse.Parse(strings.NewReader(text), "<string>")
	if err != nil {
		panic(err)
	}
	proto, err := lua.Compile(chunk, "")
	if err != nil {
		panic(err)
	}
	sum := sha1.Sum([]byte(text))
	s := compiled{name: hex.EncodeToString(sum[:]), proto: proto}
	compiledScripts.Store(text, s)
	return s
}

// interpreters are kept for the next script of any server. A sync.Pool would throw many away,
// because the race detector makes it do so at random.
var interpreters struct {
	sync.Mutex
	idle []*interpreter
}

func takeInterpreter() *interpreter {
	interpreters.Lock()
	defer interpreters.Unlock()
	if n := len(interpreters.idle); n > 0 {
		i := interpreters.idle[n-1]
		interpreters.idle = interpreters.idle[:n-1]
		return i
	}
	return newInterpreter()
}

func keepInterpreter(i *interpreter) {
	interpreters.Lock()
	defer interpreters.Unlock()
	i.srv = nil // it may be garbage now
	interpreters.idle = append(interpreters.idle, i)
}

// interpreter is one Lua state, with the way from it to the server and back.
type interpreter struct {
	lua     *lua.LState
	srv     *server.Server
	peer    *server.Peer // to which the server answers the commands of a script
	answers *bufio.Writer
	answer  *bufio.Reader
}

func newInterpreter() *interpreter {
	var between bytes.Buffer
	i := &interpreter{lua: lua.NewState(), answers: bufio.NewWriter(&between), answer: bufio.NewReader(&between)}
	i.peer = server.NewPeer(i.answers)
	module := i.lua.SetFuncs(i.lua.NewTable(), map[string]lua.LGFunction{
		"call":        func(*lua.LState) int { return i.call(true) },
		"pcall":       func(*lua.LState) int { return i.call(false) },
		"error_reply": func(l *lua.LState) int { l.Push(i.field("err", l.CheckString(1))); return 1 },
	})
	i.lua.SetGlobal("redis", module)
	return i
}

func (i *interpreter) run(client *server.Peer, script *lua.FunctionProto, keys, args []string) (ok bool) {
	i.lua.SetGlobal("KEYS", i.strings(keys))
	i.lua.SetGlobal("ARGV", i.strings(args))
	i.lua.SetTop(0)
	i.lua.Push(i.lua.NewFunctionFromProto(script))
	if err := i.lua.PCall(0, 1, nil); err != nil {
		client.WriteError("ERR Error compiling script (new function): " + err.Error()) // the message of miniredis
		return false
	}
	i.reply(client, i.lua.Get(1))
	return true
}

// call is redis.call, which raises errors, or redis.pcall, which returns them.
func (i *interpreter) call(raises bool) int {
	args := make([]string, i.lua.GetTop())
	for n := range args {
		args[n] = i.lua.CheckString(n + 1)
	}
	i.srv.Dispatch(i.peer, args)
	_ = i.answers.Flush() // into memory
	answer, err := server.ParseReply(i.answer)
	switch {
	case err == nil:
		i.lua.Push(i.value(answer))
	case raises:
		i.lua.Error(lua.LString(err.Error()), 1)
	default:
		i.lua.Push(i.field("err", err.Error()))
	}
	return 1
}

// value is the Lua value that a script gets for an answer.
func (i *interpreter) value(answer any) lua.LValue {
	switch a := answer.(type) {
	case nil:
		return lua.LFalse
	case int:
		return lua.LNumber(a)
	case string:
		return lua.LString(a)
	case server.Simple:
		return i.field("ok", string(a))
	case []any:
		t := i.lua.CreateTable(len(a), 0)
		for _, e := range a {
			t.Append(i.value(e))
		}
		return t
	}
	panic(fmt.Sprintf("redistest: an answer of type %T", answer))
}

// reply sends the client the result of a script.
func (i *interpreter) reply(client *server.Peer, v lua.LValue) {
	switch v := v.(type) {
	case lua.LNumber:
		client.WriteInt(int(v))
	case lua.LString:
		client.WriteBulk(string(v))
	case *lua.LTable:
		i.replyTable(client, v)
	default:
		if v == lua.LTrue {
			client.WriteInt(1)
		} else {
			client.WriteNull()
		}
	}
}

func (i *interpreter) replyTable(client *server.Peer, t *lua.LTable) {
	if err := t.RawGetString("err"); err != lua.LNil {
		client.WriteError(err.String())
		return
	}
	if ok := t.RawGetString("ok"); ok != lua.LNil {
		client.WriteInline(ok.String())
		return
	}
	items := 0
	for t.RawGetInt(items+1) != lua.LNil {
		items++
	}
	client.WriteLen(items)
	for n := range items {
		i.reply(client, t.RawGetInt(n+1))
	}
}

func (i *interpreter) strings(all []string) *lua.LTable {
	t := i.lua.CreateTable(len(all), 0)
	for _, s := range all {
		t.Append(lua.LString(s))
	}
	return t
}

func (i *interpreter) field(name, value string) *lua.LTable {
	t := i.lua.NewTable()
	t.RawSetString(name, lua.LString(value))
	return t
}
