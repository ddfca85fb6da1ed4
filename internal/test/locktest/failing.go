package locktest

import (
	"context"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/lockerr"
)

var failing = []property{
	{"every use of a bad name says so", func(f *fixture) {
		p := f.process(patient)
		for _, name := range []string{"", "a}b", "a{b", "{}x", "{a}{b}", "tab\tname", "\xff", strings.Repeat("x", 513)} {
			before := p.sent.sent.Load()
			_, err := p.client.Lock(context.Background(), name)
			f.badConfig(err)
			_, err = p.client.TryLock(context.Background(), name)
			f.badConfig(err)
			f.badConfig(p.client.Do(context.Background(), name, func(context.Context) error { return nil }))
			require.Equal(f, before, p.sent.sent.Load(), "redis is not asked")
		}
	}},
	{"a good name works, however it looks", func(f *fixture) {
		p := f.process(patient)
		for _, name := range []string{"{a}b:" + f.name, f.name + " with spaces", f.name + ":übung:锁", f.name + strings.Repeat("x", 512-len(f.name))} {
			h, err := p.client.TryLock(context.Background(), name)
			require.NoError(f, err)
			p.unlock(h)
		}
	}},
	{"a redis client that was closed is neither busy nor lost", func(f *fixture) {
		p := f.process(patient)
		p.die()
		_, err := p.tryLock(context.Background())
		require.Equal(f, []error{lockerr.ErrClosed}, kinds(err))
		_, err = p.client.Lock(context.Background(), f.name)
		require.Equal(f, []error{lockerr.ErrClosed}, kinds(err))
	}},
}

func (f *fixture) badConfig(err error) {
	f.Helper()
	require.Equal(f, []error{lockerr.ErrConfig}, kinds(err))
	var facts *lockerr.ConfigError
	require.ErrorAs(f, err, &facts)
	require.NotEmpty(f, facts.Reason)
}
