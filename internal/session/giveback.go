package session

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/lua"
)

// GiveBack releases, in the background, what an unanswered command may have
// been granted: at once, and once more when no copy of the command can be
// granted any more (strays, in server time). A grant that nobody waits for so
// lives about as long as its command was valid, not as long as a lease.
//
// release must tolerate that there is nothing to release. A client that closes
// gives it a moment more, and skips the wait for the second release: that is
// sent at once then, and what arrives after it is left to its lease.
func (s *Session) GiveBack(strays lua.Time, release func(ctx context.Context)) {
	s.Background(func(ctx context.Context) {
		const moment = 2 * time.Second
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(s.closing, func() { time.AfterFunc(moment, cancel) })()
		release(ctx)
		if s.waitUntil(ctx, strays) {
			release(ctx)
		}
	})
}

// waitUntil waits until the server's clock has passed t. The guess runs late,
// so when it has passed t, the server has. It reports false if the wait was cut
// before it began to matter: no wait was needed.
func (s *Session) waitUntil(ctx context.Context, t lua.Time) bool {
	const slack = 5 * time.Millisecond
	if t == 0 {
		return false
	}
	d := time.Duration(t-s.Now())*time.Microsecond + slack
	timer := time.NewTimer(min(max(d, 0), maxStray))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-s.closing.Done():
	}
	return true
}

// maxStray bounds the wait when the guess of the server's clock is off because
// that clock was set.
const maxStray = 2 * time.Minute
