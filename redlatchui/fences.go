package redlatchui

import (
	"time"

	"github.com/redlatch/redlatch/internal/catalog"
	"github.com/redlatch/redlatch/internal/display"
)

// grant is a fence that the page saw.
type grant struct {
	Fence       int64 // 0: the lock has none
	Holder      string
	Description string
	Since       time.Time // zero if that is not known
	Seen, Ended time.Time // when the page saw it first, and when it was gone
}

func (g *grant) begin() time.Time {
	if g.Since.IsZero() || g.Since.After(g.Seen) {
		return g.Seen
	}
	return g.Since
}

func (g *grant) end(now time.Time) time.Time {
	if g.Ended.IsZero() {
		return now
	}
	return g.Ended
}

// fenceLog remembers the grants of each mutex that the page saw since it watches. All times
// are those of the server. It is not for concurrent use.
type fenceLog struct{ tracks map[string]*track }

type track struct {
	since, seen time.Time // the page has watched from, and to
	fence       int64
	grants      []grant // oldest first
}

const (
	// A longer pause between two readings may hide any number of grants, so the log begins anew.
	longestPause = 10 * time.Second
	// How many grants of a name are kept: more for a name whose page is open.
	grantsWatched, grantsOther = 50, 5
	descriptionLength          = 120
)

// note adds what a reading says of a mutex.
func (l *fenceLog) note(r *catalog.Row, now time.Time, watched bool) {
	if r.Err != nil || r.Kind != catalog.Mutex {
		return
	}
	t := l.tracks[r.Name]
	if t == nil || now.Sub(t.seen) > longestPause {
		t = &track{since: now, fence: r.Fence}
		if l.tracks == nil {
			l.tracks = map[string]*track{}
		}
		l.tracks[r.Name] = t
	}
	t.seen = now
	last := t.last()
	isSame := last != nil && last.Ended.IsZero() && last.Holder == r.Holder && last.Fence == r.Fence
	if last != nil && last.Ended.IsZero() && !isSame {
		last.Ended = now
	}
	switch {
	case r.Held && !r.Kept && !isSame:
		t.grants = append(t.grants, grant{Fence: r.Fence, Holder: r.Holder, Description: display.Short(r.Description, descriptionLength), Since: r.Since, Seen: now})
	case !r.Held && r.Fence > t.fence && (last == nil || last.Fence < r.Fence): // it came and went between two readings
		t.grants = append(t.grants, grant{Fence: r.Fence, Seen: now, Ended: now})
	}
	t.fence = r.Fence
	most := grantsOther
	if watched {
		most = grantsWatched
	}
	if len(t.grants) > most {
		t.grants = append([]grant(nil), t.grants[len(t.grants)-most:]...)
	}
}

func (t *track) last() *grant {
	if len(t.grants) == 0 {
		return nil
	}
	return &t.grants[len(t.grants)-1]
}

// forget drops the names that no reading has shown for a while.
func (l *fenceLog) forget(now time.Time) {
	for name, t := range l.tracks {
		if now.Sub(t.seen) > longestPause {
			delete(l.tracks, name)
		}
	}
}

// of returns a copy of the grants of a name, newest first, and since when the page watches it.
func (l *fenceLog) of(name string) (grants []grant, since time.Time) {
	t := l.tracks[name]
	if t == nil {
		return nil, time.Time{}
	}
	for i := len(t.grants) - 1; i >= 0; i-- {
		grants = append(grants, t.grants[i])
	}
	return grants, t.since
}
