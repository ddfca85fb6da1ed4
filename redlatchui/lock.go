package redlatchui

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/catalog"
	"github.com/redlatch/redlatch/internal/display"
	"github.com/redlatch/redlatch/lock"
)

type lockPage struct {
	head
	status
	Heading   string
	Done      string // what an action has done
	IsUnknown bool   // nobody has used the name lately
	Failure   string // why the state could not be read
	Mutex     *mutexView
	Semaphore *semaphoreView
}

type mutexView struct {
	State, Class         string
	ID, Description      string
	Holds, Fence         string
	Since, Held, Lease   string
	Listeners            string
	Release              string // the link
	Queue                queueView
	Grants               []grantView
	Strip                []segment
	Watched              string
	StripFrom, StripSpan string
}

type queueView struct {
	Label   string
	Length  int
	More    int
	Units   bool
	Waiters []waiterView
}

type waiterView struct {
	Position        int
	ID, Description string
	Units           int
	Waits           string
	Heartbeat       string
	IsCrashed       bool
	Remove          string // the link
}

type semaphoreView struct {
	InUse, Limit, Declared int
	AtLimit                bool
	Bar                    *bar
	Permits                []permitView
	More                   int
	Resize                 string // the link
	Queue                  queueView
}

type permitView struct {
	ID, Description    string
	Units              int
	Since, Held, Lease string
	IsKept             bool
	Bar                *bar
	Release            string // the link
}

type grantView struct {
	Fence, ID, Description string
	Since, Held            string
	IsNow                  bool
}

// done are the results of actions that the page of a lock confirms. A link can name only these.
// They do not say that nothing was changed: after a lost answer the client asks again, and finds
// nothing to do.
var done = map[string]string{
	"released":    "Released. The old holder works on until its next renewal.",
	"not-held":    "That holder does not have it any more.",
	"removed":     "Removed. The call of the waiter fails.",
	"not-waiting": "That waiter is not in the queue any more. It may have got the lock.",
	"resized":     "The limit was changed.",
	"not-used":    "Nobody has used the semaphore lately. The next program sets its limit.",
}

func (h *Handler) lockPage(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("name")
	if name == "" {
		h.say(w, r, http.StatusBadRequest, "The address has no name of a lock.")
		return
	}
	l := h.poller.readLock(r.Context(), name)
	_, grants, since := h.poller.lockOf(name)
	_, allowed := h.allows(r)
	page := h.newLockPage(name, l, grants, since, allowed)
	page.Done = done[r.URL.Query().Get("done")]
	h.pages.write(w, r, http.StatusOK, "lock", page)
}

func (h *Handler) newLockPage(name string, l *lockReading, grants []grant, since time.Time, actions bool) *lockPage {
	p := &lockPage{head: h.head(display.Short(name, 60), "lock/events?"+url.Values{"name": {name}}.Encode()), Heading: display.Safe(name)}
	p.status = newStatus(l.err, l.at)
	if l.at.IsZero() {
		return p
	}
	s := &l.state
	if s.Err != nil {
		p.Failure = display.Safe(s.Err.Error())
		return p
	}
	now := l.server.Add(time.Since(l.at))
	p.IsUnknown = s.Kinds == 0
	link := func(action, id string) string {
		if !actions {
			return ""
		}
		return "actions/" + action + "?" + url.Values{"name": {name}, "id": {id}}.Encode()
	}
	if s.Kinds.Has(catalog.Mutex) {
		p.Mutex = newMutexView(s, now, link)
		p.Mutex.addGrants(grants, since, now)
	}
	if s.Kinds.Has(catalog.Semaphore) {
		p.Semaphore = newSemaphoreView(s, now, link)
	}
	return p
}

func newMutexView(s *catalog.State, now time.Time, link func(action, id string) string) *mutexView {
	info := &s.Lock
	m := &mutexView{State: "free", Class: "free", Queue: newQueueView("Queue", s.Waiters, s.Waiting, now, link)}
	if info.Fence != 0 {
		m.Fence = strconv.FormatInt(info.Fence, 10)
	}
	if s.Subscribers >= 0 {
		m.Listeners = plural(s.Subscribers, "client") + ", for a release"
	}
	if !info.Held() {
		return m
	}
	m.State, m.Class = "held", "held"
	m.ID, m.Description = display.Safe(info.Holder), display.Safe(info.Description)
	m.Lease, m.Release = display.LeaseLeft(info.Remaining), link(actionRelease, info.Holder)
	if info.IsKept() {
		m.State, m.Class = "nobody holds it, and Redis keeps it", "kept"
	} else {
		m.Holds = strconv.Itoa(info.Holds)
	}
	if !info.Since.IsZero() {
		m.Since, m.Held = clock(info.Since), display.AgeSince(info.Since, now)
	}
	return m
}

func newQueueView(label string, waiters []lock.Waiter, length int, now time.Time, link func(action, id string) string) queueView {
	q := queueView{Label: label, Length: length, More: max(length-len(waiters), 0)}
	for i, w := range waiters {
		v := waiterView{
			Position: i + 1, ID: display.Safe(w.ID), Description: display.Safe(w.Description), Units: w.Units, Waits: display.AgeSince(w.Since, now),
			Heartbeat: display.Age(w.HeartbeatLeft) + " left", Remove: link(actionRemove, w.ID),
		}
		if w.HeartbeatLeft <= 0 {
			v.Heartbeat, v.IsCrashed = "crashed", true
		}
		q.Waiters = append(q.Waiters, v)
	}
	return q
}

func newSemaphoreView(s *catalog.State, now time.Time, link func(action, id string) string) *semaphoreView {
	info := &s.Permits
	v := &semaphoreView{InUse: info.InUse, Limit: info.Limit, AtLimit: info.Limit > 0 && info.InUse >= info.Limit, Resize: link(actionResize, "")}
	if info.Declared != info.Limit {
		v.Declared = info.Declared
	}
	v.Queue = newQueueView("Queue for permits", s.PermitWaiters, info.Waiting, now, link)
	v.Queue.Units = true
	v.Bar = &bar{Label: fmt.Sprintf("%d of %d units in use", info.InUse, info.Limit)}
	shown, whole := 0, max(info.Limit, info.InUse, 1)
	for i := range info.Holders {
		h := &info.Holders[i]
		p := permitView{
			ID: display.Safe(h.ID), Description: display.Safe(h.Description), Units: h.Units, Held: display.AgeSince(h.Since, now), Lease: display.LeaseLeft(h.Remaining),
			IsKept: h.IsKept(), Release: link(actionRelease, h.ID), Bar: newBar(h.Units, whole),
		}
		if !h.Since.IsZero() {
			p.Since = clock(h.Since)
		}
		v.Bar.add(shown, h.Units, whole)
		shown += h.Units
		v.Permits = append(v.Permits, p)
	}
	if rest := info.InUse - shown; rest > 0 {
		v.More = rest
		v.Bar.add(shown, rest, whole)
	}
	return v
}

// addGrants adds the timeline of fences. All times are those of the server.
func (m *mutexView) addGrants(grants []grant, since, now time.Time) {
	if since.IsZero() {
		return
	}
	m.Watched = clock(since)
	for _, g := range grants {
		v := grantView{Fence: "none", ID: display.Safe(g.Holder), Description: g.Description, IsNow: g.Ended.IsZero(), Since: clock(g.begin()), Held: display.AgeSince(g.begin(), g.end(now))}
		if g.Fence != 0 {
			v.Fence = strconv.FormatInt(g.Fence, 10)
		}
		if g.Holder == "" {
			v.ID, v.Held = "unknown: it came and went between two readings", ""
		}
		m.Grants = append(m.Grants, v)
	}
	m.addStrip(grants, now)
}

// segment is a grant in the picture of the timeline.
type segment struct {
	X, Width float64
	Class    string
	Title    string
}

const stripWidth = 1000

func (m *mutexView) addStrip(grants []grant, now time.Time) {
	if len(grants) == 0 {
		return
	}
	first := grants[len(grants)-1].begin()
	span := max(now.Sub(first), time.Second)
	m.StripFrom, m.StripSpan = clock(first), display.Age(span)
	for i, g := range grants {
		x := float64(g.begin().Sub(first)) / float64(span) * stripWidth
		width := float64(g.end(now).Sub(g.begin())) / float64(span) * stripWidth
		s := segment{X: min(max(x, 0), stripWidth-2), Class: "past", Title: "fence " + strconv.FormatInt(g.Fence, 10)}
		s.Width = min(max(width-1, 2), stripWidth-s.X)
		switch {
		case g.Ended.IsZero():
			s.Class = "now"
		case (len(grants)-i)%2 == 0:
			s.Class = "past other"
		}
		m.Strip = append(m.Strip, s)
	}
}
