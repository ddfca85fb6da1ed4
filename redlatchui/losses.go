package redlatchui

import (
	"context"
	"sync"
	"time"

	"github.com/redlatch/redlatch/event"
)

// Losses counts the locks and permits that clients of this program lost in the last hour. It is an
// observer:
//
//	losses := redlatchui.NewLosses()
//	locks, err := redlatch.New(rdb, redlatch.WithObserver(losses))
//	page, err := redlatchui.New(rdb, locks, redlatchui.WithLosses(losses))
//
// It knows the losses of the clients that it observes, and not those of other processes.
type Losses struct {
	mu      sync.Mutex
	minutes [minutes]minuteCount
}

const minutes = 60

type minuteCount struct {
	minute int64 // since 1970
	count  int
}

// NewLosses makes an observer without losses.
func NewLosses() *Losses { return &Losses{} }

// Observe implements event.Observer.
func (l *Losses) Observe(_ context.Context, e event.Event) {
	if e.Kind != event.Lost {
		return
	}
	minute := e.Time.Unix() / 60
	l.mu.Lock()
	defer l.mu.Unlock()
	slot := &l.minutes[((minute%minutes)+minutes)%minutes]
	if slot.minute > minute {
		return // it came an hour late
	}
	if slot.minute < minute {
		*slot = minuteCount{minute: minute}
	}
	slot.count++
}

// LastHour returns the number of losses in the last sixty minutes, with the one that has begun.
func (l *Losses) LastHour() int {
	now := time.Now().Unix() / 60
	l.mu.Lock()
	defer l.mu.Unlock()
	sum := 0
	for _, slot := range l.minutes {
		if slot.minute > now-minutes && slot.minute <= now {
			sum += slot.count
		}
	}
	return sum
}
