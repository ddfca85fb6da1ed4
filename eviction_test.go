package redlatch_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/internal/test/wrapped"
)

// The goal of this file: a client that holds locks on a server that may evict them says so once,
// and harms nobody by that.

// infos is a hook that counts INFO, and tells when it was answered.
type infos struct {
	sent     atomic.Int64
	answered chan struct{} // capacity 100
	panics   bool
}

func newInfos() *infos { return &infos{answered: make(chan struct{}, 100)} }

func (h *infos) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h *infos) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *infos) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "info" {
			return next(ctx, cmd)
		}
		h.sent.Add(1)
		if h.panics {
			panic("a hook")
		}
		defer func() { h.answered <- struct{}{} }()
		return next(ctx, cmd)
	}
}

// renewedSoon are options with which a lock is renewed several times while a test runs.
var renewedSoon = []redlatch.Option{redlatch.WithLease(5 * time.Second), redlatch.WithRenewInterval(20 * time.Millisecond)}

// warnings returns what a client logs while it holds a lock, and a permit, for several renewals.
func warnings(t *testing.T, rdb redis.UniversalClient, asked *infos) []string {
	t.Helper()
	log := &stage.Logbook{}
	locks, err := redlatch.New(rdb, append([]redlatch.Option{redlatch.WithLogger(slog.New(log)), redlatch.WithPrefix("svc:")}, renewedSoon...)...)
	require.NoError(t, err)
	h := stage.MustLock(t, t.Context(), locks.Mutex("door"))
	p := stage.MustAcquire(t, locks.Semaphore("door", 1), 1)
	stage.Within(t, asked.answered, "INFO is answered")
	for range 5 {
		stage.AwaitRenewal(t, h)
	}
	require.NoError(t, p.Release(t.Context()))
	require.NoError(t, h.Unlock(t.Context()))
	require.NoError(t, locks.Close(t.Context())) // waits for the log
	return slices.DeleteFunc(log.Lines(), func(line string) bool {
		return strings.Contains(line, "watchdog: ") // a busy machine may not renew in time
	})
}

func TestAClientWarnsOnceOfAServerThatMayEvictLocks(t *testing.T) {
	t.Parallel()
	for args, warns := range map[string]bool{
		"--maxmemory-policy allkeys-lru --maxmemory 100mb":  true,
		"--maxmemory-policy volatile-ttl --maxmemory 100mb": true,
		"--maxmemory-policy noeviction --maxmemory 100mb":   false,
		"--maxmemory-policy allkeys-lru --maxmemory 0":      false,
		"--maxmemory-policy noeviction":                     false,
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, strings.Fields(args)...)
			for name, rdb := range map[string]redis.UniversalClient{"": s.Client(t), "wrapped": wrapped.Embedding{UniversalClient: s.Client(t)}} {
				asked := newInfos()
				rdb.AddHook(asked)
				lines := warnings(t, rdb, asked)
				require.EqualValues(t, 1, asked.sent.Load(), name)
				if !warns {
					require.Empty(t, lines, name)
					continue
				}
				require.Len(t, lines, 1, name)
				for _, part := range []string{"WARN", "evict", "server=" + s.Addr(), "maxmemory_policy=" + strings.Fields(args)[1], "noeviction"} {
					require.Contains(t, lines[0], part, name)
				}
			}
		})
	}
}

// Any master of a cluster may get a lock. Each of them is asked, not only that of the first lock.
func TestEachMasterOfAClusterIsAskedWhetherItMayEvictLocks(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0, "--maxmemory", "100mb")
	for _, evicts := range append(c.Nodes, nil) {
		if evicts != nil {
			require.NoError(t, evicts.Control().ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lfu").Err())
		}
		asked := newInfos()
		rdb := c.Client(t)
		rdb.OnNewNode(func(node *redis.Client) { node.AddHook(asked) })
		lines := warnings(t, rdb, asked)
		require.EqualValues(t, len(c.Nodes), asked.sent.Load(), "each master once")
		if evicts == nil {
			require.Empty(t, lines)
			continue
		}
		require.Len(t, lines, 1)
		require.Contains(t, lines[0], "server="+evicts.Addr())
		require.NoError(t, evicts.Control().ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	}
}

// A user with the documented permissions may not ask. Nobody is bothered with that.
func TestAUserWithoutTheRightToAskIsNotWarned(t *testing.T) {
	t.Parallel()
	stage.OnServer(t, func(s *stage.Stage) {
		rule := append(documentedACL(t), furtherACL(t, "And semaphores, besides the first rule:")...)
		s.SetUser(rule)
		asked := newInfos()
		rdb := s.Server.Client(t, func(o *redis.Options) { o.Username, o.Password = rule[0], "SECRET" })
		rdb.AddHook(asked)
		require.Empty(t, warnings(t, rdb, asked))
		require.EqualValues(t, 1, asked.sent.Load(), "it does not ask again")
	}, "--maxmemory-policy", "allkeys-lru", "--maxmemory", "100mb")
}

// A client that holds nothing for long sends nothing that it did not send before.
func TestAShortHoldAsksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		for range 100 {
			h := s.Lock(context.Background())
			time.Sleep(5 * time.Second) // the first renewal would come after about ten
			s.Unlock(h)
		}
		require.Zero(t, s.Proxy.Forwarded("INFO"))
	})
}

// A server in trouble is not asked. As soon as it answers a renewal, it is.
func TestAServerInTroubleIsNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		loading := s.Proxy.Inject(redistest.Rule{Match: stage.Runs("mutex/renew"), Action: redistest.Refuse("LOADING Redis is loading the dataset in memory")})
		h := s.Lock(context.Background())
		time.Sleep(12 * time.Second)
		require.NotZero(t, loading.Bites())
		require.Zero(t, s.Proxy.Forwarded("INFO"))
		loading.Disarm()
		time.Sleep(time.Minute)
		require.Equal(t, 1, s.Proxy.Forwarded("INFO"))
		s.Unlock(h)
	})
}

// Whatever becomes of the question, locks are renewed, and Close returns soon. go-redis returns at
// its timeout, and leaves no goroutine then.
func TestAQuestionThatHangsHarmsNobody(t *testing.T) {
	for name, action := range map[string]redistest.Action{
		"hangs": redistest.Swallow(), "is cut": redistest.CutReply(), "is answered with an error": redistest.Refuse("ERR unknown section"),
		"is answered with a number": redistest.FailAfter(":7"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage.InBubble(t)
				asked := s.Proxy.Inject(redistest.Rule{Match: redistest.Command("INFO"), Action: action})
				h := s.Lock(context.Background())
				time.Sleep(10*time.Second + time.Second/2)
				require.Equal(t, 1, asked.Bites())
				started := time.Now()
				s.Unlock(h)
				s.Unlock(s.Lock(context.Background()))
				require.Zero(t, time.Since(started))
				require.NoError(t, s.Locks.Close(context.Background()))
				require.LessOrEqual(t, time.Since(started), 2*time.Second)
			})
		})
	}
}

// A hook that panics is not passed on to the goroutine of nobody, which would end the program.
func TestAQuestionThatPanicsHarmsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage.InBubble(t)
		panics := &infos{panics: true}
		s.Client.AddHook(panics)
		h := s.Lock(context.Background())
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, panics.sent.Load())
		stage.StillHeld(t, h)
		s.Unlock(h)
	})
}
