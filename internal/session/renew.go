package session

import (
	"context"
	"errors"
	"slices"

	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/lua"
	"github.com/redlatch/redlatch/watchdog"
)

// Kind is what the watchdog keeps alive: each has its own command. Leases of one
// kind and slot share calls.
type Kind int

// The kinds of leases.
const (
	Holds         Kind = iota // locks that somebody has
	FairWaiters               // places in the queues of fair mutexes
	Permits                   // units of semaphores
	PermitWaiters             // places in the queues of semaphores
	kinds
)

// Group is the watchdog's group of this kind in a slot.
func (k Kind) Group(slot int) int { return int(k)*slots + slot }

const slots = 1 << 14

// Renewer renews leases of one kind. It sends once.
type Renewer func(ctx context.Context, rdb lua.Redis, batch []watchdog.Request) ([]watchdog.Answer, error)

// Keep has leases of a kind kept alive by send. It is called before there are any.
func (s *Session) Keep(k Kind, send Renewer) { s.kept[k] = send }

// Hurry has all leases of a kind asked for now, in batches.
func (s *Session) Hurry(k Kind) {
	s.Watchdog.Hurry(func(group int) bool { return Kind(group/slots) == k })
}

// renew is the watchdog's way to Redis. It sends once; when to try again is the
// watchdog's to decide, which knows how much trust remains. It returns when go-redis
// does, which is not when ctx ends: the watchdog stops listening by itself, and has to
// know for how long a renewal may yet be sent.
//
// New knows a cluster by the type of the client, and a client may hide its type. Then
// the first batch over several slots is refused. Nothing is lost by that: the watchdog
// soon asks again, by slot.
func (s *Session) renew(ctx context.Context, group int, batch []watchdog.Request) ([]watchdog.Answer, error) {
	send := s.kept[group/slots]
	answers, err := send(ctx, s.Redis, batch)
	_, code := lua.Classify(err)
	if code == "NOSCRIPT" { // and ctx has ended; the watchdog hears answers that come late
		answers, err = send(context.WithoutCancel(ctx), lua.WithText(s.Redis), batch)
	}
	if code == "CROSSSLOT" && isMixed(batch) {
		s.FoundCluster()
		return make([]watchdog.Answer, len(batch)), nil
	}
	return answers, err
}

func isMixed(batch []watchdog.Request) bool {
	return slices.ContainsFunc(batch, func(r watchdog.Request) bool { return key.Slot(r.Key) != key.Slot(batch[0].Key) })
}

func (s *Session) renewHolds(ctx context.Context, rdb lua.Redis, batch []watchdog.Request) ([]watchdog.Answer, error) {
	locks := make([]lua.Renewal, len(batch))
	for i, r := range batch {
		locks[i] = lua.Renewal{LockKey: r.Key, Acquisition: r.ID, Lease: r.Lease}
	}
	said, err := lua.Renew(ctx, rdb, locks)
	if err != nil {
		return nil, err
	}
	return RenewAnswers(said)
}

// RenewAnswers puts what a script said into the watchdog's words. When all were
// refused it is an error, for the log: a server that takes no writes, or a
// permission.
func RenewAnswers(said []lua.RenewAnswer) ([]watchdog.Answer, error) {
	answers := make([]watchdog.Answer, len(said))
	refused := 0
	for i, a := range said {
		answers[i] = renewAnswers[a]
		if a == lua.RenewRefused {
			refused++
		}
	}
	if refused == len(said) {
		return nil, errRenewalRefused
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
