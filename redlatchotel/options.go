package redlatchotel

import (
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/redlatch/redlatch/internal/telemetry"
)

// options keeps the attributes of each series, because the SDK sorts and copies them when they are
// made. There are few: every label has a small set of values.
type options struct {
	mu    sync.Mutex
	known map[telemetry.Update]measurement // by updates without a value
}

// measurement has the attributes as the two types of instruments take them.
type measurement struct {
	record []metric.RecordOption
	add    []metric.AddOption
}

func (o *options) of(u telemetry.Update, attributes func(telemetry.Update) attribute.Set) measurement {
	series := u
	series.Value = 0
	o.mu.Lock()
	defer o.mu.Unlock()
	m, isKnown := o.known[series]
	if !isKnown {
		set := metric.WithAttributeSet(attributes(u))
		m = measurement{[]metric.RecordOption{set}, []metric.AddOption{set}}
		if o.known == nil {
			o.known = map[telemetry.Update]measurement{}
		}
		o.known[series] = m
	}
	return m
}
