package session

import (
	"context"

	"github.com/redlatch/redlatch/lua"
	"github.com/redlatch/redlatch/watchdog"
)

// renew is the watchdog's way to Redis. It sends once; when to try again is the
// watchdog's to decide, which knows how much trust remains.
func (s *Session) renew(ctx context.Context, _ int, batch []watchdog.Request) ([]watchdog.Answer, error) {
	locks := make([]lua.Renewal, len(batch))
	for i, r := range batch {
		locks[i] = lua.Renewal{LockKey: r.Key, Acquisition: r.ID, Lease: r.Lease}
	}
	said, err := within(ctx, nil, func() ([]lua.RenewAnswer, error) { return lua.Renew(ctx, s.Redis, locks) })
	if err != nil {
		return nil, err
	}
	answers := make([]watchdog.Answer, len(said))
	for i, a := range said {
		answers[i] = renewAnswers[a]
	}
	return answers, nil
}

var renewAnswers = map[lua.RenewAnswer]watchdog.Answer{
	lua.RenewDone:    watchdog.Renewed,
	lua.RenewHeld:    watchdog.Held,
	lua.RenewGone:    watchdog.Gone,
	lua.RenewRefused: watchdog.Unknown,
}
