package fair_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
)

// The goal of this file: a grant in Redis may end before its client knows of it. Then the client
// never trusts it, and never uses its id again.

// asks has the times at which each id was sent in a request for a lock or a place.
type asks struct {
	mu    sync.Mutex
	times map[string][]time.Time
}

// watch records the requests for a name that go through the proxy.
func watch(p *redistest.Proxy, name string) *asks {
	a := &asks{times: map[string][]time.Time{}}
	p.Inject(redistest.Rule{Match: func(cmd []string) bool {
		if id := requestFor(cmd, name); id != "" {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.times[id] = append(a.times[id], time.Now())
		}
		return false
	}})
	return a
}

// within asserts that no id was sent for longer than window.
func (a *asks) within(t *testing.T, window time.Duration) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	require.Greater(t, len(a.times), 1, "a fresh id is taken")
	for id, sent := range a.times {
		require.Less(t, sent[len(sent)-1].Sub(sent[0]), window, "id %s", id)
	}
}

// Redis runs B's request, and its reply is lost. B gets the lock and is notified, but is cut off
// until that grant has ended and C has the lock. Then B's link works again.
func TestAGrantThatEndedBeforeItsNotificationIsTrustedByNobody(t *testing.T) {
	t.Parallel()
	for name, by := range map[string]locker{"mutex": byMutex, "fair mutex": byFairMutex, "semaphore": bySemaphore} {
		for _, late := range []bool{false, true} {
			t.Run(name+map[bool]string{false: ", notified in time", true: ", notified late"}[late], func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { grantEndsUnnoticed(t, by, name != "mutex", late) })
			})
		}
	}
}

func grantEndsUnnoticed(t *testing.T, by locker, queues, late bool) {
	const lease = 10 * time.Second
	v := redistest.Bubble(t)
	link := v.Another()
	options := []redlatch.Option{redlatch.WithLease(lease), redlatch.WithHeartbeat(stage.Heartbeat)}
	a, c := stage.LocksOn(t, v.Client(), options...), stage.LocksOn(t, v.Client(), options...)
	b := stage.LocksOn(t, link.Client(), options...)

	// B gets messages before it asks, because another of its goroutines waits elsewhere.
	elsewhere, err := by(t.Context(), a, "elsewhere")
	require.NoError(t, err)
	waits, stop := context.WithCancel(t.Context())
	go func() { _, _ = by(waits, b, "elsewhere") }()
	synctest.Wait()
	messages := overhear(t, v)

	var held claim
	if queues {
		held, err = by(t.Context(), a, "door")
		require.NoError(t, err)
	}
	if late {
		link.Kill(redistest.SubscriberTraffic)
		link.BlackHole(redistest.SubscriberTraffic)
	}
	sent := watch(link.Proxy, "door")
	request := func(cmd []string) bool { return requestFor(cmd, "door") != "" }
	lost := link.Inject(redistest.Rule{Match: request, Times: 1, Action: redistest.CutReply()})
	off := link.Inject(redistest.Rule{Match: redistest.Containing("door"), Action: redistest.CutRequest()})
	got := make(chan claim, 1)
	go func() {
		if h, err := by(t.Context(), b, "door"); err == nil {
			got <- h
		}
	}()
	lost.Await(1)
	if queues {
		held.release(t)
	}
	time.Sleep(lease + time.Second) // the grant of B ends

	hc, err := by(t.Context(), c, "door")
	require.NoError(t, err)
	off.Disarm()
	if late {
		link.Heal()
		time.Sleep(stage.Heartbeat / 2) // B gets the answer "queued", and listens
		replay(t, v, messages)
	}
	for range 100 {
		time.Sleep(stage.Heartbeat / 10)
		require.True(t, hc.Trusted())
		require.Empty(t, got, "B has what C has")
	}
	hc.release(t)
	hb := <-got
	require.True(t, hb.Trusted())
	hb.release(t)
	if queues {
		sent.within(t, stage.Heartbeat)
	} else {
		sent.within(t, lease)
	}
	stop()
	elsewhere.release(t)
	time.Sleep(time.Minute)
}

// overhear keeps all messages to clients.
func overhear(t *testing.T, v *redistest.Virtual) <-chan *redis.Message {
	ear := v.Client().PSubscribe(t.Context(), "redlatch:client:*")
	t.Cleanup(func() { _ = ear.Close() })
	_, err := ear.Receive(t.Context())
	require.NoError(t, err)
	messages := make(chan *redis.Message, 100)
	go func() {
		for {
			m, err := ear.ReceiveMessage(t.Context())
			if err != nil {
				return
			}
			messages <- m
		}
	}()
	return messages
}

// replay makes all messages arrive again.
func replay(t *testing.T, v *redistest.Virtual, messages <-chan *redis.Message) {
	for range len(messages) {
		m := <-messages
		require.NoError(t, v.Client().Publish(t.Context(), m.Channel, m.Payload).Err())
	}
}
