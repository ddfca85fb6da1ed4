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
		if c, is := cmd.(*tracked); is {
			c.SetVal("reply")
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
	a := s.Attempt(limit, nil, false)
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
		s.mu.Lock()
		require.Equal(t, time.Now().Add(slowAfter), s.tickAt, "one timer serves them all")
		s.mu.Unlock()
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

// A command waits for slow answers to others as long as one of them counts, each time. An answer
// counts from when its own pipeline was sent, not from when its worker sent another one.
func TestASlowAnswerCountsForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &server{}
		s := start(t, srv, true)
		srv.does = func(cmd redis.Cmder) {
			switch cmd.Name() {
			case "dead":
				time.Sleep(time.Hour)
			case "quick":
				time.Sleep(slowAfter - time.Millisecond)
			}
		}
		occupy := func(name string, times int) {
			for range times {
				go func() { _ = s.send(t.Context(), name, time.Minute) }()
				synctest.Wait()
			}
		}
		waits := func() time.Duration {
			began := time.Now()
			require.NoError(t, s.send(t.Context(), "good", time.Minute))
			return time.Since(began)
		}
		for range 3 {
			occupy("dead", sendingAtOnce)
			require.Equal(t, slowAfter, waits())
			require.Zero(t, waits(), "none of them counts any more")
		}
		occupy("quick", sendingAtOnce)
		time.Sleep(time.Millisecond)
		require.Equal(t, slowAfter-2*time.Millisecond, waits(), "until the quick ones are answered")
		occupy("dead", sendingAtOnce)
		time.Sleep(2 * time.Millisecond) // it is time to look for slow ones, and there are none
		require.Equal(t, slowAfter-2*time.Millisecond, waits())
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
		why   error
	}{
		"its time is over":     {limit: time.Second, after: time.Second, why: context.DeadlineExceeded},
		"its context ends":     {limit: time.Hour, after: time.Minute, leave: func(cancel func(), _ chan struct{}) { cancel() }, why: context.Canceled},
		"the client is closed": {limit: time.Hour, after: time.Minute, leave: func(_ func(), stop chan struct{}) { close(stop) }, why: context.DeadlineExceeded},
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
				a, began := s.Attempt(c.limit, stop, false), time.Now()
				require.ErrorIs(t, a.Process(ctx, newCommand("x")), ErrUnanswered)
				require.Equal(t, c.after, time.Since(began))
				require.False(t, a.Unsent)
				srv.mu.Lock()
				sentWith := srv.ctx[0]
				srv.mu.Unlock()
				select {
				case <-sentWith.Done(): // go-redis learns it, for what it may be waiting for
				default:
					require.Fail(t, "go-redis does not learn it")
				}
				require.Equal(t, c.why, sentWith.Err())
				ended := make(chan error, 2)
				a.Abandoned.OnEnd(func(err error) { ended <- err })
				time.Sleep(3 * time.Hour)
				require.NoError(t, <-ended, "it was answered late")
				for range 2 {
					a.Abandoned.OnEnd(func(err error) { ended <- err })
					require.NoError(t, <-ended)
				}
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
		a := s.Attempt(slowAfter/2, nil, false)
		require.ErrorIs(t, a.Process(t.Context(), newCommand("left")), ErrUnanswered)
		require.True(t, a.Unsent)
		ended := make(chan error, 1)
		a.Abandoned.OnEnd(func(err error) { ended <- err })
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

// A worker that a hook ends no longer counts as sending, and the commands that waited for it are
// sent. All others count.
func TestAnEndedWorkerMakesRoomForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const short = slowAfter / 4
		srv := &server{does: func(cmd redis.Cmder) {
			switch time.Sleep(short); cmd.Name() {
			case "bad":
				runtime.Goexit()
			case "busy":
				time.Sleep(2 * short)
			}
		}}
		s := start(t, srv, true)
		var all sync.WaitGroup
		ask := func(name string, takes time.Duration) {
			all.Go(func() {
				began := time.Now()
				err := s.send(t.Context(), name, time.Minute)
				require.Equal(t, name == "bad", errors.Is(err, ErrGoexit))
				require.Equal(t, takes, time.Since(began), name)
			})
			synctest.Wait()
		}
		for range sendingAtOnce {
			ask("bad", short)
		}
		ask("waits for the bad ones", 2*short)
		all.Wait()
		for range sendingAtOnce - 1 {
			ask("busy", 3*short)
		}
		ask("bad", short)
		time.Sleep(short)
		synctest.Wait()
		ask("takes its place", short)
		ask("finds no place", 2*short)
		all.Wait()
	})
}

// Only one worker at a time comes for what waits: it takes everything. One that goes on by itself
// was not called, and the one that was called still comes.
func TestOneWorkerComesForAllThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &server{takes: func() time.Duration { return slowAfter / 2 }}
		s := start(t, srv, true)
		calls := func(n int) (workers int) {
			s.mu.Lock()
			for range n {
				s.queue = append(s.queue, &command{
					Context: t.Context(), cmd: newCommand("x"), end: time.Now().Add(time.Minute), leaveAt: time.Now().Add(time.Minute),
					settled: make(chan struct{}, 1),
				})
				s.callWorker()
			}
			s.mu.Unlock()
			time.Sleep(slowAfter)
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.idle)
		}
		require.Equal(t, 1, calls(10))
		require.Len(t, srv.arrived(), 1)
		require.Len(t, srv.arrived()[0], 10)

		go func() { _ = s.send(t.Context(), "y", time.Minute) }()
		synctest.Wait()
		s.mu.Lock()
		s.workerComing = true
		s.mu.Unlock()
		time.Sleep(slowAfter)
		s.mu.Lock()
		require.True(t, s.workerComing)
		s.workerComing = false
		s.mu.Unlock()
	})
}

// An attempt tells whether its last command was written, if that failed: by whom it was sent does
// not matter, nor what became of the commands before.
func TestAnAttemptReportsWhetherItsLastCommandWasWritten(t *testing.T) {
	failure := errors.New("no connection")
	for name, c := range map[string]struct{ direct, batches bool }{
		"by its caller": {true, true}, "by a worker": {false, false}, "by a worker with pipelines": {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var written, fails bool
				s := start(t, &server{}, c.batches)
				s.cfg.Redis = processFunc(func(_ context.Context, cmd redis.Cmder) error {
					if written {
						_ = cmd.Args()
					}
					if fails {
						return failure
					}
					return nil
				})
				if c.direct {
					s.cfg.Direct, s.direct.fast = true, true
				}
				a := s.Attempt(time.Minute, nil, false)
				defer a.End()
				require.Equal(t, c.direct, a.Direct)
				for _, now := range []struct{ written, fails, unsent bool }{
					{false, true, true}, {true, true, false}, {false, true, true}, {true, false, false},
				} {
					written, fails = now.written, now.fails
					err := a.Process(t.Context(), newCommand("x"))
					require.Equal(t, now.fails, errors.Is(err, failure))
					require.Equal(t, now.unsent, a.Unsent)
				}
			})
		})
	}
}

type processFunc func(ctx context.Context, cmd redis.Cmder) error

func (f processFunc) Process(ctx context.Context, cmd redis.Cmder) error { return f(ctx, cmd) }

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
		}
	})
}

// A hook may register functions, or derive contexts, from the context of a command. They end with
// it.
func TestTheContextOfACommandEndsWithItsAnswer(t *testing.T) {
	for _, direct := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ended := 0
			s := startDirect(t)
			answers := s.cfg.Redis
			s.cfg.Redis = processFunc(func(ctx context.Context, cmd redis.Cmder) error {
				require.NoError(t, ctx.Err())
				context.AfterFunc(ctx, func() { ended++ })
				defer func() { require.NoError(t, ctx.Err(), "before the answer") }()
				return answers.Process(ctx, cmd)
			})
			s.srv.takes = func() time.Duration { return fastLink - 1 }
			if !direct {
				s.srv.takes = func() time.Duration { return fastLink }
			}
			for i := range 3 {
				require.NoError(t, s.send(t.Context(), "x", time.Minute))
				synctest.Wait()
				require.Equal(t, i+1, ended)
			}
			require.Equal(t, direct, len(s.direct.arrived()) > 0)
			require.ErrorIs(t, s.srv.ctx[0].Err(), context.Canceled)
			<-s.srv.ctx[0].Done()
		})
	}
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
		srv.takes = func() time.Duration { return 2 * idleFor }
		busy()
		time.Sleep(idleFor / 2)
		require.Equal(t, 20, idle(), "they wait as long after a slow answer")
		time.Sleep(idleFor)
		require.Zero(t, idle())
		srv.takes = nil
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

// If many commands wait, with ends at nearly the same time, the sender looks at all of them
// together, and not once for each.
func TestManyCommandsAreLookedAtTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		var few, many overdue
		few.await(now.Add(time.Millisecond))
		require.Equal(t, now.Add(time.Millisecond), few.next(now))
		for i := range 5000 {
			many.await(now.Add(time.Millisecond + time.Duration(i)))
		}
		require.Equal(t, now.Add(5*time.Millisecond), many.next(now))
	})
}
