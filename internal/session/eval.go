package session

import (
	"time"

	"github.com/redlatch/redlatch/lua"
)

// withEval returns a client that sends scripts with their text, if a server lacked a script and its
// answer came too late to send the text then. Over such a slow link, the script would otherwise
// never run. Without such an answer, withEval returns rdb.
func (s *Session) withEval(rdb lua.Redis) lua.Redis {
	if s.needsEval.Load() {
		return lua.WithEval(rdb)
	}
	return rdb
}

// onPromptAnswer records an answer that came before the attempt was left behind. The server has the
// script now.
func (s *Session) onPromptAnswer(took time.Duration) {
	s.latency.onPromptAnswer(took)
	if s.needsEval.Load() {
		s.needsEval.Store(false)
	}
}

// onLateAnswer records the end of an attempt that was left behind, or that its caller stayed with
// for too long. took is how long the attempt took.
func (s *Session) onLateAnswer(err error, took time.Duration) {
	switch _, code := lua.Classify(err); {
	case err == nil:
		s.latency.onLateAnswer(took)
	case code == "NOSCRIPT":
		s.latency.onLateAnswer(took)
		s.needsEval.Store(true)
	}
}
