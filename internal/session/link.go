package session

import (
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/lua"
)

// link is what a client knows of the way to one server. The zero value has measured nothing.
type link struct {
	slowAnswer atomic.Int64 // the time of the last answer that came after its attempt had been left behind, or of a faster one since
	needsEval  atomic.Bool  // the server answered too late that it lacks a script
}

// minTimeout returns the minimum time for an attempt: twice the measured time.
func (l *link) minTimeout() time.Duration { return 2 * time.Duration(l.slowAnswer.Load()) }

// withEval returns a client that sends scripts with their text, if the server lacked a script and
// its answer came too late to send the text then. Over such a slow link, the script would otherwise
// never run. Without such an answer, withEval returns rdb.
func (l *link) withEval(rdb lua.Redis) lua.Redis {
	if l.needsEval.Load() {
		return lua.WithEval(rdb)
	}
	return rdb
}

// onPromptAnswer records an answer that came before its attempt was left behind. The server has the
// script now.
func (l *link) onPromptAnswer(took time.Duration) {
	if slow := l.slowAnswer.Load(); slow > int64(took) {
		l.slowAnswer.CompareAndSwap(slow, int64(took))
	}
	if l.needsEval.Load() {
		l.needsEval.Store(false)
	}
}

// onLateAnswer records the end of an attempt that was left behind. took is how long the attempt
// took.
func (l *link) onLateAnswer(err error, took time.Duration) {
	_, code := lua.Classify(err)
	if err == nil || code == "NOSCRIPT" {
		l.slowAnswer.Store(int64(took))
	}
	if code == "NOSCRIPT" {
		l.needsEval.Store(true)
	}
}
