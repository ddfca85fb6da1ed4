package redlatchotel

import (
	"context"
	"slices"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/telemetry"
	"github.com/redlatch/redlatch/lockerr"
)

// TraceOption is an option of NewTraces.
type TraceOption interface{ applyTraces(*traceConfig) }

type traceConfig struct {
	provider trace.TracerProvider
	name     func(string) string
}

type traceOption func(*traceConfig)

func (o traceOption) applyTraces(c *traceConfig) { o(c) }

// WithTracerProvider sets the provider of the spans. Defaults to otel.GetTracerProvider.
func WithTracerProvider(p trace.TracerProvider) TraceOption {
	return traceOption(func(c *traceConfig) { c.provider = p })
}

// WithSpanName adds the attribute redlatch.name to spans. name maps the name of a lock to its
// value, for instance to hide ids of users. The value of an empty text is left out. Names may be
// many here, unlike those of WithNameLabel. name is called for each span, concurrently for several
// clients. Defaults to nil, which means no such attribute.
func WithSpanName(name func(name string) string) TraceOption {
	return traceOption(func(c *traceConfig) { c.name = name })
}

// Names of spans.
const (
	waitSpan = "redlatch.wait"
	holdSpan = "redlatch.hold"
)

// Attributes of spans and of their events.
const (
	primitiveKey = attribute.Key("redlatch.primitive")
	outcomeKey   = attribute.Key("redlatch.outcome")
	sourceKey    = attribute.Key("redlatch.source")
	tryKey       = attribute.Key("redlatch.try")
	unitsKey     = attribute.Key("redlatch.units")
	fenceKey     = attribute.Key("redlatch.fence")
	positionKey  = attribute.Key("redlatch.queue.position")
	lengthKey    = attribute.Key("redlatch.queue.length")
	causeKey     = attribute.Key("redlatch.cause")
	reasonKey    = attribute.Key("redlatch.reason")
	droppedKey   = attribute.Key("redlatch.events_dropped")
	nameKey      = attribute.Key("redlatch.name")
	errorTypeKey = attribute.Key("error.type")
)

// maxMoments bounds the events of a span. A long wait may have very many.
const maxMoments = 64

// Traces makes spans of the events of clients. It is an observer, see redlatch.WithObserver. One of
// them serves all clients of a program. NewTraces makes it.
type Traces struct {
	tracer trace.Tracer
	name   func(string) string

	mu    sync.Mutex
	waits map[wait]*moments // of waits that go on, and had a place or were woken
	holds map[string]*hold  // of grants that have not ended, by their ids
	early []string          // ids of grants that were lost before anybody knew of them
}

type wait struct {
	client string
	number uint64
}

// moments is what happened in a wait. The span of the wait begins when the wait ends, so that no
// span stays open if events are dropped.
type moments struct {
	primitive event.Primitive
	first     event.Event // the first place in the queue
	all       []event.Event
}

type hold struct {
	client    string
	primitive event.Primitive
	span      trace.Span
}

// NewTraces makes an observer for traces. The error is a *lockerr.ConfigError that names the option
// which is not usable.
func NewTraces(options ...TraceOption) (*Traces, error) {
	config := traceConfig{provider: otel.GetTracerProvider()}
	for _, option := range options {
		if option == nil {
			return nil, errNilOption
		}
		option.applyTraces(&config)
	}
	if config.provider == nil {
		return nil, &lockerr.ConfigError{Setting: "tracer provider", Option: "WithTracerProvider", Value: nil, Reason: "must not be nil"}
	}
	return &Traces{tracer: config.provider.Tracer(scope), name: config.name, waits: map[wait]*moments{}, holds: map[string]*hold{}}, nil
}

// Observe implements event.Observer.
func (t *Traces) Observe(ctx context.Context, e event.Event) {
	switch e.Kind {
	case event.Queued, event.Woken:
		t.note(e)
	case event.WaitEnded:
		t.waitEnded(ctx, e)
	case event.Released, event.Lost:
		t.holdEnded(e)
	case event.Leaked:
		if h := t.hold(e.ID); h != nil {
			h.span.AddEvent("redlatch.leaked", trace.WithTimestamp(e.Time))
		}
	case event.Dropped:
		t.forget(e)
	}
}

// note keeps a moment of a wait until the wait ends.
func (t *Traces) note(e event.Event) {
	key := wait{e.Client, e.Wait}
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.waits[key]
	if m == nil {
		m = &moments{primitive: e.Primitive}
		t.waits[key] = m
	}
	if e.Kind == event.Queued && m.first.Kind == 0 {
		m.first = e
	}
	if len(m.all) < maxMoments {
		m.all = append(m.all, e)
	}
}

func (t *Traces) takeMoments(e event.Event) *moments {
	key := wait{e.Client, e.Wait}
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.waits[key]
	delete(t.waits, key)
	return m
}

// waitEnded makes the span of the wait, and begins that of the hold.
func (t *Traces) waitEnded(ctx context.Context, e event.Event) {
	m := t.takeMoments(e)
	if e.Result == event.Acquired && e.Source == event.Reentry {
		return
	}
	attributes := append(t.attributes(e), tryKey.Bool(e.Try), outcomeKey.String(e.Result.String()))
	if e.Result == event.Acquired {
		attributes = append(attributes, sourceKey.String(e.Source.String()))
		attributes = appendFence(attributes, e)
	} else {
		attributes = append(attributes, errorTypeKey.String(e.Result.String()))
	}
	if m != nil && m.first.Kind != 0 {
		attributes = append(attributes, positionKey.Int(m.first.Position), lengthKey.Int(m.first.Length))
	}
	_, span := t.tracer.Start(ctx, waitSpan, trace.WithTimestamp(e.Time.Add(-e.Duration)), trace.WithAttributes(attributes...))
	m.addTo(span)
	if isFailure(e) {
		span.SetStatus(codes.Error, e.Result.String())
	}
	if e.Result == event.Acquired {
		t.beginHold(ctx, e, span)
	}
	span.End(trace.WithTimestamp(e.Time))
}

// isFailure reports whether a wait failed. That somebody else has the lock, or that the caller has
// left, is normal.
func isFailure(e event.Event) bool {
	return !slices.Contains([]event.Result{event.Acquired, event.Busy, event.Cancelled, event.Closed}, e.Result)
}

func (m *moments) addTo(span trace.Span) {
	if m == nil || !span.IsRecording() {
		return
	}
	for _, e := range m.all {
		if e.Kind == event.Queued {
			span.AddEvent("redlatch.queued", trace.WithTimestamp(e.Time), trace.WithAttributes(positionKey.Int(e.Position), lengthKey.Int(e.Length)))
		} else {
			span.AddEvent("redlatch.woken", trace.WithTimestamp(e.Time), trace.WithAttributes(causeKey.String(e.Result.String())))
		}
	}
}

// beginHold begins the span of a grant, beside that of its wait.
func (t *Traces) beginHold(ctx context.Context, e event.Event, wait trace.Span) {
	t.mu.Lock()
	i := slices.Index(t.early, e.ID)
	if i >= 0 {
		t.early = slices.Delete(t.early, i, i+1)
	}
	t.mu.Unlock()
	if i >= 0 {
		return // it has ended
	}
	attributes := appendFence(append(t.attributes(e), sourceKey.String(e.Source.String())), e)
	_, span := t.tracer.Start(ctx, holdSpan, trace.WithTimestamp(e.Time), trace.WithAttributes(attributes...), trace.WithLinks(trace.Link{SpanContext: wait.SpanContext()}))
	t.mu.Lock()
	defer t.mu.Unlock()
	t.holds[e.ID] = &hold{client: e.Client, primitive: e.Primitive, span: span}
}

func (t *Traces) hold(id string) *hold {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.holds[id]
}

// maxEarly is how many losses are kept that came before their grants.
const maxEarly = 64

// holdEnded ends the span of a grant. A loss at nearly the same time as its grant may be observed
// first.
func (t *Traces) holdEnded(e event.Event) {
	t.mu.Lock()
	h := t.holds[e.ID]
	delete(t.holds, e.ID)
	if h == nil {
		if len(t.early) == maxEarly {
			t.early = slices.Delete(t.early, 0, 1)
		}
		t.early = append(t.early, e.ID)
	}
	t.mu.Unlock()
	if h == nil {
		return
	}
	if e.Kind == event.Lost {
		h.span.SetAttributes(outcomeKey.String("lost"), reasonKey.String(e.Result.String()), errorTypeKey.String("lost"))
		h.span.SetStatus(codes.Error, "lost")
	} else {
		h.span.SetAttributes(outcomeKey.String("released"))
		if e.Err != nil {
			h.span.SetAttributes(errorTypeKey.String(telemetry.ErrorType(e.Err)))
		}
	}
	h.span.End(trace.WithTimestamp(e.Time))
}

// forget ends what may have ended already, because events were dropped.
func (t *Traces) forget(e event.Event) {
	var ended []trace.Span
	t.mu.Lock()
	for key, m := range t.waits {
		if key.client == e.Client && m.primitive == e.Primitive {
			delete(t.waits, key)
		}
	}
	for id, h := range t.holds {
		if h.client == e.Client && h.primitive == e.Primitive {
			delete(t.holds, id)
			ended = append(ended, h.span)
		}
	}
	t.mu.Unlock()
	for _, span := range ended {
		span.SetAttributes(droppedKey.Bool(true))
		span.End(trace.WithTimestamp(e.Time))
	}
}

func (t *Traces) attributes(e event.Event) []attribute.KeyValue {
	attributes := make([]attribute.KeyValue, 0, 8)
	attributes = append(attributes, primitiveKey.String(e.Primitive.String()))
	if e.Primitive == event.Semaphore {
		attributes = append(attributes, unitsKey.Int(e.Units))
	}
	if name := t.nameOf(e.Name); name != "" {
		attributes = append(attributes, nameKey.String(name))
	}
	return attributes
}

// nameOf returns the name for spans. A panic of the program's function leaves only the name out.
func (t *Traces) nameOf(name string) (shown string) {
	if t.name == nil {
		return ""
	}
	defer func() {
		if recover() != nil {
			shown = ""
		}
	}()
	return t.name(name)
}

func appendFence(to []attribute.KeyValue, e event.Event) []attribute.KeyValue {
	if e.Fence == 0 {
		return to // of a semaphore
	}
	return append(to, fenceKey.Int64(e.Fence))
}
