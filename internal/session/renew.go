package session

import (
	"context"
	"errors"
	"slices"

	"github.com/redlatch/redlatch/internal/key"
	"github.com/redlatch/redlatch/lua"
	"github.com/redlatch/redlatch/watchdog"
)

// LeaseKind is a kind of lease that the watchdog renews. Each kind has its own command. Leases of
// one kind and slot share commands.
type LeaseKind int

// The kinds of leases.
const (
	Holds         LeaseKind = iota // locks that a holder has
	FairWaiters                    // places in the queues of fair mutexes
	Permits                        // permits of semaphores
	PermitWaiters                  // places in the queues of semaphores
	leaseKindCount
)

// Group returns the watchdog's group for a lease of a kind: in a cluster by the hash slot of what
// is leased, and one group for all elsewhere.
func (s *Session) Group(k LeaseKind, name string) watchdog.Group {
	if s.Cluster() {
		return watchdog.Group{Kind: int(k), Slot: key.Slot(name)}
	}
	return watchdog.Group{Kind: int(k)}
}

// RenewSlotNow is RenewNow for the leases of one slot of a cluster.
func (s *Session) RenewSlotNow(k LeaseKind, slot int) {
	s.Watchdog.RenewNow(func(group watchdog.Group) bool { return group == watchdog.Group{Kind: int(k), Slot: slot} })
}

// Renewer renews leases of one kind with one attempt. It returns a result for each lease, in the
// order of the batch.
type Renewer func(ctx context.Context, rdb lua.Redis, batch []watchdog.Renewal) ([]watchdog.Result, error)

// SetRenewer sets how the watchdog renews the leases of a kind. It must be called before there are
// any such leases.
func (s *Session) SetRenewer(k LeaseKind, send Renewer) { s.renewers[k] = send }

// RenewNow makes the watchdog renew all leases of a kind now, in batches. It does not block.
func (s *Session) RenewNow(k LeaseKind) {
	s.Watchdog.RenewNow(func(group watchdog.Group) bool { return LeaseKind(group.Kind) == k })
}

// renew sends one batch for the watchdog. It makes one attempt, because the watchdog decides when
// to retry: it knows how much trust is left. renew blocks until go-redis returns, even if ctx ends.
// The watchdog does not wait that long for the result, but it must know that the command is still
// in flight.
//
// redlatch.New recognizes a cluster by the type of the go-redis client, but a wrapper may hide the
// type. A server of a cluster then refuses the first batch with keys of several slots. renew
// records that the server is a cluster. No lease is lost, because the watchdog soon sends the
// leases again, by slot.
//
// While a slot migrates, no node may have all keys of a batch. Then renew sends those of each name
// alone.
func (s *Session) renew(ctx context.Context, group watchdog.Group, batch []watchdog.Renewal) ([]watchdog.Result, error) {
	s.topology.keepFresh()
	send := s.renewers[group.Kind]
	answers, err := send(ctx, s.Redis, batch)
	s.topology.onFailure(ctx, err)
	if err == nil {
		s.checkEviction()
	}
	_, code := lua.Classify(err)
	if code == "NOSCRIPT" { // and ctx has ended; the watchdog takes answers that come late
		answers, err = send(context.WithoutCancel(ctx), lua.WithEval(s.Redis), batch)
	}
	if code == "CROSSSLOT" && isMixed(batch) {
		s.FoundCluster()
		return make([]watchdog.Result, len(batch)), nil
	}
	if code == "TRYAGAIN" {
		if names := namesOf(batch); len(names) > 1 {
			return renewEach(ctx, s.Redis, send, batch, names)
		}
	}
	return answers, err
}

// namesOf returns where each key stands in a batch.
func namesOf(batch []watchdog.Renewal) map[string][]int {
	names := map[string][]int{}
	for i, r := range batch {
		names[r.Key] = append(names[r.Key], i)
	}
	return names
}

// renewEach renews the leases of each name by a command of its own, until ctx ends. Other leases
// stay unknown, and the last error says why.
func renewEach(ctx context.Context, rdb lua.Redis, send Renewer, batch []watchdog.Renewal, names map[string][]int) ([]watchdog.Result, error) {
	answers := make([]watchdog.Result, len(batch))
	var failed error
	for _, places := range names {
		some := make([]watchdog.Renewal, len(places))
		for i, place := range places {
			some[i] = batch[place]
		}
		results, err := send(ctx, rdb, some)
		if err != nil {
			failed = err
		}
		for i, r := range results[:min(len(results), len(places))] {
			answers[places[i]] = r
		}
		if ctx.Err() != nil {
			break
		}
	}
	return answers, failed
}

func isMixed(batch []watchdog.Renewal) bool {
	return slices.ContainsFunc(batch, func(r watchdog.Renewal) bool { return key.Slot(r.Key) != key.Slot(batch[0].Key) })
}

func (s *Session) renewHolds(ctx context.Context, rdb lua.Redis, batch []watchdog.Renewal) ([]watchdog.Result, error) {
	locks := make([]lua.Renewal, len(batch))
	for i, r := range batch {
		locks[i] = lua.Renewal{LockKey: r.Key, Acquisition: r.ID, Lease: r.Lease}
	}
	result, err := lua.Renew(ctx, rdb, locks)
	if err != nil {
		return nil, err
	}
	answers, err := RenewAnswers(result)
	s.keepFences(batch, answers)
	return answers, err
}

// RenewAnswers converts the answers of a script for the watchdog. If the script refused all
// renewals, it returns an error, which the watchdog logs. The reason is that the server takes no
// writes, or that a permission is missing.
func RenewAnswers(result []lua.RenewAnswer) ([]watchdog.Result, error) {
	answers := make([]watchdog.Result, len(result))
	refused := 0
	for i, a := range result {
		answers[i] = renewAnswers[a]
		if a == lua.RenewRefused {
			refused++
		}
	}
	if refused == len(result) {
		return nil, errRenewalRefused
	}
	return answers, nil
}

var errRenewalRefused = errors.New("redis refuses to extend leases")

var renewAnswers = map[lua.RenewAnswer]watchdog.Result{
	lua.RenewDone:    watchdog.Renewed,
	lua.RenewHeld:    watchdog.Held,
	lua.RenewGone:    watchdog.Gone,
	lua.RenewRefused: watchdog.Unknown,
}
