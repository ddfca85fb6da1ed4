package redlatch_test

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/test/stage"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/semaphore"
)

// fairACL returns the further words that fair mutexes need.
func fairACL(t *testing.T) []string {
	t.Helper()
	return furtherACL(t, "Fair mutexes need besides:")
}

// everythingOfSemaphores uses the commands of a semaphore that mutexes do not have.
func everythingOfSemaphores(a, b *stage.Actor, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	mine, theirs := a.Semaphore(name, 3), b.Semaphore(name, 3)
	p, err := mine.Acquire(ctx, 3)
	if err != nil {
		return err
	}
	got := make(chan error, 1)
	go func() {
		q, err := theirs.Acquire(ctx, 2)
		if err == nil {
			_, err = theirs.ForceRelease(ctx, q.ID())
			_ = q.Release(ctx)
		}
		got <- err
	}()
	for info := (semaphore.Info{}); info.Waiting == 0; {
		if info, err = mine.Inspect(ctx); err != nil {
			return err
		}
		if len(got) > 0 {
			return <-got
		}
	}
	waiters, _, err := mine.Queue(ctx, 0, 1)
	if err != nil {
		return err
	}
	if len(waiters) == 0 { // denied a command after it joined, it left
		return cmp.Or(<-got, errors.New("the waiter left without an error"))
	}
	time.Sleep(time.Until(waiters[0].Since.Add(waiters[0].Heartbeat / 2))) // for a heartbeat
	if err := p.Release(ctx); err != nil {
		return err
	}
	if _, err := mine.Resize(ctx, 4); err != nil {
		return err
	}
	if err := <-got; err != nil {
		return err
	}
	return removedFromSemaphore(ctx, mine, theirs)
}

// removedFromSemaphore makes an operator remove a waiter from the queue.
func removedFromSemaphore(ctx context.Context, mine, theirs *semaphore.Semaphore) error {
	p, err := mine.Acquire(ctx, 3)
	if err != nil {
		return err
	}
	gone := make(chan error, 1)
	go func() { _, err := theirs.Acquire(ctx, 3); gone <- err }()
	var waiters []lock.Waiter
	for len(waiters) == 0 && len(gone) == 0 {
		if waiters, _, err = mine.Queue(ctx, 0, 1); err != nil {
			return err
		}
	}
	if len(waiters) > 0 {
		if _, err := mine.RemoveWaiter(ctx, waiters[0].ID); err != nil {
			return err
		}
	}
	if err := <-gone; !errors.Is(err, redlatch.ErrRemoved) {
		return fmt.Errorf("a removed waiter: %w", err)
	}
	if _, err := theirs.TryAcquire(ctx, 3); !errors.Is(err, redlatch.ErrNotAcquired) {
		return fmt.Errorf("try what is in use: %w", err)
	}
	return p.Release(ctx)
}

func TestTheDocumentedACLOfSemaphoresIsEnoughAndNeeded(t *testing.T) {
	t.Parallel()
	further := furtherACL(t, "And semaphores, besides the first rule:")
	short := redlatch.WithHeartbeat(300 * time.Millisecond) // a heartbeat shows what is denied
	t.Run("enough", func(t *testing.T) {
		t.Parallel()
		aclStage(t, func(s *stage.Stage, rule []string) {
			rule = append(rule, further...)
			s.SetUser(rule)
			long := redlatch.WithHeartbeat(2 * time.Second)
			a, b := s.ActorOf(rule, long, redlatch.WithFenceRetention(0)), s.ActorOf(rule, long)
			require.NoError(t, everythingOfSemaphores(a, b, "pool"))
			require.Empty(t, denials(s))
			require.Empty(t, complaints(a, b))
		})
	})
	for _, word := range further {
		command, ok := strings.CutPrefix(word, "+")
		if !ok {
			continue
		}
		t.Run("without "+command, func(t *testing.T) {
			t.Parallel()
			aclStage(t, func(s *stage.Stage, rule []string) {
				rule = append(rule, further...)
				s.SetUser(rule)
				a := s.ActorOf(rule, short, redlatch.WithLease(aclLease), redlatch.WithFenceRetention(0))
				b := s.ActorOf(rule, short, redlatch.WithLease(aclLease))
				s.SetUser(rule, "-"+command)
				_ = everythingOfSemaphores(a, b, "pool") // refused, or it ends with a lease
				require.Contains(t, fmt.Sprint(denials(s)), command, "not needed")
			})
		})
	}
}

// The server has no replicas, so no lock is acknowledged. Without the permission, the error says
// so.
func TestTheDocumentedACLOfReplicasIsEnoughAndNeeded(t *testing.T) {
	t.Parallel()
	aclStage(t, func(s *stage.Stage, rule []string) {
		rule = append(rule, fairACL(t)...)
		rule = append(rule, furtherACL(t, "And semaphores, besides the first rule:")...)
		s.SetUser(rule)
		a := s.ActorOf(rule)
		replicas := redlatch.WithReplicas(1, 10*time.Millisecond)
		lock := func() map[string]error {
			_, mutex := a.Mutex("door", replicas).Lock(a.Ctx)
			_, fair := a.FairMutex("door", replicas).Lock(a.Ctx)
			_, permit := a.Semaphore("door", 1, replicas).Acquire(a.Ctx, 1)
			return map[string]error{"mutex": mutex, "fair": fair, "permit": permit}
		}
		for kind, err := range lock() {
			stage.RequireOnly(t, redlatch.ErrRefused, err, kind)
			require.ErrorContains(t, err, "wait", kind)
		}
		require.Contains(t, fmt.Sprint(denials(s)), "wait")
		require.NoError(t, s.Admin.Do(a.Ctx, "ACL", "LOG", "RESET").Err())
		s.SetUser(append(rule, furtherACL(t, "With `WithReplicas`, a user needs besides:")...))
		for _, err := range lock() {
			stage.RequireNotReplicated(t, err, "svc:door", 0, 1)
		}
		require.Empty(t, denials(s))
		require.Empty(t, complaints(a))
		require.Empty(t, s.Admin.Exists(a.Ctx, "svc:door").Val())
	})
}

// One of the three kinds uses each pattern of the rule for tagged names.
func TestTheDocumentedACLOfTaggedNamesIsEnough(t *testing.T) {
	t.Parallel()
	aclStage(t, func(s *stage.Stage, rule []string) {
		rule = append(rule, fairACL(t)...)
		rule = append(rule, furtherACL(t, "And semaphores, besides the first rule:")...)
		rule = append(rule, furtherACL(t, "They need besides:")...)
		s.SetUser(rule)
		a, b := s.ActorOf(rule), s.ActorOf(rule)
		require.NoError(t, everything(s, a, b, "a{door}"))
		require.NoError(t, everythingFair(s, a, b, "{door}a"))
		require.NoError(t, everythingOfSemaphores(a, b, "{pool}"))
		require.Empty(t, denials(s))
		require.Empty(t, complaints(a, b))
	})
}

// everythingFair uses the commands of a fair mutex that others do not have.
func everythingFair(s *stage.Stage, a, b *stage.Actor, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	h, err := a.FairMutex(name).Lock(ctx)
	if err != nil {
		return err
	}
	wait := func(x *stage.Actor) chan error {
		got := make(chan error, 1)
		go func() {
			h, err := x.FairMutex(name).Lock(ctx)
			if err == nil {
				err = h.Unlock(ctx)
			}
			got <- err
		}()
		return got
	}
	// One waiter waits until it is removed, and one waits for the lock.
	gone := wait(a)
	fair := b.FairMutex(name)
	var waiters []lock.Waiter
	for len(waiters) == 0 {
		select {
		case err := <-gone:
			return err
		default:
		}
		if waiters, _, err = fair.Queue(ctx, 0, 1); err != nil {
			return err
		}
	}
	if did, err := fair.RemoveWaiter(ctx, waiters[0].ID); err != nil || !did {
		return fmt.Errorf("remove: %v, %w", did, err)
	}
	if err := <-gone; !errors.Is(err, redlatch.ErrRemoved) {
		return err
	}
	next := wait(b)
	for n := 0; n == 0; {
		select {
		case err := <-next:
			return err
		default:
		}
		if _, n, err = fair.Queue(ctx, 0, 1); err != nil {
			return err
		}
	}
	if _, err := fair.TryLock(ctx); !errors.Is(err, redlatch.ErrNotAcquired) {
		return fmt.Errorf("try a held lock: %w", err)
	}
	if err := h.Unlock(ctx); err != nil {
		return err
	}
	if err := <-next; err != nil {
		return err
	}
	victim, err := a.FairMutex(name).Lock(ctx)
	if err != nil {
		return err
	}
	if _, err := fair.ForceRelease(ctx, victim.ID()); err != nil {
		return err
	}
	if err := victim.Unlock(ctx); !errors.Is(err, redlatch.ErrLost) {
		return fmt.Errorf("unlock a lost lock: %w", err)
	}
	return nil
}

func TestTheDocumentedACLOfFairMutexesIsEnoughAndNeeded(t *testing.T) {
	t.Parallel()
	var needed []string
	for _, word := range fairACL(t) {
		if command, ok := strings.CutPrefix(word, "+"); ok {
			needed = append(needed, command)
		}
	}
	require.NotEmpty(t, needed)
	t.Run("enough", func(t *testing.T) {
		t.Parallel()
		aclStage(t, func(s *stage.Stage, rule []string) {
			rule = append(rule, fairACL(t)...)
			s.SetUser(rule)
			a, b := s.ActorOf(rule), s.ActorOf(rule)
			require.NoError(t, everythingFair(s, a, b, "door"))
			require.Empty(t, denials(s))
			require.Empty(t, complaints(a, b))
		})
	})
	for _, command := range needed {
		t.Run("without "+command, func(t *testing.T) {
			t.Parallel()
			aclStage(t, func(s *stage.Stage, rule []string) {
				rule = append(rule, fairACL(t)...)
				s.SetUser(rule)
				short := redlatch.WithHeartbeat(300 * time.Millisecond)
				a, b := s.ActorOf(rule, short), s.ActorOf(rule, short)
				s.SetUser(rule, "-"+command)
				_ = everythingFair(s, a, b, "door") // refused, or it ends with a lease
				require.Contains(t, fmt.Sprint(denials(s)), command, "not needed")
			})
		})
	}
}

// Another tenant of the server has the same rights to names of its own. It knows the id of the
// victim's client, and may publish anything to it. Nobody gets a grant by that, and nobody is
// removed from a queue.
func TestAHostileTenantGrantsAndRemovesNobody(t *testing.T) {
	t.Parallel()
	aclStage(t, func(s *stage.Stage, rule []string) {
		rule = append(append(rule, fairACL(t)...), furtherACL(t, "And semaphores, besides the first rule:")...)
		s.SetUser(rule)
		theirs := strings.Split(strings.ReplaceAll(strings.Join(rule, " "), "svc:", "evil:"), " ")
		theirs[0] = "evil"
		s.SetUser(theirs)
		evil := s.NewClient(&stage.Wires{}, []func(*redis.Options){func(o *redis.Options) { o.Username, o.Password = "evil", "SECRET" }})

		long := redlatch.WithHeartbeat(30 * time.Second) // heartbeats must not help
		a, b := s.ActorOf(rule, long), s.ActorOf(rule, long)
		ctx := t.Context()
		h, err := a.FairMutex("door").Lock(ctx)
		require.NoError(t, err)
		p, err := a.Semaphore("pool", 1).Acquire(ctx, 1)
		require.NoError(t, err)
		locked, acquired := make(chan *lock.Hold, 1), make(chan *semaphore.Permit, 1)
		failed := make(chan error, 2)
		go func() {
			h, err := b.FairMutex("door").Lock(ctx)
			failed <- err
			locked <- h
		}()
		go func() {
			p, err := b.Semaphore("pool", 1).Acquire(ctx, 1)
			failed <- err
			acquired <- p
		}()
		s.Queued("svc:door", 1)
		s.Await("it waits for permits", func() bool {
			return s.Admin.ZCard(ctx, "redlatch:permits-queue:{svc:pool}").Val() == 1
		})

		require.ErrorContains(t, evil.HGetAll(ctx, "svc:door").Err(), "NOPERM")
		require.ErrorContains(t, evil.ZRange(ctx, "redlatch:queue:{svc:door}", 0, -1).Err(), "NOPERM")
		var channels []string
		s.Await("the victim subscribes, which it does once it has a place", func() bool {
			channels = s.Admin.PubSubChannels(ctx, "redlatch:client:*").Val()
			return len(channels) > 0
		})
		for _, channel := range channels {
			client := strings.TrimPrefix(channel, "redlatch:client:")
			for n := range 100 {
				id := fmt.Sprintf("%s:%d", client, n)
				for _, payload := range []string{id, id + " 9223372036854775807", id + " 1", id + " 0", id + " -1", id + " ", client, "", id + "\x00"} {
					require.NoError(t, evil.Publish(ctx, channel, payload).Err())
				}
			}
		}
		// Behind all of these on the same connection.
		s.Unlock(h)
		next := <-locked
		require.Greater(t, next.Fence(), h.Fence())
		require.Less(t, next.Fence(), time.Now().Add(time.Hour).UnixMicro(), "from the server's clock")
		require.Empty(t, acquired)
		require.NoError(t, p.Release(ctx))
		q := <-acquired
		require.NoError(t, <-failed)
		require.NoError(t, <-failed)
		require.NoError(t, q.Release(ctx))
		s.Unlock(next)
	})
}

// complaints returns the log lines of clients, except those about renewals that a busy machine
// answered late.
func complaints(actors ...*stage.Actor) (lines []string) {
	for _, a := range actors {
		for _, line := range a.Log.Lines() {
			if !strings.Contains(line, "deadline exceeded") && !strings.Contains(line, "renewals work again") {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// aclStage is a server with the documented user. Its clients log in as that user.
func aclStage(t *testing.T, play func(s *stage.Stage, rule []string)) {
	t.Helper()
	stage.OnServer(t, func(s *stage.Stage) { play(s, documentedACL(t)) })
}

// ActorOf makes an actor of an ACL user.

// aclLease is a lease that a busy machine renews in time, and whose end a test can wait for.
const aclLease = 4 * time.Second

// everything uses all commands of a lock, on a name of its own. The error is that of the first call
// that failed, with the name of the call.
func everything(s *stage.Stage, a, b *stage.Actor, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	chain := redlatch.WithOwner(ctx)
	step := func(what string, err error) error {
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	}
	mu := a.Mutex(name, redlatch.WithLease(aclLease), redlatch.WithRenewInterval(time.Second))
	h, err := mu.Lock(chain)
	if err != nil {
		return step("lock", err)
	}
	inner, err := mu.Lock(chain)
	if err != nil {
		return step("re-enter", errors.Join(err, h.Unlock(ctx)))
	}
	if _, err = mu.Inspect(ctx); err != nil {
		return step("inspect", err)
	}
	if err := inner.Unlock(ctx); err != nil {
		return step("inner unlock", err)
	}
	trusted := h.TrustedUntil()
	for h.TrustedUntil().Equal(trusted) {
		select {
		case <-h.Lost():
			return step("renew", context.Cause(h.Context()))
		case <-time.After(time.Millisecond):
		}
	}
	if _, err := b.Mutex(name).TryLock(ctx); !errors.Is(err, redlatch.ErrNotAcquired) {
		return step("try a held lock", err)
	}
	// A goroutine of the same client waits, and so does one of another client.
	queue, other := make(chan error, 1), make(chan error, 1)
	stands := make(chan struct{})
	go func() {
		close(stands)
		g, err := a.Mutex(name).Lock(ctx)
		if err == nil {
			err = g.Unlock(ctx)
		}
		queue <- err
	}()
	go func() {
		g, err := b.Mutex(name).Lock(ctx)
		if err == nil {
			err = g.Unlock(ctx)
		}
		other <- err
	}()
	<-stands
	if err := h.Unlock(ctx); err != nil {
		return step("unlock", err)
	}
	if err := <-queue; err != nil {
		return step("wait here", err)
	}
	if err := <-other; err != nil {
		return step("wait elsewhere", err)
	}
	victim, err := a.Mutex(name).Lock(ctx)
	if err != nil {
		return step("lock again", err)
	}
	if _, err := b.Mutex(name).ForceRelease(ctx, victim.ID()); err != nil {
		return step("force release", err)
	}
	if err := victim.Unlock(ctx); !errors.Is(err, redlatch.ErrLost) {
		return step("unlock a lost lock", err)
	}
	return nil
}

func TestTheDocumentedACLIsEnough(t *testing.T) {
	t.Parallel()
	aclStage(t, func(s *stage.Stage, rule []string) {
		s.SetUser(rule)
		a, b := s.ActorOf(rule), s.ActorOf(rule)
		for _, name := range []string{"door", "with blank", "🔒"} {
			require.NoError(t, everything(s, a, b, name), name)
		}
		// Waiting by messages alone, because the poll bound is very long.
		hold := a.Lock("door")
		waits := b.Begin(b.Ctx, "door").Asked(2)
		s.Unlock(hold)
		s.Unlock(waits.Got())
		require.Empty(t, complaints(a, b))
		require.Empty(t, denials(s), "the server's log has denied something")

		// Names of others are denied.
		stranger, err := redlatch.New(a.Redis)
		require.NoError(t, err)
		_, err = stranger.Mutex("other").TryLock(t.Context())
		require.ErrorIs(t, err, redlatch.ErrRefused)
		require.Regexp(t, deniedText, err.Error())
		require.NoError(t, stranger.Close(t.Context()))
	})
}

// denials returns the entries of the server's ACL log, except for commands that go-redis sends by
// itself when it connects.
func denials(s *stage.Stage) (denied []string) {
	s.Helper()
	log, err := s.Admin.Do(context.Background(), "ACL", "LOG").Slice()
	require.NoError(s, err)
	for _, entry := range log {
		line := strings.ToLower(fmt.Sprint(entry))
		isOptional := strings.Contains(line, "object:client") || strings.Contains(line, "object client") ||
			strings.Contains(line, "object:info") || strings.Contains(line, "object info")
		if !isOptional {
			denied = append(denied, line)
		}
	}
	return denied
}

func TestEachCommandOfTheACLIsNeeded(t *testing.T) {
	t.Parallel()
	var commands []string
	for _, word := range documentedACL(t) {
		if name, ok := strings.CutPrefix(word, "+"); ok {
			commands = append(commands, name)
		}
	}
	require.NotEmpty(t, commands)
	// The page describes these consequences. In the other cases the call is refused.
	polls := func(s *stage.Stage, a, b *stage.Actor) {
		for range 3 {
			hold := a.Lock("door")
			waits := b.Begin(b.Ctx, "door").Asked(2)
			s.Unlock(hold)
			s.Unlock(waits.Got())
		}
		require.NoError(s, everything(s, a, b, "door"))
		require.NotEmpty(s, complaints(a, b))
		require.LessOrEqual(s, len(complaints(a)), 1, "each client says it once")
		require.LessOrEqual(s, len(complaints(b)), 1, "each client says it once")
	}
	works := func(s *stage.Stage, a, b *stage.Actor) { require.NoError(s, everything(s, a, b, "door")) }
	outcomes := map[string]func(s *stage.Stage, a, b *stage.Actor){
		"exists":    works,
		"zcard":     works,
		"publish":   polls,
		"subscribe": polls,
		"unsubscribe": func(s *stage.Stage, a, b *stage.Actor) {
			hold := a.Lock("door")
			waits := b.Begin(b.Ctx, "door").Asked(2)
			s.Unlock(hold)
			s.Unlock(waits.Got())
			s.Await("it is said that the channel stays", func() bool { return len(complaints(b)) == 1 })
			require.NoError(s, everything(s, a, b, "door"))
		},
		"ping": func(s *stage.Stage, a, b *stage.Actor) {
			hold := a.Lock("door")
			waits := b.Begin(b.Ctx, "door").Asked(2)
			s.Await("silence is probed", func() bool { return strings.Contains(fmt.Sprint(denials(s)), "ping") })
			s.Unlock(hold)
			s.Unlock(waits.Got())
			require.Empty(s, complaints(b))
		},
	}
	for _, command := range commands {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			aclStage(t, func(s *stage.Stage, rule []string) {
				s.SetUser(rule)
				options := []redlatch.Option{redlatch.WithPollInterval(20 * time.Millisecond), redlatch.WithLease(aclLease)}
				if command == "ping" {
					options = nil // messages wake up the waiter
				}
				a, b := s.ActorOf(rule, options...), s.ActorOf(rule, options...)
				extra := []string{"-" + command}
				if command == "ping" { // the user may not have echoes, so the connection is silent
					extra = append(extra, "resetchannels", "&redisson_lock__channel:{svc:door}")
				}
				s.SetUser(rule, extra...)
				require.NoError(t, s.Admin.Do(t.Context(), "SCRIPT", "FLUSH").Err())
				if outcome := outcomes[command]; outcome != nil {
					outcome(s, a, b)
					return
				}
				err := everything(s, a, b, "door")
				require.ErrorIs(t, err, redlatch.ErrRefused)
				require.Regexp(t, deniedText, err.Error())
				if strings.HasPrefix(err.Error(), "lock: ") {
					require.Empty(t, s.Keys(), "a grant that was refused has left nothing")
				}
				s.SetUser(rule)
				for _, actor := range []*stage.Actor{a, b} { // a hold that was not unlocked is renewed until it is collected
					require.NoError(t, actor.Close(t.Context()))
				}
				s.Await("the lock ends with its lease at the latest", func() bool { return len(s.Keys()) == 0 })
			})
		})
	}
}

func TestLocksOverTLS(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t) // without it the test ends here
	if !speaksTLS(t) {
		t.Skipf("left out: this %s %s was built without TLS", server.Kind(), server.Version())
	}
	certFile, keyFile, roots := makeCertificate(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().(*net.TCPAddr)
	require.NoError(t, l.Close())
	stage.OnServer(t, func(s *stage.Stage) {
		secure := func(o *redis.Options) {
			o.Addr = addr.String()
			o.TLSConfig = &tls.Config{RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS12}
			o.Dialer = nil // go-redis makes one that uses TLS
		}
		a := s.ActorAs([]func(*redis.Options){secure})
		b := s.ActorAs([]func(*redis.Options){secure})
		hold := a.Lock("door")
		_, err = b.Mutex("door").TryLock(b.Ctx)
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		waits := b.Begin(b.Ctx, "door").Asked(2)
		s.Unlock(hold)
		s.Unlock(waits.Got())
		require.Empty(t, complaints(b))

		// The client sends nothing to a server that it does not trust, so nothing can be granted.
		rdb := redis.NewClient(&redis.Options{
			Addr: addr.String(), TLSConfig: &tls.Config{ServerName: "localhost", MinVersion: tls.VersionTLS12},
			MaxRetries: -1, DialerRetries: 1,
		})
		defer rdb.Close()
		locks, err := redlatch.New(rdb)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err = locks.Mutex("door").TryLock(ctx)
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		var untrusted *tls.CertificateVerificationError
		require.ErrorAs(t, err, &untrusted)
		ctx, cancel = context.WithTimeout(t.Context(), stage.Guard)
		defer cancel()
		require.NoError(t, locks.Close(ctx))
	}, "--tls-port", fmt.Sprint(addr.Port), "--tls-cert-file", certFile, "--tls-key-file", keyFile,
		"--tls-ca-cert-file", certFile, "--tls-auth-clients", "no")
}

// speaksTLS makes the server program fail to start with a certificate that does not exist, and
// checks the error.
func speaksTLS(t *testing.T) bool {
	t.Helper()
	path := cmp.Or(os.Getenv("REDLATCH_REDIS_SERVER"), "redis-server")
	ctx, cancel := context.WithTimeout(t.Context(), stage.Guard)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--port", "0", "--tls-port", "1", "--tls-cert-file", "none", "--tls-key-file", "none")
	cmd.Dir = t.TempDir()
	said, err := cmd.CombinedOutput()
	require.Error(t, err, "%s", said)
	return !regexp.MustCompile(`(?i)bad directive|finding TLS support|connection type tls`).Match(said)
}

// makeCertificate makes a self-signed certificate for this test alone.
func makeCertificate(t *testing.T) (certFile, keyFile string, roots *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)

	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "EC PRIVATE KEY", Bytes: keyDER},
	} {
		require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
	}
	roots = x509.NewCertPool()
	roots.AddCert(cert)
	return certFile, keyFile, roots
}
