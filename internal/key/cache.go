package key

import (
	"hash/maphash"
	"math/rand/v2"
	"strings"
	"sync/atomic"
)

// Cache keeps the keys of names that were used lately. Programs make locks where they need them,
// and building the keys of a name costs several allocations. A Cache may be used concurrently.
//
// A name may be in one of two slots. So some dozens of names hardly ever replace each other, as
// they do in a table with one slot for each name.
type Cache[K any] struct {
	build func(name string) K
	slots [512]atomic.Pointer[cached[K]]
}

// cached is an entry of a Cache.
type cached[K any] struct {
	name string
	keys K
	err  error // what is wrong with the name
}

// NewCache makes a cache of what build returns for a name.
func NewCache[K any](build func(name string) K) *Cache[K] { return &Cache[K]{build: build} }

// Get returns the keys of a name, and the error of CheckName. The caller must not change the keys.
// Names that CheckName refuses are not kept: they may be very long.
func (c *Cache[K]) Get(name string) (*K, error) {
	hash := maphash.String(seed, name)
	first, second := &c.slots[hash%uint64(len(c.slots))], &c.slots[hash>>32%uint64(len(c.slots))]
	for _, slot := range [...]*atomic.Pointer[cached[K]]{first, second} {
		if entry := slot.Load(); entry != nil && entry.name == name {
			return &entry.keys, entry.err
		}
	}
	name = strings.Clone(name) // it may be a small part of a large text, which would be kept too
	entry := &cached[K]{name: name, keys: c.build(name), err: CheckName(name)}
	if entry.err != nil {
		return &entry.keys, entry.err
	}
	switch {
	case first.Load() == nil, second.Load() != nil && rand.N(2) == 0:
		first.Store(entry)
	default:
		second.Store(entry)
	}
	return &entry.keys, nil
}

var seed = maphash.MakeSeed()
