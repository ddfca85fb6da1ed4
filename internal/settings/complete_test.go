package settings

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/lockerr"
)

// The documentation of the options promises these.
func TestDefaults(t *testing.T) {
	s := Default
	require.NoError(t, s.Complete())
	require.Equal(t, Lock{
		Lease: 30 * time.Second, RenewInterval: 10 * time.Second, DefaultInterval: true, Renew: true,
		PollInterval: 2 * time.Second, LocalHandoffTime: 10 * time.Millisecond, SelfDeadlockAfter: 10 * time.Second, Heartbeat: 5 * time.Second,
	}, s)
}

// Each setting is good up to its bounds, and one step beyond it is refused.
func TestSettingsHaveBounds(t *testing.T) {
	const year = 365 * 24 * time.Hour
	lease := func(s *Lock, d time.Duration) { s.Lease = d }
	every := func(s *Lock, d time.Duration) { s.DefaultInterval, s.RenewInterval = false, d }
	maxHold := func(s *Lock, d time.Duration) { s.MaxHold = d }
	poll := func(s *Lock, d time.Duration) { s.PollInterval = d }
	heartbeat := func(s *Lock, d time.Duration) { s.Heartbeat = d }
	warning := func(s *Lock, d time.Duration) { s.SelfDeadlockAfter = d }
	wait := func(s *Lock, d time.Duration) { s.WaitTimeout = d }
	replicas := func(s *Lock, d time.Duration) { s.Replicas, s.ReplicaTimeout = 1, d }
	for _, c := range []struct {
		what string
		set  func(*Lock, time.Duration)
		good []time.Duration
		bad  []time.Duration
	}{
		{
			"lease", lease,
			[]time.Duration{100 * time.Millisecond, 101 * time.Millisecond, year},
			[]time.Duration{-time.Second, 0, 99 * time.Millisecond, time.Second + 1, time.Second + time.Microsecond, year + time.Millisecond},
		},
		{
			"renewal interval", every,
			[]time.Duration{10 * time.Millisecond, 10*time.Millisecond + 1, 15 * time.Second},
			[]time.Duration{-time.Second, 0, 1, 10*time.Millisecond - 1, 15*time.Second + 1},
		},
		{
			"maximum hold time", maxHold,
			[]time.Duration{0, 100 * time.Millisecond, time.Hour, 10 * year},
			[]time.Duration{-1, 1, 100*time.Millisecond - 1},
		},
		{
			"poll bound", poll,
			[]time.Duration{10 * time.Millisecond, time.Hour},
			[]time.Duration{-1, 0, 1, 10*time.Millisecond - 1},
		},
		{
			"heartbeat", heartbeat,
			[]time.Duration{100 * time.Millisecond, 101 * time.Millisecond, 24 * time.Hour},
			[]time.Duration{-time.Second, 0, 99 * time.Millisecond, time.Second + 1, time.Second + time.Microsecond, 24*time.Hour + time.Millisecond},
		},
		{
			"self-deadlock warning", warning,
			[]time.Duration{0, 10 * time.Millisecond, time.Hour},
			[]time.Duration{-1, 1, 10*time.Millisecond - 1},
		},
		{
			"wait timeout", wait,
			[]time.Duration{0, time.Millisecond, time.Millisecond + 1, 10 * year},
			[]time.Duration{-time.Second, 1, time.Millisecond - 1},
		},
		{
			"replica timeout", replicas,
			[]time.Duration{time.Millisecond, 2 * time.Millisecond, 15 * time.Second},
			[]time.Duration{-time.Second, 0, 1, time.Millisecond + 1, 15*time.Second + time.Millisecond},
		},
	} {
		for _, value := range c.good {
			s := Default
			c.set(&s, value)
			require.NoError(t, s.Complete(), "%s of %v", c.what, value)
		}
		for _, value := range c.bad {
			s := Default
			c.set(&s, value)
			refused(t, s, c.what, value)
		}
	}
	s := Default
	s.LocalHandoffTime = 0
	require.NoError(t, s.Complete())
	s.LocalHandoffTime = -1
	refused(t, s, "local handoff time", time.Duration(-1))
	s = Default
	s.ReplicaTimeout = -1
	require.NoError(t, s.Complete(), "it means nothing without replicas")
	s.Replicas = -1
	refused(t, s, "number of replicas", -1)
}

func refused(t *testing.T, s Lock, what string, value any) {
	t.Helper()
	var bad *lockerr.ConfigError
	require.ErrorAs(t, s.Complete(), &bad, "%s of %v", what, value)
	require.Equal(t, what, bad.Setting)
	require.Equal(t, value, bad.Value)
	require.NotEmpty(t, bad.Reason)
}

func TestAnEarlierErrorIsTheErrorOfTheSettings(t *testing.T) {
	early := errors.New("a bad option")
	s := Lock{Err: early}
	require.Equal(t, early, s.Complete(), "and not that the lease is too short")
}

func TestARenewalIntervalThatWasSetStays(t *testing.T) {
	s := Default
	s.DefaultInterval, s.RenewInterval = false, time.Second
	require.NoError(t, s.Complete())
	require.Equal(t, time.Second, s.RenewInterval)
}

func TestGrantsAreCertainForTheLeaseLessItsMargin(t *testing.T) {
	s := Lock{Lease: 10 * time.Second, Heartbeat: 5 * time.Second}
	require.Equal(t, 9*time.Second, s.Window())
	require.Equal(t, 4500*time.Millisecond, s.QueueWindow(), "of the heartbeat, which is shorter")
	s.Lease = time.Second
	require.Equal(t, 900*time.Millisecond, s.QueueWindow(), "of the lease, which is shorter")
}

func TestACommandMayTakeAThirdOfTheLeaseWithinBounds(t *testing.T) {
	for lease, most := range map[time.Duration]time.Duration{
		MinLease:               50 * time.Millisecond,
		300 * time.Millisecond: 100 * time.Millisecond,
		3 * time.Second:        time.Second,
		time.Minute:            2 * time.Second,
	} {
		require.Equal(t, most, (&Lock{Lease: lease}).AttemptTimeout(), lease)
	}
	require.Equal(t, 2*time.Second, DefaultAttemptTimeout, "of commands that belong to no lease")
}
