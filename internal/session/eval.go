package session

import (
	"time"

	"github.com/redlatch/redlatch/lua"
)

// withEval sends scripts with their text if a server has answered that it lacks a script, but so
// late that the text could not follow. Over a link that slow, a script would otherwise never run.
func (s *Session) withEval(rdb lua.Redis) lua.Redis {
	if s.needsEval.Load() {
		return lua.WithEval(rdb)
	}
	return rdb
}

// onPromptAnswer handles an answer to an attempt that was not left behind: the server has the
// script.
func (s *Session) onPromptAnswer(took time.Duration) {
	s.latency.onPromptAnswer(took)
	if s.needsEval.Load() {
		s.needsEval.Store(false)
	}
}

// onLateAnswer handles the end of an attempt that was left behind. took is how long the attempt
// took.
func (s *Session) onLateAnswer(err error, took time.Duration) {
	switch _, code := lua.Classify(err); {
	case err == nil:
		s.latency.onLateAnswer(took)
	case code == "NOSCRIPT":
		s.latency.onLateAnswer(took)
		s.needsEval.Store(true)
	}
}
