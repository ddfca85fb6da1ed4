package main

import (
	"fmt"

	"github.com/redis/go-redis/v9"
)

// library is one of the compared libraries.
type library struct {
	name   string
	module string // for its version; empty: this repository
	open   func(c cell) (locker, error)
	redis  bool     // its server is Redis
	sends  []string // the commands of its turns, whose time on the server counts
}

var libraries = []library{
	floors, bareCalls, barePermits, mutexes, fairs, semaphores, redsyncs, redislocks, rueidislocks, etcds,
	redissons("RLock"), redissons("RFairLock"), redissons("RPermitExpirableSemaphore"),
}

func byName(name string) (library, error) {
	for _, l := range libraries {
		if l.name == name {
			return l, nil
		}
	}
	return library{}, fmt.Errorf("no library is called %q", name)
}

// open makes one client of the library of the cell.
func open(c cell) (locker, error) {
	l, err := byName(c.Library)
	if err != nil {
		return nil, err
	}
	return l.open(c)
}

// goRedis returns a client for every library that uses go-redis. Its options are the defaults, but
// it obeys the deadlines of contexts. If the cell requests it, goRedis returns the AutoPipeline of
// the client. closeAll closes both.
func goRedis(c cell) (rdb redis.UniversalClient, closeAll func(), err error) {
	if c.Cluster {
		rdb = redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs, ContextTimeoutEnabled: true})
	} else {
		rdb = redis.NewClient(&redis.Options{Addr: c.Addrs[0], ContextTimeoutEnabled: true})
	}
	client := rdb
	if c.Batched {
		rdb, err = client.AutoPipeline()
	}
	return rdb, func() { _ = client.Close() }, err
}
