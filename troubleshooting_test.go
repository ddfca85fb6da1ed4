package redlatch_test

import (
	"context"
	"errors"
	"maps"
	"net"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
)

// The goal of this file: docs/troubleshooting.md shows the errors that users meet, letter for
// letter.

// troubled is a client that meets trouble, and another one that is in its way.
type troubled struct {
	*stage.Scene
	other *redlatch.Client
}

// wait returns a context in which a call waits for two seconds.
func (s *troubled) wait() context.Context {
	ctx, cancel := context.WithTimeout(s.T.Context(), 2*time.Second)
	s.T.Cleanup(cancel)
	return ctx
}

// answers has Redis answer each script with an error, and locks.
func answers(text string) func(t *testing.T, s *troubled) error {
	return func(t *testing.T, s *troubled) error {
		s.Proxy.Inject(redistest.Rule{Match: redistest.Command("EVAL", "EVALSHA"), Action: redistest.Refuse(text)})
		_, err := s.Locks.Mutex("orders:42").Lock(s.wait())
		return err
	}
}

// whileHeld has the other client hold a lock or all permits, and calls ask.
func whileHeld(ask func(s *troubled) error) func(t *testing.T, s *troubled) error {
	return func(t *testing.T, s *troubled) error {
		h, err := s.other.Mutex("orders:42").Lock(t.Context())
		require.NoError(t, err)
		stage.KeepHandle(t, h)
		p, err := s.other.Semaphore("pool", 2).Acquire(t.Context(), 2)
		require.NoError(t, err)
		t.Cleanup(func() { runtime.KeepAlive(p) })
		return ask(s)
	}
}

// holding returns the error with which a hold of the client ends after a fault.
func holding(fault func(s *troubled) error, options ...redlatch.LockOption) func(t *testing.T, s *troubled) error {
	return func(t *testing.T, s *troubled) error {
		h, err := s.Locks.Mutex("orders:42", options...).Lock(t.Context())
		require.NoError(t, err)
		require.NoError(t, fault(s))
		<-h.Lost()
		s.Proxy.Heal()
		return h.Unlock(t.Context())
	}
}

var troubles = map[string]func(t *testing.T, s *troubled) error{
	"a try finds the lock held": whileHeld(func(s *troubled) error {
		_, err := s.Locks.Mutex("orders:42").TryLock(s.T.Context())
		return err
	}),
	"the context ends": whileHeld(func(s *troubled) error {
		_, err := s.Locks.Mutex("orders:42").Lock(s.wait())
		return err
	}),
	"the wait timeout ends": whileHeld(func(s *troubled) error {
		_, err := s.Locks.Mutex("orders:42", redlatch.WithWaitTimeout(2*time.Second)).Lock(s.T.Context())
		return err
	}),
	"this program holds it itself": func(t *testing.T, s *troubled) error {
		own := stage.LocksOn(t, s.Direct, redlatch.WithDescription("host-7 pid 4242"), redlatch.WithWaitTimeout(2*time.Second))
		h, err := own.Mutex("orders:42").Lock(t.Context())
		require.NoError(t, err)
		stage.KeepHandle(t, h)
		_, err = own.Mutex("orders:42").Lock(t.Context())
		return err
	},
	"the context ends in a queue": whileHeld(func(s *troubled) error {
		_, err := s.Locks.FairMutex("orders:42").Lock(s.wait())
		return err
	}),
	"the lock is kept": func(t *testing.T, s *troubled) error {
		h, err := s.other.Mutex("orders:42").Lock(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.UnlockAfter(t.Context(), 10*time.Minute))
		time.Sleep(time.Second)
		_, err = s.Locks.Mutex("orders:42").TryLock(t.Context())
		return err
	},
	"no permit is free": whileHeld(func(s *troubled) error {
		_, err := s.Locks.Semaphore("pool", 2).Acquire(s.wait(), 1)
		return err
	}),
	"an operator removed the waiter": whileHeld(func(s *troubled) error {
		failed := make(chan error)
		go func() { _, err := s.Locks.FairMutex("orders:42").Lock(s.T.Context()); failed <- err }()
		synctest.Wait()
		all, _, err := s.other.FairMutex("orders:42").Queue(s.T.Context(), 0, 1)
		require.NoError(s.T, err)
		_, err = s.other.FairMutex("orders:42").RemoveWaiter(s.T.Context(), all[0].ID)
		require.NoError(s.T, err)
		return <-failed
	}),
	"the context had ended": func(t *testing.T, s *troubled) error {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := s.Locks.Mutex("orders:42").Lock(ctx)
		return err
	},
	"no server": func(t *testing.T, s *troubled) error {
		refused := &net.OpError{
			Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 6379},
			Err: os.NewSyscallError("connect", syscall.ECONNREFUSED),
		}
		rdb := redistest.Bubble(t).Client(func(o *redis.Options) {
			o.Dialer = func(context.Context, string, string) (net.Conn, error) { return nil, refused }
		})
		_, err := stage.LocksOn(t, rdb).Mutex("orders:42").Lock(s.wait())
		return err
	},
	"no answer": func(t *testing.T, s *troubled) error {
		s.Unlock(s.Lock(t.Context()))
		s.Proxy.BlackHole(redistest.CommandTraffic)
		_, err := s.Locks.Mutex("orders:42").Lock(s.wait())
		s.Proxy.Heal()
		return err
	},
	"no answer to a release": func(t *testing.T, s *troubled) error {
		h, err := s.Locks.Mutex("orders:42").Lock(t.Context())
		require.NoError(t, err)
		s.Proxy.BlackHole(redistest.CommandTraffic)
		err = h.Unlock(s.wait())
		s.Proxy.Heal()
		return err
	},
	"no answer to a re-entry": func(t *testing.T, s *troubled) error {
		h, err := s.Locks.Mutex("orders:42").Lock(t.Context())
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(h.Context(), 2*time.Second)
		defer cancel()
		s.Proxy.BlackHole(redistest.CommandTraffic)
		_, err = s.Locks.Mutex("orders:42").Lock(ctx)
		s.Proxy.Heal()
		require.NoError(t, h.Unlock(t.Context()))
		return err
	},
	"no exported text": func(t *testing.T, s *troubled) error {
		_, err := s.Locks.Mutex("orders:42").Attach(t.Context(), "")
		return err
	},
	"loading":      answers("LOADING Redis is loading the dataset in memory"),
	"read only":    answers("READONLY You can't write against a read only replica."),
	"cluster down": answers("CLUSTERDOWN The cluster is down"),
	"no password":  answers("NOAUTH Authentication required."),
	"no right":     answers("NOPERM this user has no permissions to run the 'evalsha' command"),
	"memory":       answers("OOM command not allowed when used memory > 'maxmemory'."),
	"disk":         answers("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk."),
	"a key of something else": func(t *testing.T, s *troubled) error {
		require.NoError(t, s.Direct.HSet(t.Context(), "orders:42", "mode", "read", "x:1", "1").Err())
		_, err := s.Locks.Mutex("orders:42").TryLock(t.Context())
		return err
	},
	"removed": holding(func(s *troubled) error { return s.Direct.Del(s.T.Context(), "orders:42").Err() }),
	"not confirmed": holding(func(s *troubled) error {
		s.Proxy.BlackHole(redistest.CommandTraffic)
		return nil
	}),
	"held for too long": holding(func(*troubled) error { return nil }, redlatch.WithMaxHold(time.Minute)),
	"no progress":       holding(func(*troubled) error { return nil }, redlatch.WithProgressTimeout(time.Minute)),
	"lost, and the work failed": func(t *testing.T, s *troubled) error {
		return s.Locks.Mutex("orders:42").Do(t.Context(), func(ctx context.Context) error {
			require.NoError(t, s.Direct.Del(ctx, "orders:42").Err())
			<-ctx.Done()
			return errors.New("charging the card: context canceled")
		})
	},
	"too few replicas": func(t *testing.T, s *troubled) error {
		s.OnReplicas(0, 0, stage.Replicas(0))
		_, err := s.Locks.Mutex("orders:42", redlatch.WithReplicas(1, time.Second)).Lock(t.Context())
		return err
	},
	"released before": func(t *testing.T, s *troubled) error {
		h, err := s.Locks.Mutex("orders:42").Lock(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.Unlock(t.Context()))
		return h.Unlock(t.Context())
	},
	"the client is closed": func(t *testing.T, s *troubled) error {
		require.NoError(t, s.Locks.Close(t.Context()))
		_, err := s.Locks.Mutex("orders:42").Lock(t.Context())
		return err
	},
	"the client was closed under a hold": func(t *testing.T, s *troubled) error {
		h, err := s.Locks.Mutex("orders:42").Lock(t.Context())
		require.NoError(t, err)
		require.NoError(t, s.Locks.Close(t.Context()))
		return h.Unlock(t.Context())
	},
	"an exported lock that was attached before": func(t *testing.T, s *troubled) error {
		h, err := s.Locks.Mutex("orders:42").Lock(t.Context())
		require.NoError(t, err)
		text, err := h.Export(t.Context(), time.Minute)
		require.NoError(t, err)
		_, err = s.Locks.Mutex("orders:42").Attach(t.Context(), text)
		require.NoError(t, err)
		_, err = s.Locks.Mutex("orders:42").Attach(t.Context(), text)
		return err
	},
	"the go-redis client is closed": func(t *testing.T, s *troubled) error {
		require.NoError(t, s.Client.Close())
		_, err := s.Locks.Mutex("orders:42").Lock(t.Context())
		return err
	},
	"a bad name": func(t *testing.T, s *troubled) error {
		_, err := s.Locks.Mutex("").Lock(t.Context())
		return err
	},
	"a bad setting": func(t *testing.T, s *troubled) error {
		_, err := s.Locks.Mutex("orders:42", redlatch.WithLease(3*time.Second), redlatch.WithRenewInterval(5*time.Second)).Lock(t.Context())
		return err
	},
	"another limit": func(t *testing.T, s *troubled) error {
		p, err := s.other.Semaphore("pool", 2).Acquire(t.Context(), 1)
		require.NoError(t, err)
		t.Cleanup(func() { runtime.KeepAlive(p) })
		_, err = s.Locks.Semaphore("pool", 3).Acquire(t.Context(), 1)
		return err
	},
	"too many units": func(t *testing.T, s *troubled) error {
		_, err := s.Locks.Semaphore("pool", 3).Acquire(t.Context(), 4)
		return err
	},
}

// changing are the parts of a text that differ from run to run, and what the document has there.
var changing = []struct {
	part *regexp.Regexp
	as   string
}{
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:\d+`), "<id>"},
	{regexp.MustCompile(`for [0-9.]+s more`), "for 28.3s more"},
	{regexp.MustCompile(`\(\d+ attempts`), "(5 attempts"},
	{regexp.MustCompile(`age [0-9.ms]+\)`), "age 9.7s)"},
	{regexp.MustCompile(`at [^ ]+\.go:\d+`), "at <file>"},
}

func TestTroubleshootingShowsTheErrorsAsTheyAre(t *testing.T) {
	text, err := os.ReadFile("docs/troubleshooting.md")
	require.NoError(t, err)
	shown := map[string]bool{}
	for _, block := range regexp.MustCompile("(?s)```text\n(.*?)\n```").FindAllStringSubmatch(string(text), -1) {
		shown[strings.ReplaceAll(block[1], "\n  ", " ")] = true
	}
	for name, trouble := range troubles {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &troubled{stage.InBubble(t), nil}
				s.other = stage.LocksOn(t, s.Direct, redlatch.WithDescription("host-7 pid 4242"))
				err := trouble(t, s)
				require.Error(t, err)
				got := err.Error()
				for _, c := range changing {
					got = c.part.ReplaceAllString(got, c.as)
				}
				require.Contains(t, slices.Collect(maps.Keys(shown)), got)
				delete(shown, got)
			})
		})
	}
	if !t.Failed() {
		require.Empty(t, shown, "no trouble has these errors")
	}
}
