package session

import (
	"context"
	"errors"

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
	refused := 0
	for i, a := range said {
		answers[i] = renewAnswers[a]
		if a == lua.RenewRefused {
			refused++
		}
	}
	if refused == len(said) {
		return nil, errRenewalRefused // for the log: a server that takes no writes, or a permission
	}
	return answers, nil
}

var errRenewalRefused = errors.New("redis refuses to extend leases")

var renewAnswers = map[lua.RenewAnswer]watchdog.Answer{
	lua.RenewDone:    watchdog.Renewed,
	lua.RenewHeld:    watchdog.Held,
	lua.RenewGone:    watchdog.Gone,
	lua.RenewRefused: watchdog.Unknown,
}
