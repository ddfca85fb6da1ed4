// Package catalog lists the names of locks and semaphores that Redis knows, and reads their state,
// for the command line and for pages that show locks.
//
// Redis has no list of all locks. [Catalog.List] looks for keys that only redlatch or Redisson
// makes: fences, queues and permits. So it does not find:
//
//   - a lock of Redisson's RLock, which has no fence. Only RFencedLock has one. [Query.Hashes] finds
//     it as well. It looks at every hash of the database, so it costs more.
//   - a name that nobody has used for longer than Redis keeps its fence (redlatch.WithFenceRetention).
//     Nobody holds it: a client that holds a lock has Redis keep the fence.
package catalog

import (
	"context"
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
	// Limit ends the search when it has found so many names, whichever these are. 0 means 10,000.
	Limit int
	// Hashes also looks at all hashes of the database whose name matches, and lists those that are
	// locks.
	Hashes bool
}

// Listing is the result of a search.
type Listing struct {
	Entries   []Entry // sorted by name
	Truncated bool    // the search ended at the limit, so there may be more names
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
// the network said, or the error of ctx.
func (c *Catalog) List(ctx context.Context, q Query) (Listing, error) {
	if err := checkGlob(q.Pattern); err != nil {
		return Listing{}, err
	}
	s := &search{prefix: c.prefix, query: q, found: map[string]Kinds{}}
	if s.query.Limit <= 0 {
		s.query.Limit = defaultLimit
	}
	err := forEachMaster(ctx, c.rdb, func(ctx context.Context, node redis.Cmdable) error {
		if err := s.scanKeys(ctx, node); err != nil || !q.Hashes {
			return err
		}
		return s.scanHashes(ctx, node)
	})
	if err != nil {
		return Listing{}, err
	}
	listing := Listing{Truncated: s.full}
	for name, kinds := range s.found {
		listing.Entries = append(listing.Entries, Entry{name, kinds})
	}
	slices.SortFunc(listing.Entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return listing, nil
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

	mu    sync.Mutex // masters are searched at the same time
	found map[string]Kinds
	full  bool
}

// scanKeys finds names by the keys that only locks have.
func (s *search) scanKeys(ctx context.Context, node redis.Cmdable) error {
	return s.scan(ctx, node, key.ScanPattern(s.prefix, s.query.Pattern), "", func(page []string) error {
		var braced []string
		for _, k := range page {
			name, kind, ok := key.Parse(k)
			if !ok {
				continue
			}
			s.add(name, kindsOf(kind))
			if kind == key.FenceKind && k == key.ForMutex("{"+name+"}").Fence {
				braced = append(braced, "{"+name+"}") // it may be the fence of this one
			}
		}
		return s.addHeld(ctx, node, braced)
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

// addHeld adds those of the names whose locks are held.
func (s *search) addHeld(ctx context.Context, node redis.Cmdable, names []string) error {
	names = slices.DeleteFunc(names, func(name string) bool { return !s.matches(name) })
	if len(names) == 0 {
		return nil
	}
	held := make([]*redis.IntCmd, len(names))
	_, err := node.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, name := range names {
			held[i] = p.Exists(ctx, name)
		}
		return nil
	})
	for i, name := range names {
		if held[i].Val() > 0 {
			s.add(name, Mutex)
		}
	}
	return err
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
				s.add(k, Mutex)
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

func (s *search) add(name string, kinds Kinds) {
	if !s.matches(name) {
		return
	}
	name = strings.TrimPrefix(name, s.prefix)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.found[name]; !known && len(s.found) >= s.query.Limit {
		s.full = true
		return
	}
	s.found[name] |= kinds
}

func (s *search) isFull() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.full
}
