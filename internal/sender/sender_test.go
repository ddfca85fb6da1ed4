package sender

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// server answers commands when a test lets it, one by one or as pipelines.
type server struct {
	mu      sync.Mutex
	batches [][]string            // what arrived together
	takes   func() time.Duration  // how long an answer takes; nil: no time
	does    func(cmd redis.Cmder) // instead of an answer; may be nil
	exec    func(err error) error // what Exec returns; may be nil
	ctx     []context.Context     // of the commands
}

func (s *server) Process(ctx context.Context, cmd redis.Cmder) error {
	return s.serve(ctx, []redis.Cmder{cmd})
}

func (s *server) serve(ctx context.Context, cmds []redis.Cmder) error {
	var names []string
	for _, cmd := range cmds {
		names = append(names, fmt.Sprint(cmd.Args()[0]))
	}
	s.mu.Lock()
	s.batches = append(s.batches, names)
	s.ctx = append(s.ctx, ctx)
	s.mu.Unlock()
	if s.takes != nil {
		time.Sleep(s.takes())
	}
	for _, cmd := range cmds {
		if s.does != nil {
			s.does(cmd)
		}
		if errors.Is(cmd.Err(), errNoReply) {
			cmd.SetErr(nil)
		}
	}
	return cmds[0].Err()
}

func (s *server) arrived() [][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.batches)
}

// pipe is a pipeline to a server.
type pipe struct {
	redis.Pipeliner
	server *server
	cmds   []redis.Cmder
}

func (p *pipe) Process(_ context.Context, cmd redis.Cmder) error {
	p.cmds = append(p.cmds, cmd)
	return nil
}

func (p *pipe) Exec(ctx context.Context) ([]redis.Cmder, error) {
	if p.server.exec != nil {
		if err := p.server.exec(nil); err != nil {
			return p.cmds, err
		}
	}
	return p.cmds, p.server.serve(ctx, p.cmds)
}

// tracked is a command that can be left.
type tracked struct {
	*redis.Cmd
	mu            sync.Mutex
	written, left bool
}

func newCommand(name string) *tracked {
	return &tracked{Cmd: redis.NewCmd(context.Background(), name)}
}

func (c *tracked) Abandon() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = c.left || !c.written
	return c.written
}

func (c *tracked) Args() []any {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.written = c.written || !c.left
	return c.Cmd.Args()
}

func start(t *testing.T, srv *server, batches bool) *Sender {
	cfg := Config{Redis: srv, Panicked: func(p any) error { return fmt.Errorf("panic: %v", p) }}
	if batches {
		cfg.Pipeline = func() redis.Pipeliner { return &pipe{server: srv} }
	}
	s := New(cfg)
	t.Cleanup(s.Close)
	return s
}

// send sends one command, as an attempt of its own.
func (s *Sender) send(ctx context.Context, name string, limit time.Duration) error {
	a := s.Attempt(limit, nil)
	defer a.End()
	return a.Process(ctx, newCommand(name))
}

// While pipelines are on their way, what arrives waits, and goes out together. The first
// commands wait for nothing.
func TestCommandsThatWaitGoTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &server{takes: func() time.Duration { return slowAfter / 2 }}
		s := start(t, srv, true)
		var all sync.WaitGroup
		ask := func(name string) {
			all.Go(func() { require.NoError(t, s.send(t.Context(), name, time.Second)) })
			synctest.Wait()
		}
		for i := range sendingAtOnce {
			ask(fmt.Sprint("first", i))
		}
		require.Len(t, srv.arrived(), sendingAtOnce, "each is sent at once")
		for i := range 10 {
			ask(fmt.Sprint("later", i))
		}
		require.Len(t, srv.arrived(), sendingAtOnce)
		all.Wait()
		require.Len(t, srv.arrived(), sendingAtOnce+1)
		require.Len(t, srv.arrived()[sendingAtOnce], 10)
	})
}

// Nobody waits for long for the answers to others: not where connections are dead.
func TestCommandsDoNotWaitForSlowAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		takes := time.Hour
		srv := &server{takes: func() time.Duration { return takes }}
		s := start(t, srv, true)
		for range 3 * sendingAtOnce {
			go func() { _ = s.send(t.Context(), "dead", time.Minute) }()
			synctest.Wait()
		}
		time.Sleep(slowAfter)
		synctest.Wait()
		takes = 0
		began := time.Now()
		require.NoError(t, s.send(t.Context(), "good", time.Minute))
		require.LessOrEqual(t, time.Since(began), slowAfter)
		time.Sleep(2 * time.Hour)
	})
}

// With more than one server, each command is sent by itself, and none waits for another.
func TestWithoutPipelinesNoCommandWaitsForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &server{takes: func() time.Duration { return time.Second }}
		s := start(t, srv, false)
		var all sync.WaitGroup
		began := time.Now()
		for range 50 {
			all.Go(func() { require.NoError(t, s.send(t.Context(), "x", time.Minute)) })
		}
		all.Wait()
		require.Equal(t, time.Second, time.Since(began))
		require.Len(t, srv.arrived(), 50)
	})
}

// A batch has a bound, and nothing is forgotten.
func TestABatchHasABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &server{takes: func() time.Duration { return slowAfter / 2 }}
		s := start(t, srv, true)
		var all sync.WaitGroup
		for range sendingAtOnce + 2*largestBatch + 1 {
			all.Go(func() { require.NoError(t, s.send(t.Context(), "x", time.Minute)) })
		}
		all.Wait()
		sum := 0
		for _, batch := range srv.arrived() {
			require.LessOrEqual(t, len(batch), largestBatch)
			sum += len(batch)
		}
		require.Equal(t, sendingAtOnce+2*largestBatch+1, sum)
	})
}

// A caller leaves for each of its reasons, at once, whatever the server does.
func TestACallerLeaves(t *testing.T) {
	for name, c := range map[string]struct {
		limit time.Duration
		leave func(cancel func(), stop chan struct{})
		after time.Duration
	}{
		"its time is over":     {limit: time.Second, after: time.Second},
		"its context ends":     {limit: time.Hour, after: time.Minute, leave: func(cancel func(), _ chan struct{}) { cancel() }},
		"the client is closed": {limit: time.Hour, after: time.Minute, leave: func(_ func(), stop chan struct{}) { close(stop) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := &server{takes: func() time.Duration { return 2 * time.Hour }}
				s := start(t, srv, true)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				stop := make(chan struct{})
				if c.leave != nil {
					time.AfterFunc(c.after, func() { c.leave(cancel, stop) })
				}
				a, began := s.Attempt(c.limit, stop), time.Now()
				defer a.End()
				require.ErrorIs(t, a.Process(ctx, newCommand("x")), ErrUnanswered)
				require.Equal(t, c.after, time.Since(began))
				require.False(t, a.Unsent())
				srv.mu.Lock()
				sentWith := srv.ctx[0]
				srv.mu.Unlock()
				require.Error(t, sentWith.Err(), "go-redis is told, for what it may be waiting for")
				ended := make(chan error, 2)
				a.AbandonedCommand().OnEnd(func(err error) { ended <- err })
				time.Sleep(3 * time.Hour)
				require.NoError(t, <-ended, "it was answered late")
				a.AbandonedCommand().OnEnd(func(err error) { ended <- err })
				require.NoError(t, <-ended)
			})
		})
	}
}

// A command that is left while it waits for a worker is not sent any more.
func TestWhatIsLeftInTheQueueIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &server{takes: func() time.Duration { return slowAfter * 9 / 10 }}
		s := start(t, srv, true)
		var all sync.WaitGroup
		for range sendingAtOnce {
			all.Go(func() { require.NoError(t, s.send(t.Context(), "first", time.Second)) })
			synctest.Wait()
		}
		a := s.Attempt(slowAfter/2, nil)
		defer a.End()
		require.ErrorIs(t, a.Process(t.Context(), newCommand("left")), ErrUnanswered)
		require.True(t, a.Unsent())
		ended := make(chan error, 1)
		a.AbandonedCommand().OnEnd(func(err error) { ended <- err })
		all.Wait()
		require.NoError(t, s.send(t.Context(), "last", time.Second))
		require.ErrorIs(t, <-ended, ErrNotSent)
		require.NotContains(t, slices.Concat(srv.arrived()...), "left")
	})
}

// Panics and Goexit in a hook are errors of the commands that they met, and of no others.
func TestAHookThatDoesNotReturnIsAnError(t *testing.T) {
	for name, c := range map[string]struct {
		hook func()
		err  string
	}{
		"panic":  {func() { panic("hook") }, "panic: hook"},
		"goexit": {runtime.Goexit, ErrGoexit.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := &server{
					takes: func() time.Duration { return slowAfter / 2 },
					does: func(cmd redis.Cmder) {
						if cmd.Name() == "bad" {
							c.hook()
						}
					},
				}
				s := start(t, srv, true)
				var all sync.WaitGroup
				ask := func(name string, fails bool) {
					all.Go(func() {
						if err := s.send(t.Context(), name, time.Minute); fails {
							require.ErrorContains(t, err, c.err)
						} else {
							require.NoError(t, err)
						}
					})
					synctest.Wait()
				}
				ask("bad", true)
				for range sendingAtOnce - 1 {
					ask("good", false)
				}
				ask("bad", true) // in a batch, with another
				ask("bad", true)
				all.Wait()
				require.NoError(t, s.send(t.Context(), "good", time.Minute))
			})
		})
	}
}

// Each command of a pipeline has its own error. One that got no reply has that of the
// pipeline.
func TestEachCommandOfAPipelineHasItsError(t *testing.T) {
	own, whole := errors.New("own"), errors.New("whole")
	synctest.Test(t, func(t *testing.T) {
		srv := &server{
			takes: func() time.Duration { return slowAfter / 2 },
			does: func(cmd redis.Cmder) {
				if cmd.Name() == "bad" {
					cmd.SetErr(own)
				}
			},
		}
		s := start(t, srv, true)
		round := func() (good, bad error) {
			var all sync.WaitGroup
			for range sendingAtOnce {
				all.Go(func() { _ = s.send(t.Context(), "first", time.Minute) })
				synctest.Wait()
			}
			all.Go(func() { good = s.send(t.Context(), "good", time.Minute) })
			all.Go(func() { bad = s.send(t.Context(), "bad", time.Minute) })
			all.Wait()
			return good, bad
		}
		good, bad := round()
		require.NoError(t, good)
		require.ErrorIs(t, bad, own)
		srv.exec = func(error) error { return whole }
		good, bad = round()
		require.ErrorIs(t, good, whole)
		require.ErrorIs(t, bad, whole)
	})
}

// The context of a command has the values of its caller, and ends no later than the attempt.
func TestACommandIsSentWithTheContextOfItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		srv := &server{}
		s := start(t, srv, true)
		ctx := context.WithValue(t.Context(), key{}, "trace")
		require.NoError(t, s.send(ctx, "x", time.Minute))
		bounded, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		require.NoError(t, s.send(bounded, "x", time.Minute))
		for i, after := range []time.Duration{time.Minute, time.Second} {
			require.Equal(t, "trace", srv.ctx[i].Value(key{}))
			deadline, ok := srv.ctx[i].Deadline()
			require.True(t, ok)
			require.Equal(t, time.Now().Add(after), deadline)
			require.NoError(t, srv.ctx[i].Err())
		}
	})
}

// Workers end a while after the last command, and at once when the sender closes. A closed
// sender still sends.
func TestNoWorkerIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &server{takes: func() time.Duration { return time.Millisecond }}
		s := start(t, srv, false)
		idle := func() int {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.idle)
		}
		busy := func() {
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() { require.NoError(t, s.send(t.Context(), "x", time.Second)) })
			}
			all.Wait()
			synctest.Wait()
		}
		busy()
		require.Equal(t, 20, idle(), "they are kept")
		busy()
		require.Equal(t, 20, idle(), "and used again")
		time.Sleep(idleFor)
		synctest.Wait()
		require.Zero(t, idle())
		busy()
		s.Close()
		synctest.Wait()
		require.Zero(t, idle())
		busy()
		require.Zero(t, idle()) // and the bubble sees to it that no goroutine is left
	})
}

// A pipeline ends with the last attempt in it, where go-redis looks at deadlines.
func TestAPipelineEndsWithItsLastAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &server{takes: func() time.Duration { return slowAfter / 2 }}
		s := start(t, srv, true)
		var all sync.WaitGroup
		ask := func(limit time.Duration) {
			all.Go(func() { require.NoError(t, s.send(t.Context(), "x", limit)) })
			synctest.Wait()
		}
		for range sendingAtOnce {
			ask(time.Second)
		}
		began := time.Now()
		for _, limit := range []time.Duration{time.Second, 3 * time.Second, 2 * time.Second} {
			ask(limit)
		}
		all.Wait()
		deadline, ok := srv.ctx[sendingAtOnce].Deadline()
		require.True(t, ok)
		require.Equal(t, began.Add(3*time.Second), deadline)
	})
}

// A caller that stays sends by itself while nobody else sends, and else by a worker.
func TestACallerThatStaysSendsByItself(t *testing.T) {
	for _, batches := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			srv := &server{takes: func() time.Duration { return time.Second }}
			s := start(t, srv, batches)
			workers := func() int {
				s.mu.Lock()
				defer s.mu.Unlock()
				return len(s.idle)
			}
			stay := func(name string) error {
				a := s.Attempt(time.Millisecond, nil)
				defer a.End()
				a.Stay()
				return a.Process(t.Context(), newCommand(name))
			}
			require.NoError(t, stay("alone"), "it stays beyond the limit")
			require.Zero(t, workers())

			var both sync.WaitGroup
			both.Go(func() { require.NoError(t, stay("first")) })
			synctest.Wait()
			both.Go(func() { require.ErrorIs(t, stay("second"), ErrUnanswered, "a worker has it") })
			both.Wait()
			time.Sleep(2 * time.Second)
			require.NoError(t, stay("again"))
		})
	}
}

// A hook that panics, or fails, in the goroutine of a caller harms nobody after it.
func TestAPanicOfACallerThatStaysIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &server{does: func(redis.Cmder) { panic("the span is nil") }}
		s := start(t, srv, true)
		for range 2 {
			a := s.Attempt(time.Second, nil)
			a.Stay()
			require.ErrorContains(t, a.Process(t.Context(), newCommand("x")), "the span is nil")
			a.End()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		require.Empty(t, s.idle, "no worker was needed")
		require.False(t, s.direct)
	})
}
