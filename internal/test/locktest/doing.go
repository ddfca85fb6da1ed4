package locktest

import (
	"context"
	"errors"
	"runtime"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/lockerr"
)

var errBody = errors.New("the body failed")

var doing = []property{
	{"Do holds the lock while the body runs and frees it after", func(f *fixture) {
		p, q := f.process(patient), f.process(patient)
		require.NoError(f, p.do(func(ctx context.Context) error {
			q.refused()
			return ctx.Err()
		}))
		q.free()
	}},
	{"Do returns the very error of the body", func(f *fixture) {
		p := f.process(patient)
		err := p.do(func(context.Context) error { return errBody })
		require.True(f, err == errBody, "not wrapped: %v", err) //nolint:errorlint // the very error
		f.process(patient).free()
	}},
	{"Do frees the lock when the body panics", func(f *fixture) {
		p := f.process(patient)
		require.PanicsWithValue(f, "out of paper", func() {
			_ = p.do(func(context.Context) error { panic("out of paper") })
		})
		f.process(patient).free()
	}},
	{"Do frees the lock when the body ends its goroutine", func(f *fixture) {
		p := f.process(patient)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = p.do(func(context.Context) error { runtime.Goexit(); return nil })
		}()
		receive(f, done, "the goroutine ends")
		f.process(patient).free()
	}},
	{"Do tells the body and the caller of a loss", func(f *fixture) {
		p := f.process(mortal)
		err := p.do(func(ctx context.Context) error {
			f.wipe()
			receive(f, ctx.Done(), "the body's context ends")
			require.ErrorIs(f, context.Cause(ctx), lockerr.ErrLost)
			return errBody
		})
		require.Equal(f, []error{lockerr.ErrLost}, kinds(err))
		require.ErrorIs(f, err, errBody, "the body's error shows beside it")
		var facts *lockerr.LostError
		require.ErrorAs(f, err, &facts)
	}},
	{"Do tells of a loss that a body without error did not notice", func(f *fixture) {
		p := f.process(patient)
		err := p.do(func(context.Context) error { f.wipe(); return nil })
		require.Equal(f, []error{lockerr.ErrLost}, kinds(err))
	}},
	{"Do tells of a loss once", func(f *fixture) {
		for _, says := range []func(context.Context) error{
			func(context.Context) error { return nil },
			context.Cause,
		} {
			err := f.process(mortal).do(func(ctx context.Context) error {
				f.wipe()
				<-ctx.Done()
				return says(ctx)
			})
			var facts *lockerr.LostError
			require.ErrorAs(f, err, &facts)
			require.Equal(f, facts.Error(), err.Error())
		}
	}},
	{"the body's context is a child of the caller's", func(f *fixture) {
		p := f.process(patient)
		parent, cancel := context.WithCancelCause(context.WithValue(context.Background(), valueKey{}, "kept"))
		err := p.client.Do(parent, f.name, func(ctx context.Context) error {
			require.Equal(f, "kept", ctx.Value(valueKey{}))
			cancel(errWhy)
			receive(f, ctx.Done(), "the body's context ends")
			return context.Cause(ctx)
		})
		require.True(f, err == errWhy, "unlocked in spite of the dead context: %v", err) //nolint:errorlint // the very error
		f.process(patient).free()
	}},
	{"the body's context ends with Do", func(f *fixture) {
		p := f.process(patient)
		var kept context.Context
		require.NoError(f, p.do(func(ctx context.Context) error { kept = ctx; return nil }))
		receive(f, kept.Done(), "the body's context ends")
	}},
	{"Do without the lock does not run the body", func(f *fixture) {
		p, q := f.process(patient), f.process(patient)
		h := p.lock()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		err := q.client.Do(ctx, f.name, func(context.Context) error {
			f.Error("the body runs")
			return nil
		})
		require.Empty(f, kinds(err))
		require.ErrorIs(f, err, context.Canceled)
		p.unlock(h)
	}},
	{"TryDo runs the body under a free lock and frees it", func(f *fixture) {
		p, q := f.process(patient), f.process(patient)
		err := p.client.TryDo(context.Background(), f.name, func(context.Context) error {
			q.refused()
			return errBody
		})
		require.True(f, err == errBody, "the very error: %v", err) //nolint:errorlint // the very error
		q.free()
	}},
	{"TryDo says who holds the lock, and does not run the body", func(f *fixture) {
		p, q := f.process(patient), f.process(patient)
		h := p.lock()
		err := q.client.TryDo(context.Background(), f.name, func(context.Context) error {
			f.Error("the body runs")
			return nil
		})
		require.Equal(f, []error{lockerr.ErrNotAcquired}, kinds(err))
		var facts *lockerr.NotAcquiredError
		require.ErrorAs(f, err, &facts)
		require.Equal(f, f.name, facts.Name)
		p.unlock(h)
		q.free()
	}},
}

func (p *process) do(body func(ctx context.Context) error) error {
	return p.client.Do(context.Background(), p.f.name, body)
}
