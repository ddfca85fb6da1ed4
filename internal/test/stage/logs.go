package stage

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
)

// Logbook keeps the log, one line for each record.
type Logbook struct {
	mu   sync.Mutex
	said []string
}

func (l *Logbook) Enabled(context.Context, slog.Level) bool { return true }

func (l *Logbook) WithAttrs([]slog.Attr) slog.Handler { return l }

func (l *Logbook) WithGroup(string) slog.Handler { return l }

func (l *Logbook) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", r.Level, r.Message)
	r.Attrs(func(a slog.Attr) bool { fmt.Fprintf(&b, " %s", a); return true })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said = append(l.said, b.String())
	return nil
}

// Lines are the lines so far.
func (l *Logbook) Lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.said...)
}

// Records keeps the log records.
type Records chan slog.Record

// NewRecords makes a log with room for all records of a test.
func NewRecords() Records { return make(Records, 10_000) }

func (r Records) Enabled(context.Context, slog.Level) bool { return true }

func (r Records) WithAttrs([]slog.Attr) slog.Handler { return r }

func (r Records) WithGroup(string) slog.Handler { return r }

func (r Records) Handle(_ context.Context, record slog.Record) error { r <- record; return nil }

// Option makes a client write this log.
func (r Records) Option() redlatch.Option { return redlatch.WithLogger(slog.New(r)) }

// Await returns the next record with that message.
func (r Records) Await(t testing.TB, message string) slog.Record {
	t.Helper()
	for {
		if record := Within(t, r, "a record: "+message); strings.Contains(record.Message, message) {
			return record
		}
	}
}

// LogLines is a log that a test can read.
type LogLines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *LogLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns everything that was logged.
func (l *LogLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Collected runs the garbage collector until the log reports a dropped hold of the lock. It returns
// the message and the attributes of the report. Earlier reports are about other locks, and fail the
// test.
func (r Records) Collected(t testing.TB, name string) map[string]string {
	t.Helper()
	for end := time.Now().Add(Guard); time.Now().Before(end); {
		runtime.GC()
		select {
		case record := <-r:
			if !strings.Contains(record.Message, dropped) {
				continue
			}
			require.Equal(t, slog.LevelError, record.Level)
			attrs := map[string]string{"message": record.Message}
			record.Attrs(func(a slog.Attr) bool { attrs[a.Key] = a.Value.String(); return true })
			require.Equal(t, name, attrs["lock"], "another hold was reported")
			return attrs
		case <-time.After(time.Millisecond): // the clean-up has a goroutine of its own
		}
	}
	_, gone := collectedHandles.Load(name)
	require.FailNow(t, "no report of "+name, "the runtime has collected a handle of it: %v", gone)
	return nil
}
