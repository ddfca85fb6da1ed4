package redlatchui

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/catalog"
	"github.com/redlatch/redlatch/lockerr"
)

const (
	tick       = time.Second
	mostNames  = 20_000 // the list reads no more
	mostOfRows = 1000   // visible rows of all viewers that each tick reads
	// Looking for all names may take a tenth of the time, so that Redis has the rest for locks.
	pause       = 10
	listTimeout = 30 * time.Second
	lockTimeout = 5 * time.Second
	pageTimeout = 10 * time.Second // of the list, for a page that loads
	showWaiters = 100              // of a queue, on the page of a lock
)

var errNoAnswer = errors.New("no answer in time")

// poller reads Redis for all viewers. Its goroutine runs while there is one.
type poller struct {
	names  *catalog.Catalog
	rdb    redis.UniversalClient
	hashes bool

	reads chan struct{} // has room for the one that reads the list

	mu       sync.Mutex
	last     *reading
	nextList time.Time // when the list may be read again
	fences   fenceLog
	viewers  map[*viewer]struct{}
	locks    map[string]*lockReading // of the pages of locks that are open
	stop     context.CancelFunc      // ends the goroutine; nil: there is none
	running  sync.WaitGroup
	closed   bool
}

// viewer is an open page. It is notified, and reads when it has time.
type viewer struct {
	news  chan struct{} // has room for one
	lock  string        // the name, on the page of a lock
	shown []string      // the names in the list that it shows; guarded by the mutex of the poller
}

// lockReading is what Redis said of one name.
type lockReading struct {
	state  catalog.State
	at     time.Time // of the last good reading; zero: there was none
	server time.Time
	err    error // why the last attempt failed
}

func newPoller(names *catalog.Catalog, rdb redis.UniversalClient, hashes bool) *poller {
	return &poller{
		names: names, rdb: rdb, hashes: hashes, reads: make(chan struct{}, 1), last: &reading{},
		viewers: map[*viewer]struct{}{}, locks: map[string]*lockReading{},
	}
}

// join adds a viewer, if there are fewer than most. The first one starts the goroutine.
func (p *poller) join(v *viewer, most int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.viewers) >= most {
		return false
	}
	p.viewers[v] = struct{}{}
	if p.stop == nil {
		var ctx context.Context
		ctx, p.stop = context.WithCancel(context.Background())
		p.running.Go(func() { p.run(ctx) })
	} else {
		v.news <- struct{}{} // it need not wait for the next reading
	}
	return true
}

// leave removes a viewer. The last one ends the goroutine.
func (p *poller) leave(v *viewer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.viewers, v)
	if len(p.viewers) == 0 && p.stop != nil {
		p.stop()
		p.stop = nil
	}
	if v.lock != "" && !p.isWatched(v.lock) {
		delete(p.locks, v.lock)
	}
}

func (p *poller) isWatched(name string) bool {
	for v := range p.viewers {
		if v.lock == name {
			return true
		}
	}
	return false
}

// show notes which rows a viewer sees. They are read at each tick.
func (p *poller) show(v *viewer, names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	v.shown = names
}

func (p *poller) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(tick)
		p.read(ctx)
		p.mu.Lock()
		for v := range p.viewers {
			select {
			case v.news <- struct{}{}:
			default: // it has not read the last news
			}
		}
		p.mu.Unlock()
	}
}

// read reads what the viewers see.
func (p *poller) read(ctx context.Context) {
	p.mu.Lock()
	lists := false
	rows, locks := map[string]bool{}, map[string]bool{}
	for v := range p.viewers {
		if v.lock != "" {
			locks[v.lock] = true
			continue
		}
		lists = true
		for _, name := range v.shown {
			if len(rows) < mostOfRows {
				rows[name] = true
			}
		}
	}
	p.mu.Unlock()
	if lists && !p.readList(ctx) {
		p.refresh(ctx, rows)
	}
	for name := range locks {
		p.readLock(ctx, name)
	}
}

// readList reads all names, if it is time to do so. It waits for another one that reads.
func (p *poller) readList(ctx context.Context) bool {
	select {
	case p.reads <- struct{}{}:
		defer func() { <-p.reads }()
	case <-ctx.Done():
		return false
	}
	begin := time.Now()
	p.mu.Lock()
	if begin.Before(p.nextList) {
		p.mu.Unlock()
		return false
	}
	p.mu.Unlock()
	reading, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	next, err := p.readAll(reading)
	p.mu.Lock()
	defer p.mu.Unlock()
	took := time.Since(begin)
	p.nextList = begin.Add(max(tick, pause*took))
	if err != nil {
		p.nextList = begin.Add(took + tick)
		if ctx.Err() == nil { // nobody has left meanwhile
			p.last = p.last.failed(err)
		}
		return true
	}
	p.last = next
	p.noteFences(next.rows, next.server)
	p.fences.forget(next.server)
	return true
}

// readAll lists the names, and reads the state of each.
func (p *poller) readAll(ctx context.Context) (*reading, error) {
	listing, err := p.names.List(ctx, catalog.Query{Limit: mostNames, Hashes: p.hashes})
	if err != nil {
		return nil, err
	}
	next := &reading{truncated: listing.Truncated, busyTruncated: listing.BusyTruncated}
	if next.rows, err = p.readRows(ctx, listing.Entries); err != nil {
		return nil, err
	}
	if next.server, err = p.rdb.Time(ctx).Result(); err != nil {
		return nil, err
	}
	next.listed = time.Now()
	for i := range next.rows {
		if err := next.rows[i].Err; err != nil {
			next.unreadable++
			next.lastError = err
		}
	}
	return next, nil
}

// readRows returns the rows of names. The error is that of Redis if it did not answer.
func (p *poller) readRows(ctx context.Context, entries []catalog.Entry) (rows []catalog.Row, err error) {
	const firstWaiter = 1 // has waited longest
	states := p.names.States(ctx, entries, firstWaiter)
	for i := range states {
		if err := states[i].Err; isOutage(err) {
			return nil, err
		}
		rows = append(rows, states[i].Rows()...)
	}
	return rows, ctx.Err()
}

// isOutage reports whether an error says nothing of one name.
func isOutage(err error) bool {
	return errors.Is(err, lockerr.ErrUnavailable) || errors.Is(err, lockerr.ErrIndeterminate) || errors.Is(err, lockerr.ErrClosed) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// refresh reads the rows that viewers see, between two readings of the list.
func (p *poller) refresh(outer context.Context, shown map[string]bool) {
	p.mu.Lock()
	last := p.last
	p.mu.Unlock()
	kinds := map[string]catalog.Kinds{}
	for i := range last.rows {
		if name := last.rows[i].Name; shown[name] {
			kinds[name] |= last.rows[i].Kind | catalog.FairQueue
		}
	}
	var entries []catalog.Entry
	for name, kind := range kinds {
		entries = append(entries, catalog.Entry{Name: name, Kinds: kind})
	}
	ctx, cancel := context.WithTimeout(outer, lockTimeout)
	defer cancel()
	fresh, err := p.readRows(ctx, entries)
	if err != nil {
		if outer.Err() == nil {
			next := last.copy()
			next.rows, next.rowsErr = last.rows, err
			p.replace(last, next)
		}
		return
	}
	next := last.copy()
	next.rowsErr = nil
	next.rows = slices.DeleteFunc(slices.Clone(last.rows), func(r catalog.Row) bool { return shown[r.Name] })
	next.rows = append(next.rows, fresh...)
	p.replace(last, next)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noteFences(fresh, next.now())
}

// replace sets the last reading, unless somebody else has read meanwhile.
func (p *poller) replace(last, next *reading) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == last {
		p.last = next
	}
}

// noteFences needs the mutex.
func (p *poller) noteFences(rows []catalog.Row, now time.Time) {
	for i := range rows {
		p.fences.note(&rows[i], now, p.isOpen(rows[i].Name))
	}
}

// isOpen reports whether somebody looks at the page of a lock. It needs the mutex.
func (p *poller) isOpen(name string) bool { return p.locks[name] != nil }

// current returns the last reading of the list.
func (p *poller) current() *reading {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// list returns a reading of the list that is as new as it may be.
func (p *poller) list(ctx context.Context) *reading {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	p.readList(ctx)
	last := p.current()
	if ctx.Err() != nil {
		return last.failed(errNoAnswer)
	}
	return last
}

// readLock reads all of one name. A viewer of its page shares the result.
func (p *poller) readLock(ctx context.Context, name string) *lockReading {
	within, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	next := &lockReading{state: p.names.State(within, name, showWaiters)}
	if isOutage(next.state.Err) {
		next.err = next.state.Err
	} else {
		next.server, next.err = p.rdb.Time(within).Result()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if next.err == nil {
		next.at = time.Now()
		for _, r := range next.state.Rows() {
			p.fences.note(&r, next.server, true)
		}
		if len(p.fences.tracks) > mostNames { // nobody opens the list, which does this too
			p.fences.forget(next.server)
		}
	} else if before := p.locks[name]; before != nil {
		next.state, next.at, next.server = before.state, before.at, before.server
	}
	if p.isWatched(name) && ctx.Err() == nil {
		p.locks[name] = next
	}
	return next
}

// lockOf returns the last reading of the page of a lock.
func (p *poller) lockOf(name string) (l *lockReading, grants []grant, since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	grants, since = p.fences.of(name)
	return p.locks[name], grants, since
}

// close ends the goroutine. No viewer joins any more.
func (p *poller) close() {
	p.mu.Lock()
	p.closed = true
	if p.stop != nil {
		p.stop()
		p.stop = nil
	}
	p.mu.Unlock()
	p.running.Wait()
}
