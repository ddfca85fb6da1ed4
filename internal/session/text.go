package session

import (
	"time"

	"github.com/redlatch/redlatch/lua"
)

// withText sends scripts with their text if a server has answered that it lacks a script, but so
// late that the text could not follow. Over a link that slow, a script would otherwise never run.
func (s *Session) withText(rdb lua.Redis) lua.Redis {
	if s.needsText.Load() {
		return lua.WithText(rdb)
	}
	return rdb
}

// promptAnswer handles an answer to an attempt that was not left behind: the server has the script.
func (s *Session) promptAnswer(took time.Duration) {
	s.link.prompt(took)
	if s.needsText.Load() {
		s.needsText.Store(false)
	}
}

// lateAnswer handles the end of an attempt that was left behind. took is how long the attempt took.
func (s *Session) lateAnswer(err error, took time.Duration) {
	switch _, code := lua.Classify(err); {
	case err == nil:
		s.link.late(took)
	case code == "NOSCRIPT":
		s.link.late(took)
		s.needsText.Store(true)
	}
}
