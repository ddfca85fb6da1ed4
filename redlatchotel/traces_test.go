package redlatchotel_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/redlatchotel"
)

// scene is a bubble with a client that is traced, and a client of another process.
type scene struct {
	*tracetest.SpanRecorder
	provider     *sdktrace.TracerProvider
	traces       *redlatchotel.Traces
	rdb          *redis.Client
	locks, other *redlatch.Client
}

func inBubble(t *testing.T, play func(t *testing.T, s *scene), options ...redlatchotel.TraceOption) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{SpanRecorder: tracetest.NewSpanRecorder()}
		s.provider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(s.SpanRecorder))
		var err error
		s.traces, err = redlatchotel.NewTraces(append(options, redlatchotel.WithTracerProvider(s.provider))...)
		require.NoError(t, err)
		s.rdb = redistest.Bubble(t).Client()
		s.locks, err = redlatch.New(s.rdb, redlatch.WithObserver(s.traces))
		require.NoError(t, err)
		s.other, err = redlatch.New(s.rdb)
		require.NoError(t, err)
		play(t, s)
		require.NoError(t, s.locks.Close(t.Context()))
		require.NoError(t, s.other.Close(t.Context()))
		require.NoError(t, s.rdb.Close())
		synctest.Wait()
		require.Len(t, s.Started(), len(s.Ended()), "no span stays open")
	})
}

// awaitEvents waits until the observers have got all events, which come ten milliseconds late at
// most.
func awaitEvents() {
	time.Sleep(10 * time.Millisecond)
	synctest.Wait()
}

// ended returns the spans of a name that have ended, and forgets nothing.
func (s *scene) ended(name string) (spans []sdktrace.ReadOnlySpan) {
	awaitEvents()
	for _, span := range s.Ended() {
		if span.Name() == name {
			spans = append(spans, span)
		}
	}
	return spans
}

func attributes(all []attribute.KeyValue) map[string]any {
	values := map[string]any{}
	for _, a := range all {
		values[string(a.Key)] = a.Value.AsInterface()
	}
	return values
}

func TestAWaitAndAHoldHaveSpans(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *scene) {
		ctx, request := s.provider.Tracer("shop").Start(t.Context(), "request")
		taken, err := s.other.FairMutex("orders:42").Lock(t.Context())
		require.NoError(t, err)
		time.AfterFunc(3*time.Second, func() { _ = taken.Unlock(context.Background()) })
		began := time.Now()
		hold, err := s.locks.FairMutex("orders:42").Lock(ctx)
		require.NoError(t, err)
		granted := time.Now()
		waited := granted.Sub(began)
		time.Sleep(time.Minute)
		require.Len(t, s.ended("redlatch.wait"), 1)
		require.Empty(t, s.ended("redlatch.hold"))
		worked := time.Since(granted)
		require.NoError(t, hold.Unlock(t.Context()))
		wait, held := s.ended("redlatch.wait")[0], s.ended("redlatch.hold")[0]

		for _, span := range []sdktrace.ReadOnlySpan{wait, held} {
			require.Equal(t, request.SpanContext().SpanID(), span.Parent().SpanID())
			require.Equal(t, request.SpanContext().TraceID(), span.SpanContext().TraceID())
			require.Equal(t, "github.com/redlatch/redlatch/redlatchotel", span.InstrumentationScope().Name)
			require.Equal(t, codes.Unset, span.Status().Code)
		}
		require.Equal(t, began, wait.StartTime())
		require.Equal(t, waited, wait.EndTime().Sub(wait.StartTime()))
		require.Equal(t, worked, held.EndTime().Sub(held.StartTime()))
		require.Len(t, held.Links(), 1)
		require.Equal(t, wait.SpanContext(), held.Links()[0].SpanContext)
		require.Equal(t, map[string]any{
			"redlatch.primitive": "fair_mutex", "redlatch.outcome": "acquired", "redlatch.source": "redis", "redlatch.try": false,
			"redlatch.fence": hold.Fence(), "redlatch.queue.position": int64(1), "redlatch.queue.length": int64(1),
		}, attributes(wait.Attributes()))
		require.Equal(t, map[string]any{
			"redlatch.primitive": "fair_mutex", "redlatch.outcome": "released", "redlatch.source": "redis", "redlatch.fence": hold.Fence(),
		}, attributes(held.Attributes()))
		moments := wait.Events()
		require.Equal(t, "redlatch.queued", moments[0].Name)
		require.Equal(t, map[string]any{"redlatch.queue.position": int64(1), "redlatch.queue.length": int64(1)}, attributes(moments[0].Attributes))
		require.Equal(t, "redlatch.woken", moments[len(moments)-1].Name)
		require.Equal(t, map[string]any{"redlatch.cause": "message"}, attributes(moments[len(moments)-1].Attributes))
		request.End()
	})
}

// Two waits with one context and one name: each span has the place of its own wait.
func TestThePlaceIsThatOfTheWait(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *scene) {
		taken, err := s.other.Semaphore("render", 1).Acquire(t.Context(), 1)
		require.NoError(t, err)
		done := make(chan error)
		for range 3 {
			go func() {
				done <- s.locks.Semaphore("render", 1).Do(t.Context(), 1, func(context.Context) error { return nil })
			}()
			synctest.Wait()
		}
		time.Sleep(time.Second)
		require.NoError(t, taken.Release(t.Context()))
		for range 3 {
			require.NoError(t, <-done)
		}
		var positions []int64
		for _, span := range s.ended("redlatch.wait") {
			all := attributes(span.Attributes())
			require.Equal(t, int64(1), all["redlatch.units"])
			require.NotContains(t, all, "redlatch.fence")
			positions = append(positions, all["redlatch.queue.position"].(int64))
		}
		require.Equal(t, []int64{1, 2, 3}, positions)
	})
}

func TestSpansSayHowTheyEnded(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *scene) {
		ctx := t.Context()
		hold, err := s.locks.Mutex("orders:42").Lock(ctx)
		require.NoError(t, err)
		inner, err := s.locks.Mutex("orders:42").Lock(hold.Context())
		require.NoError(t, err)
		require.NoError(t, inner.Unlock(ctx))
		require.Len(t, s.ended("redlatch.wait"), 1, "a re-entry has no span")
		_, err = s.other.Mutex("orders:42").ForceRelease(ctx, "")
		require.NoError(t, err)
		require.ErrorIs(t, hold.Unlock(ctx), redlatch.ErrLost)
		lost := s.ended("redlatch.hold")[0]
		require.Equal(t, codes.Error, lost.Status().Code)
		require.Equal(t, "gone", attributes(lost.Attributes())["redlatch.reason"])
		require.Equal(t, "lost", attributes(lost.Attributes())["redlatch.outcome"])

		taken, err := s.other.Mutex("orders:42").Lock(ctx)
		require.NoError(t, err)
		_, err = s.locks.Mutex("orders:42").TryLock(ctx)
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		busy := s.ended("redlatch.wait")[1]
		require.Equal(t, codes.Unset, busy.Status().Code, "it is normal")
		require.Equal(t, map[string]any{"redlatch.primitive": "mutex", "redlatch.outcome": "busy", "redlatch.try": true, "error.type": "busy"}, attributes(busy.Attributes()))
		require.NoError(t, taken.Unlock(ctx))
	})
}

// recorded returns all text in spans.
func recorded(spans []sdktrace.ReadOnlySpan) string {
	var text strings.Builder
	for _, span := range spans {
		fmt.Fprint(&text, span.Name(), span.Attributes(), span.Status(), span.Events(), "\n")
	}
	return text.String()
}

// Names may be those of users, errors have names, and the id of an exported lock is a key to it.
func TestSpansHaveNothingSensitive(t *testing.T) {
	t.Parallel()
	secret := func(t *testing.T, s *scene) (id string) {
		hold, err := s.locks.Mutex("mail:jane@example.com").Lock(t.Context())
		require.NoError(t, err)
		_, err = s.locks.Mutex("mail:jane@example.com").TryLock(t.Context())
		require.Error(t, err)
		require.NoError(t, hold.Unlock(t.Context()))
		awaitEvents()
		return hold.ID()
	}
	inBubble(t, func(t *testing.T, s *scene) {
		id := secret(t, s)
		require.NotEmpty(t, s.Ended())
		require.NotContains(t, recorded(s.Ended()), "jane")
		require.NotContains(t, recorded(s.Ended()), id)
	})
	inBubble(t, func(t *testing.T, s *scene) {
		secret(t, s)
		require.NotContains(t, recorded(s.Ended()), "jane")
		require.Equal(t, "mail", attributes(s.Ended()[0].Attributes())["redlatch.name"])
	}, redlatchotel.WithSpanName(func(name string) string { return strings.Split(name, ":")[0] }))
}

func newTraces(t *testing.T) (*redlatchotel.Traces, *tracetest.SpanRecorder) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	traces, err := redlatchotel.NewTraces(redlatchotel.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))))
	require.NoError(t, err)
	return traces, spans
}

func grant(client, id string) event.Event {
	return event.Event{Kind: event.WaitEnded, Time: time.Now(), Client: client, Wait: 1, Primitive: event.Mutex, Result: event.Acquired, Source: event.Redis, ID: id}
}

// Nobody knows which holds have ended, so their spans end early, and those of others do not.
func TestDroppedEventsEndSpans(t *testing.T) {
	t.Parallel()
	traces, spans := newTraces(t)
	ctx := t.Context()
	traces.Observe(ctx, event.Event{Kind: event.Queued, Client: "a", Wait: 2, Primitive: event.Mutex, Position: 7})
	traces.Observe(ctx, event.Event{Kind: event.Queued, Client: "b", Wait: 2, Primitive: event.Mutex, Position: 7})
	traces.Observe(ctx, grant("a", "a:1"))
	traces.Observe(ctx, grant("b", "b:1"))
	require.Len(t, spans.Ended(), 2, "the waits")
	traces.Observe(ctx, event.Event{Kind: event.Dropped, Time: time.Now(), Client: "a", Primitive: event.Mutex, Count: 3, Held: 1})
	require.Len(t, spans.Ended(), 3)
	require.Equal(t, true, attributes(spans.Ended()[2].Attributes())["redlatch.events_dropped"])
	traces.Observe(ctx, event.Event{Kind: event.Released, Time: time.Now(), Client: "a", Primitive: event.Mutex, ID: "a:1"})
	require.Len(t, spans.Ended(), 3, "it has ended")
	traces.Observe(ctx, event.Event{Kind: event.Released, Time: time.Now(), Client: "b", Primitive: event.Mutex, ID: "b:1", Err: errors.New("secret")})
	require.Equal(t, "_OTHER", attributes(spans.Ended()[3].Attributes())["error.type"])
	for client, known := range map[string]bool{"a": false, "b": true} {
		e := grant(client, client+":2")
		e.Wait = 2
		traces.Observe(ctx, e)
		_, has := attributes(spans.Ended()[len(spans.Ended())-1].Attributes())["redlatch.queue.position"]
		require.Equal(t, known, has, client)
	}
}

func TestALossBeforeItsGrantLeavesNoSpanOpen(t *testing.T) {
	t.Parallel()
	traces, spans := newTraces(t)
	for n := range 1000 {
		traces.Observe(t.Context(), event.Event{Kind: event.Lost, Client: "a", Primitive: event.Mutex, ID: fmt.Sprint("a:", n)})
	}
	traces.Observe(t.Context(), grant("a", "a:999"))
	require.Len(t, spans.Started(), 1, "that of the wait")
	require.Len(t, spans.Ended(), 1)
}

func TestTheEventsOfASpanAreBounded(t *testing.T) {
	t.Parallel()
	traces, spans := newTraces(t)
	for range 1000 {
		traces.Observe(t.Context(), event.Event{Kind: event.Woken, Client: "a", Wait: 1, Primitive: event.Mutex, Result: event.Poll})
	}
	failed := grant("a", "")
	failed.Result, failed.Err = event.Unavailable, errors.New("secret")
	traces.Observe(t.Context(), failed)
	require.Len(t, spans.Ended()[0].Events(), 64)
	require.Equal(t, sdktrace.Status{Code: codes.Error, Description: "unavailable"}, spans.Ended()[0].Status())
}

// An exporter or a processor of the program blocks here.
type blocking struct {
	sdktrace.SpanProcessor
	unblock chan struct{}
}

func (b blocking) OnStart(context.Context, sdktrace.ReadWriteSpan) { <-b.unblock }

type panicking struct{ sdktrace.SpanProcessor }

func (panicking) OnStart(context.Context, sdktrace.ReadWriteSpan) { panic("a bug of a processor") }

func TestSpansThatFailAffectNoLock(t *testing.T) {
	t.Parallel()
	unblock := make(chan struct{})
	for name, processor := range map[string]sdktrace.SpanProcessor{
		"blocks": blocking{tracetest.NewSpanRecorder(), unblock}, "panics": panicking{tracetest.NewSpanRecorder()},
	} {
		t.Run(name, func(t *testing.T) {
			var provider trace.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(processor))
			traces, err := redlatchotel.NewTraces(redlatchotel.WithTracerProvider(provider))
			require.NoError(t, err)
			locks, err := redlatch.New(redistest.Shared(t).Client(t), redlatch.WithObserver(traces))
			require.NoError(t, err)
			for range 600 {
				require.NoError(t, locks.Mutex(t.Name()).Do(t.Context(), func(context.Context) error { return nil }))
			}
			if name == "blocks" {
				close(unblock)
			}
			require.NoError(t, locks.Close(context.Background()))
		})
	}
}
