// Package catalog lists the names of locks and semaphores that Redis knows, and reads their state,
// for the command line and for pages that show locks.
//
// Redis has no list of all locks. [Catalog.List] looks for keys that only redlatch or Redisson
// makes: fences, queues and permits. So it does not find:
//
//   - a lock of Redisson's RLock, which has no fence. Only RFencedLock has one. [Query.Hashes]
//     finds it as well. It looks at every hash of the database, so it costs more.
//   - a name that nobody has used for longer than Redis keeps its fence
//     (redlatch.WithFenceRetention). Nobody holds it: a client that holds a lock has Redis keep the
//     fence.
package catalog

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/key"
)

// Catalog finds locks for one client.
type Catalog struct {
	rdb    redis.UniversalClient
	locks  *redlatch.Client
	prefix string
}

// New returns the catalog of a client. rdb is the go-redis client that locks was made with. For a
// cluster it is a *redis.ClusterClient, or a struct with its method ForEachMaster. Any other client
// finds only the names on the node that it asks. Names have the prefix of the client, and the
// catalog shows them without it.
func New(rdb redis.UniversalClient, locks *redlatch.Client) *Catalog {
	const anyName = "x"
	return &Catalog{rdb: rdb, locks: locks, prefix: strings.TrimSuffix(locks.Mutex(anyName).Name(), anyName)}
}

// Kinds is a set of what exists under a name.
type Kinds uint8

const (
	// Mutex says that the name was locked lately, by a mutex of either kind, or has a queue.
	Mutex Kinds = 1 << iota
	// FairQueue says that somebody waits for the fair mutex of the name. Mutex is then set too.
	FairQueue
	// Semaphore says that there is a semaphore of the name.
	Semaphore
)

// Has reports whether the set has all of kinds.
func (k Kinds) Has(kinds Kinds) bool { return k&kinds == kinds }

// String returns the kinds with commas between them, such as "mutex, semaphore".
func (k Kinds) String() string { return strings.Join(k.Names(), ", ") }

// Names returns "mutex", "fair queue" and "semaphore", as far as they are in the set.
func (k Kinds) Names() (names []string) {
	for i, name := range []string{"mutex", "fair queue", "semaphore"} {
		if k.Has(1 << i) {
			names = append(names, name)
		}
	}
	return names
}

// Entry is one name.
type Entry struct {
	Name  string // as a program passes it to Client.Mutex: without the prefix of the client
	Kinds Kinds
}

// Query says which names to list.
type Query struct {
	// Pattern is a glob as KEYS of Redis has it. The whole name must match, without the prefix of
	// the client. Empty lists all names.
	Pattern string
	// Busy leaves out names that nobody holds or waits for, and of a name the mutex or the
	// semaphore that nobody holds or waits for.
	Busy bool
	// Limit is the largest number of names. 0 means 10,000. Names that somebody holds or waits for
	// come before all others, and the search ends when there are more of them than this.
	Limit int
	// Hashes also looks at all hashes of the database whose name matches, and lists those that are
	// locks.
	Hashes bool
}

// Listing is the result of a search.
type Listing struct {
	Entries   []Entry // sorted by name
	Truncated bool    // there may be more names, which the limit has left out
	// BusyTruncated says that there may be names among them that somebody holds or waits for.
	BusyTruncated bool
}

const (
	defaultLimit = 10_000
	// pageSize is how many keys one SCAN looks at. A larger page would block the server for longer.
	pageSize = 1000
)

// List looks through all keys of the server, or of all masters of a cluster, with SCAN in pages. It
// never blocks the server for longer than a page takes. A name that exists all the while is found.
// A slot of a cluster that moves to another master meanwhile may hide its names. Names of Redisson
// may be listed that redlatch refuses, for instance because of a line break.
//
// The error is a *lockerr.ConfigError if the pattern is not complete. Otherwise it is what Redis or
// the network said, or the error of ctx. The listing then has what was found until then.
func (c *Catalog) List(ctx context.Context, q Query) (Listing, error) {
	if err := checkGlob(q.Pattern); err != nil {
		return Listing{}, err
	}
	s := &search{prefix: c.prefix, query: q, busy: map[string]Kinds{}, idle: map[string]Kinds{}}
	if s.query.Limit <= 0 {
		s.query.Limit = defaultLimit
	}
	err := forEachMaster(ctx, c.rdb, func(ctx context.Context, node redis.Cmdable) error {
		if err := s.scanKeys(ctx, node); err != nil || !q.Hashes {
			return err
		}
		return s.scanHashes(ctx, node)
	})
	return s.listing(), err
}

// listing returns the busy names, and as many others as there is room for.
func (s *search) listing() Listing {
	s.mu.Lock()
	defer s.mu.Unlock()
	listing := Listing{Truncated: s.full || s.idleLeftOut, BusyTruncated: s.full}
	for name, kinds := range s.busy {
		listing.Entries = append(listing.Entries, Entry{name, kinds})
	}
	for name, kinds := range s.idle {
		if len(listing.Entries) >= s.query.Limit {
			listing.Truncated = true
			break
		}
		listing.Entries = append(listing.Entries, Entry{name, kinds})
	}
	slices.SortFunc(listing.Entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return listing
}

// forEachMaster calls visit for each server that has keys. In a cluster, the calls run at the same
// time.
func forEachMaster(ctx context.Context, rdb redis.UniversalClient, visit func(context.Context, redis.Cmdable) error) error {
	cluster, ok := rdb.(interface {
		ForEachMaster(context.Context, func(context.Context, *redis.Client) error) error
	})
	if !ok {
		return visit(ctx, rdb)
	}
	return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return visit(ctx, node) })
}

// search is one call of List.
type search struct {
	prefix string
	query  Query

	mu          sync.Mutex // masters are searched at the same time
	busy, idle  map[string]Kinds
	full        bool // there are more busy names than the limit
	idleLeftOut bool
}

// candidate is a name that a key on a page stands for.
type candidate struct {
	name, key string
	kind      key.Kind
	mayBeFree bool          // the name is only that of the key if somebody holds the lock
	answer    *redis.IntCmd // more than 0: somebody holds it; nil: somebody waits
}

// scanKeys finds names by the keys that only locks have.
func (s *search) scanKeys(ctx context.Context, node redis.Cmdable) error {
	return s.scan(ctx, node, key.ScanPattern(s.prefix, s.query.Pattern), "", func(page []string) error {
		var candidates []candidate
		for _, k := range page {
			name, kind, ok := key.Parse(k)
			if !ok {
				continue
			}
			candidates = append(candidates, candidate{name: name, key: k, kind: kind})
			if braced := "{" + name + "}"; kind == key.FenceKind && k == key.ForMutex(braced).Fence {
				candidates = append(candidates, candidate{name: braced, kind: kind, mayBeFree: true}) // it may be the fence of this one
			}
		}
		candidates = slices.DeleteFunc(candidates, func(c candidate) bool { return !s.matches(c.name) })
		return s.addCandidates(ctx, node, candidates)
	})
}

func kindsOf(kind key.Kind) Kinds {
	switch kind {
	case key.FenceKind:
		return Mutex
	case key.QueueKind:
		return Mutex | FairQueue
	default:
		return Semaphore
	}
}

// addCandidates asks which names of a page are held, because fences and permits stay for an hour or
// two after the last release. Queues exist only while somebody waits.
func (s *search) addCandidates(ctx context.Context, node redis.Cmdable, candidates []candidate) error {
	// leastEnd is less than the end of each lease, in milliseconds since 1970, and more than a
	// limit. The entries of a crashed holder count too until somebody drops them.
	const leastEnd = "1000000000000"
	pipe := node.Pipeline()
	for i := range candidates {
		switch c := &candidates[i]; c.kind {
		case key.FenceKind:
			c.answer = pipe.Exists(ctx, c.name)
		case key.PermitsKind:
			c.answer = pipe.ZCount(ctx, c.key, leastEnd, "+inf")
		}
	}
	if pipe.Len() > 0 {
		_, _ = pipe.Exec(ctx) // each command has its error
	}
	for i := range candidates {
		c := &candidates[i]
		held, isKnown := true, true
		if c.answer != nil {
			n, err := c.answer.Result()
			if err != nil && !errors.As(err, new(redis.Error)) {
				return err
			}
			// If Redis refuses, nobody knows. The name stays then, and its state says why.
			held, isKnown = n > 0 || err != nil, err == nil
		}
		if !c.mayBeFree || held && isKnown {
			s.add(c.name, kindsOf(c.kind), held)
		}
	}
	return nil
}

// scanHashes finds locks by their own key: a hash of a few fields, one of which is an acquisition.
func (s *search) scanHashes(ctx context.Context, node redis.Cmdable) error {
	pattern := "*"
	if s.prefix != "" || s.query.Pattern != "" {
		pattern = key.EscapeGlob(s.prefix) + s.query.Pattern
		if s.query.Pattern == "" {
			pattern += "*"
		}
	}
	return s.scan(ctx, node, pattern, "hash", func(page []string) error {
		page = slices.DeleteFunc(page, func(k string) bool { return !s.matches(k) || key.IsOwn(k) })
		small, err := smallHashes(ctx, node, page)
		if err != nil || len(small) == 0 {
			return err
		}
		fields := make([]*redis.StringSliceCmd, len(small))
		_, err = node.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, k := range small {
				fields[i] = p.HKeys(ctx, k)
			}
			return nil
		})
		for i, k := range small {
			if slices.ContainsFunc(fields[i].Val(), key.IsAcquisition) {
				s.add(k, Mutex, true)
			}
		}
		return ignoreWrongType(err)
	})
}

// mostFields is more than the hash of a lock has. A larger hash is something else, and reading its
// fields could block the server.
const mostFields = 8

func smallHashes(ctx context.Context, node redis.Cmdable, keys []string) (small []string, err error) {
	if len(keys) == 0 {
		return nil, nil
	}
	lengths := make([]*redis.IntCmd, len(keys))
	_, err = node.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, k := range keys {
			lengths[i] = p.HLen(ctx, k)
		}
		return nil
	})
	for i, k := range keys {
		if n := lengths[i].Val(); n > 0 && n <= mostFields {
			small = append(small, k)
		}
	}
	return small, ignoreWrongType(err)
}

// ignoreWrongType ignores the error of a key that has become something else since it was listed.
func ignoreWrongType(err error) error {
	if err != nil && redis.HasErrorPrefix(err, "WRONGTYPE") {
		return nil
	}
	return err
}

// scan calls visit for each page of keys, until there are enough names.
func (s *search) scan(ctx context.Context, node redis.Cmdable, pattern, keyType string, visit func(page []string) error) error {
	for cursor := uint64(0); !s.isFull(); {
		var page []string
		var err error
		if keyType == "" {
			page, cursor, err = node.Scan(ctx, cursor, pattern, pageSize).Result()
		} else {
			page, cursor, err = node.ScanType(ctx, cursor, pattern, pageSize, keyType).Result()
		}
		if err == nil {
			err = visit(page)
		}
		if err != nil || cursor == 0 {
			return err
		}
	}
	return nil
}

// matches reports whether a name, with the prefix, is one of those that the query asks for.
func (s *search) matches(name string) bool {
	name, ok := strings.CutPrefix(name, s.prefix)
	return ok && name != "" && (s.query.Pattern == "" || matchGlob(s.query.Pattern, name))
}

// add adds a name, or kinds to a name.
func (s *search) add(name string, kinds Kinds, isBusy bool) {
	if !s.matches(name) || !isBusy && s.query.Busy {
		return
	}
	name = strings.TrimPrefix(name, s.prefix)
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, known := s.busy[name]; known {
		s.busy[name] = before | kinds
		return
	}
	before, known := s.idle[name]
	switch {
	case isBusy && len(s.busy) >= s.query.Limit:
		s.full = true
	case isBusy:
		delete(s.idle, name)
		s.busy[name] = before | kinds
	case !known && len(s.idle) >= s.query.Limit:
		s.idleLeftOut = true
	default:
		s.idle[name] = before | kinds
	}
}

func (s *search) isFull() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.full
}
