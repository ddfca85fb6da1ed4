package session

import (
	"time"

	"github.com/redlatch/redlatch/lua"
)

// withText has scripts sent with their text where a server has said that it lacks one, and
// so late that the text could not follow. Over a link so slow a script would never run else.
func (s *Session) withText(rdb lua.Redis) lua.Redis {
	if s.needsText.Load() {
		return lua.WithText(rdb)
	}
	return rdb
}

// promptAnswer takes in an answer to an attempt that was not left: the server has the script.
func (s *Session) promptAnswer(took time.Duration) {
	s.link.prompt(took)
	if s.needsText.Load() {
		s.needsText.Store(false)
	}
}

// lateAnswer takes in how an attempt ended that was left behind, after that time.
func (s *Session) lateAnswer(err error, took time.Duration) {
	switch _, code := lua.Classify(err); {
	case err == nil:
		s.link.late(took)
	case code == "NOSCRIPT":
		s.link.late(took)
		s.needsText.Store(true)
	}
}
