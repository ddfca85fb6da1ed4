package sender

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// waiting is a sender in a bubble, whose server answers a WAIT when a second has passed.
func waiting(t *testing.T) (s *Sender, link *redistest.Virtual, srv *server) {
	t.Cleanup(func() { time.Sleep(15 * time.Second) }) // for go-redis
	link = redistest.Bubble(t)
	link.Inject(redistest.Rule{Match: redistest.Command("WAIT"), Action: redistest.DelayReply(time.Second)})
	rdb := link.Client()
	srv = &server{takes: func() time.Duration { return time.Millisecond }}
	s = start(t, srv, true)
	s.cfg.Master = func(context.Context, string) (node.Node, error) { return node.Of(rdb), nil }
	return s, link, srv
}

// sendWithWait sends a PING and a WAIT.
func (s *Sender) sendWithWait(ctx context.Context, limit time.Duration) error {
	a := s.Attempt(limit, nil, true)
	a.Wait = &Wait{Key: "x", Replicas: 1, Timeout: time.Second}
	defer a.End()
	return a.Process(ctx, newCommand("ping"))
}

// Other commands would wait for the replicas too.
func TestACommandWithAWaitGoesAlone(t *testing.T) {
	s := start(t, &server{}, true)
	for i := range 6 {
		c := &command{cmd: newCommand(fmt.Sprint(i))}
		if i == 2 || i == 3 {
			c.wait = &Wait{}
		}
		s.queue = append(s.queue, c)
	}
	var sizes []int
	for len(s.queue) > 0 {
		sizes = append(sizes, len(s.next(nil, largestBatch)))
	}
	require.Equal(t, []int{2, 1, 1, 2}, sizes)
}

// However many commands wait for replicas, others do not wait, and the link is not slow by that.
func TestNobodyWaitsForTheReplicasOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, link, srv := waiting(t)
		require.NoError(t, s.send(t.Context(), "first", time.Second))
		acknowledged := make(chan error, 3*sendingAtOnce)
		for range cap(acknowledged) {
			go func() { acknowledged <- s.sendWithWait(t.Context(), time.Minute) }()
			synctest.Wait()
		}
		require.Equal(t, cap(acknowledged), link.Forwarded("WAIT"), "they do not wait for each other")
		began := time.Now()
		require.NoError(t, s.send(t.Context(), "x", time.Second))
		require.Equal(t, time.Millisecond, time.Since(began))
		for range cap(acknowledged) {
			require.NoError(t, <-acknowledged)
		}
		require.Len(t, srv.arrived(), 2)
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		require.True(t, s.direct.fast)
		require.Zero(t, s.prompt)
	})
}

// The server waits as long as the caller does, and no longer. A time of 0 would be without an end.
func TestAServerWaitsNoLongerThanItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, link, _ := waiting(t)
		link.Record()
		for limit, within := range map[time.Duration]string{
			time.Minute: "1000", 1001 * time.Millisecond: "1000", 999 * time.Millisecond: "999", 1500 * time.Microsecond: "1", time.Microsecond: "1",
		} {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			link.ResetCounts()
			err := s.sendWithWait(ctx, time.Hour)
			cancel()
			require.Equal(t, limit <= time.Second, err != nil, limit)
			sent := link.Recorded()
			require.Equal(t, []string{"wait", "1", within}, sent[len(sent)-1], limit)
		}
	})
}
