package watchdog

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// world is what a random schedule is judged by: a server that knows leases
// and fails on request, and what each owner may believe by the rules.
type world struct {
	w    *Watchdog
	wall *steps

	mu     sync.Mutex
	mode   map[int]mode // of the server, by group
	tracks []*track
	bad    string // the first rule broken
}

type mode int

const (
	well    mode = iota
	refuses      // an error, nothing done
	loses        // done, but the reply is lost
	slowly       // done at once, answered later, within the call's time
	hangs        // nothing done, until the context ends
	ignores      // done, and answered long after the context ended
	late         // answered "gone" long after the context ended
	panics
	modes
)

func (m mode) String() string {
	return [...]string{"well", "refuses", "loses", "slowly", "hangs", "ignores", "late", "panics"}[m]
}

// track is one lease: what the watchdog has of it, and what it should do.
type track struct {
	key   string
	spec  Spec
	lease *Lease
	since time.Time // when it was given to the watchdog

	most       time.Duration // the largest lease, which renewals ask for
	trust      time.Time
	goneAt     time.Time // when "gone" came in time; zero: not
	stopped    bool
	kept       bool // what Stop said
	abandoned  bool
	notified   []Reason
	notifiedAt time.Time

	server  time.Time // end of the server's lease
	deleted bool      // by somebody else
	lastAsk time.Time
	hurried bool // by RenewNow, and not asked for since
	open    int  // calls under way whose context has not ended
	running int  // calls under way
}

func (x *world) breach(format string, args ...any) {
	if x.bad == "" {
		x.bad = fmt.Sprintf("%v: ", time.Now().Format("04:05.000000000")) + fmt.Sprintf(format, args...)
	}
}

// over says when tr should be lost by now, if it should.
func (tr *track) over(now time.Time) (time.Time, bool) {
	end := tr.trust
	if !tr.goneAt.IsZero() && tr.goneAt.Before(end) {
		end = tr.goneAt
	}
	return end, !now.Before(end)
}

func (x *world) renew(ctx context.Context, group Group, batch []Renewal) ([]Result, error) {
	now := time.Now()
	x.mu.Lock()
	m := x.mode[group.Slot]
	answers := make([]Result, len(batch))
	for i, r := range batch {
		tr := x.find(r.Key)
		x.checkRequest(tr, r, group, now)
		tr.lastAsk = now
		tr.hurried = false
		tr.open++
		tr.running++
		answers[i] = Held
		switch {
		case tr.deleted || !now.Before(tr.server):
			answers[i] = Gone
		case r.Lease > 0 && m != refuses && m != hangs && m != panics:
			answers[i] = Renewed
			if end := now.Add(r.Lease); end.After(tr.server) {
				tr.server = end
			}
		}
	}
	x.mu.Unlock()

	if m == slowly {
		time.Sleep(7*time.Millisecond + odd)
	} else if m == hangs || m == ignores || m == late {
		<-ctx.Done()
	}
	inTime := ctx.Err() == nil
	x.each(batch, func(_ int, tr *track) { tr.open-- })
	if m == ignores || m == late {
		time.Sleep(3*time.Second + odd)
	}
	x.each(batch, func(i int, tr *track) {
		tr.running--
		extends := m == ignores && answers[i] == Renewed // late, when nothing else counts
		if inTime && (m == well || m == slowly) || extends {
			tr.accept(answers[i], batch[i].Lease, now)
		}
	})
	switch m {
	case well, slowly, ignores:
		return answers, nil
	case late:
		return all(Gone, batch), nil
	case panics:
		panic("boom")
	}
	return nil, errDown
}

// odd keeps answers and ends of trust from falling on one instant, at which
// either may come first.
const odd = time.Nanosecond

func (x *world) each(batch []Renewal, f func(i int, tr *track)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i, r := range batch {
		f(i, x.find(r.Key))
	}
}

// accept is the rule for an answer: what may be believed from now on.
func (tr *track) accept(a Result, lease time.Duration, sent time.Time) {
	now := time.Now()
	if _, over := tr.over(now); over || tr.stopped {
		return
	}
	switch a {
	case Gone:
		tr.goneAt = now
	case Renewed:
		tr.extend(sent, lease)
	}
}

func (tr *track) extend(sent time.Time, lease time.Duration) {
	if t := sent.Add(lease - tr.spec.Margin); t.After(tr.trust) {
		tr.trust = t
	}
}

func (x *world) find(key string) *track {
	var i int
	fmt.Sscan(key, &i)
	return x.tracks[i]
}

// checkRequest holds what may be asked for.
func (x *world) checkRequest(tr *track, r Renewal, group Group, now time.Time) {
	want := tr.most
	if !tr.spec.Renew || tr.abandoned ||
		tr.spec.MaxHold > 0 && !now.Before(tr.spec.Sent.Add(tr.spec.MaxHold)) {
		want = 0
	}
	if r.Lease != want {
		x.breach("%s: asked for %v, want %v", tr.key, r.Lease, want)
	}
	if group != tr.spec.Group {
		x.breach("%s: in a call of group %d", tr.key, group.Slot)
	}
	if tr.stopped {
		x.breach("%s: asked for after Stop returned", tr.key)
	}
	if _, over := tr.over(now); over {
		x.breach("%s: asked for after its end", tr.key)
	}
	if tr.open > 0 {
		x.breach("%s: asked for while a call is under way", tr.key)
	}
}

func (x *world) watch(t *rapid.T) {
	tr := &track{key: fmt.Sprint(len(x.tracks))}
	lease := rapid.SampledFrom([]time.Duration{time.Second, 3 * time.Second, 30 * time.Second}).Draw(t, "lease")
	tr.spec = Spec{
		Key: tr.key, ID: "me", Group: Group{Slot: rapid.IntRange(0, 2).Draw(t, "group")},
		Lease: lease, Margin: lease / 20, Interval: lease / 3,
		Renew: rapid.IntRange(0, 3).Draw(t, "renew") > 0,
		Sent:  time.Now(),
		OnLost: LossFunc(func(r Reason) {
			x.mu.Lock()
			defer x.mu.Unlock()
			tr.notified, tr.notifiedAt = append(tr.notified, r), time.Now()
		}),
	}
	if rapid.IntRange(0, 3).Draw(t, "limited") == 0 {
		tr.spec.MaxHold = time.Duration(rapid.IntRange(1, 60).Draw(t, "max hold")) * time.Second
	}
	tr.most = lease
	tr.trust = tr.spec.Sent.Add(lease - tr.spec.Margin)
	tr.server = tr.spec.Sent.Add(lease)
	x.mu.Lock()
	x.tracks = append(x.tracks, tr)
	x.mu.Unlock()
	x.delay(t) // between the command and its answer
	x.mu.Lock()
	tr.since = time.Now()
	tr.lastAsk = tr.since
	x.mu.Unlock()
	tr.lease = x.w.Watch(tr.spec)
}

// delay lets time pass while a command is under way, and sometimes sets the wall
// clock or suspends the machine in it.
func (x *world) delay(t *rapid.T) {
	for range rapid.IntRange(0, 5).Draw(t, "events in flight") - 3 {
		time.Sleep(time.Duration(rapid.IntRange(0, 100).Draw(t, "ms in flight")) * time.Millisecond)
		if rapid.Bool().Draw(t, "suspended in flight") {
			x.suspend(t)
		} else {
			x.setWall(t)
		}
	}
}

// setWall sets the wall clock. The server's time and the monotonic clock go on.
func (x *world) setWall(t *rapid.T) {
	x.letNotice()
	x.wall.step(time.Duration(rapid.IntRange(-4000, 4000).Draw(t, "wall s")) * time.Second)
}

// suspend stops the machine: the monotonic clock stands still while the wall clock
// and the server go on.
func (x *world) suspend(t *rapid.T) {
	x.letNotice()
	d := time.Duration(rapid.IntRange(0, 4000).Draw(t, "suspended s")) * time.Second
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, tr := range x.tracks {
		tr.server = tr.server.Add(-d)
	}
	x.wall.step(d)
}

// letNotice gives the watchdog the second in which it compares the clocks, and a
// lease, without which it does not. Of a suspend and a step back of the wall clock
// within that second it sees only the difference.
func (x *world) letNotice() {
	x.w.Watch(Spec{Lease: odd, Interval: time.Hour, Sent: time.Now()})
	time.Sleep(clockInterval + odd)
	synctest.Wait()
}

func (x *world) stop(tr *track) {
	ctx, cancel := context.WithTimeout(bg, time.Minute)
	defer cancel()
	kept := tr.lease.Stop(ctx)
	x.mu.Lock()
	defer x.mu.Unlock()
	tr.stopped, tr.kept = true, kept
	if tr.running > 0 {
		x.breach("%s: a call is under way after Stop", tr.key)
	}
}

// check holds every rule at an instant at which nothing is left to do.
func (x *world) check(t *rapid.T) {
	synctest.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	now := time.Now()
	idle := !slices.ContainsFunc(x.tracks, func(tr *track) bool { return tr.running > 0 })
	for _, tr := range x.tracks {
		x.checkEnd(tr, now)
		_, over := tr.over(now)
		if tr.stopped || over {
			continue
		}
		if tr.lease.Trusted() && !tr.deleted && !now.Before(tr.server) {
			x.breach("%s: trusted, and the server's lease is over", tr.key)
		}
		if !tr.lease.TrustedUntil().Equal(tr.trust) {
			x.breach("%s: trusted until %v, want %v", tr.key, tr.lease.TrustedUntil(), tr.trust)
		}
		allowed := max(tr.spec.Interval, tr.most/2) + time.Second + grace // a call gets half of the trust at most
		if silent := now.Sub(tr.lastAsk); silent > allowed {
			x.breach("%s: not asked for since %v", tr.key, silent)
		}
		if idle && tr.hurried {
			x.breach("%s: not asked for since RenewNow, though no call is in flight", tr.key)
		}
	}
	if x.bad != "" {
		t.Fatal(x.bad)
	}
}

// checkEnd holds that Ended fires if and only if the lease is over and Stop
// did not come first, once, and exactly then.
func (x *world) checkEnd(tr *track, now time.Time) {
	end, over := tr.over(now)
	if end.Before(tr.since) {
		end = tr.since
	}
	switch {
	case len(tr.notified) > 1:
		x.breach("%s: notified twice", tr.key)
	case tr.stopped && tr.kept != (len(tr.notified) == 0):
		x.breach("%s: Stop said %v, and notified %v", tr.key, tr.kept, tr.notified)
	case !over && len(tr.notified) > 0:
		x.breach("%s: notified %v too early, of %v", tr.key, tr.notified, end)
	case over && !tr.stopped && len(tr.notified) == 0:
		x.breach("%s: not notified of %v", tr.key, end)
	case len(tr.notified) > 0 && !tr.notifiedAt.Equal(end):
		x.breach("%s: notified at %v of %v", tr.key, tr.notifiedAt, end)
	case len(tr.notified) > 0 && (tr.notified[0] == GoneOnServer) != tr.goneAt.Equal(end):
		x.breach("%s: notified %v", tr.key, tr.notified[0])
	}
}

func TestRandomSchedules(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			x := &world{mode: map[int]mode{}, wall: &steps{}}
			x.w = New(Config{Renew: x.renew, BatchSize: 3})
			x.w.wall = x.wall.read
			defer closed(x.w)
			pick := func(t *rapid.T) *track {
				var live []*track
				for _, tr := range x.tracks {
					if !tr.stopped {
						live = append(live, tr)
					}
				}
				if len(live) == 0 {
					t.Skip("nothing is watched")
				}
				return rapid.SampledFrom(live).Draw(t, "lease")
			}
			t.Repeat(map[string]func(*rapid.T){
				"watch":  x.watch,
				"watch2": x.watch,
				"stop":   func(t *rapid.T) { x.stop(pick(t)) },
				"abandon": func(t *rapid.T) {
					tr := pick(t)
					x.mu.Lock()
					tr.abandoned = true
					x.mu.Unlock()
					tr.lease.StopRenewing()
				},
				"resume": func(t *rapid.T) {
					tr := pick(t)
					x.mu.Lock()
					tr.abandoned = false
					x.mu.Unlock()
					tr.lease.ResumeRenewing()
				},
				"confirm": func(t *rapid.T) {
					tr, lease := pick(t), time.Duration(rapid.IntRange(1, 40).Draw(t, "s"))*time.Second
					x.mu.Lock()
					now := time.Now()
					_, over := tr.over(now)
					if alive := !over && !tr.deleted && now.Before(tr.server); !alive {
						x.mu.Unlock()
						return
					}
					tr.most = max(tr.most, lease)
					if end := now.Add(lease); end.After(tr.server) {
						tr.server = end
					}
					tr.extend(now, lease)
					x.mu.Unlock()
					tr.lease.MarkRenewed(now, lease)
				},
				"delete": func(t *rapid.T) {
					tr := pick(t)
					x.mu.Lock()
					tr.deleted = true
					x.mu.Unlock()
				},
				"mode": func(t *rapid.T) {
					group := rapid.IntRange(0, 2).Draw(t, "group")
					m := mode(rapid.IntRange(0, int(modes)-1).Draw(t, "mode"))
					x.mu.Lock()
					x.mode[group] = m
					x.mu.Unlock()
				},
				"renew now": func(t *rapid.T) {
					group := rapid.IntRange(0, 2).Draw(t, "group")
					x.mu.Lock()
					for _, tr := range x.tracks {
						_, over := tr.over(time.Now())
						tr.hurried = tr.hurried || tr.spec.Group.Slot == group && !tr.stopped && !over
					}
					x.mu.Unlock()
					x.w.RenewNow(func(g Group) bool { return g.Slot == group })
				},
				"wall":    x.setWall,
				"suspend": x.suspend,
				"regroup": func(t *rapid.T) {
					by := rapid.IntRange(1, 2).Draw(t, "by")
					x.mu.Lock()
					for _, tr := range x.tracks {
						tr.spec.Group.Slot = (tr.spec.Group.Slot + by) % 3
					}
					x.mu.Unlock()
					x.w.Regroup(func(_ string, group Group) Group { return Group{Slot: (group.Slot + by) % 3} })
				},
				"sleep": func(t *rapid.T) {
					time.Sleep(time.Duration(rapid.IntRange(1, 5000).Draw(t, "ms")) * time.Millisecond)
				},
				"long": func(t *rapid.T) {
					time.Sleep(time.Duration(rapid.IntRange(5, 100).Draw(t, "s")) * time.Second)
				},
				"": x.check,
			})
		})
	})
}
