package redlatch

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/sender"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/lockerr"
)

// servers is what New knows of the servers behind a go-redis client. WAIT is about the writes of its own
// connection, and a cluster client would send it to any node. So it needs the client of one server.
type servers struct {
	cluster     *redis.ClusterClient // nil: no cluster, or a wrapper hides it
	master      sender.Master        // nil: not known, because a wrapper hides it
	readTimeout time.Duration        // of a pipeline; 0 or less: none
}

func knownServers(rdb redis.UniversalClient) servers {
	if cluster := find[redis.ClusterClient](rdb); cluster != nil {
		return servers{cluster: cluster, master: cluster.MasterForKey, readTimeout: cluster.Options().ReadTimeout}
	}
	if one := find[redis.Client](rdb); one != nil {
		master := func(context.Context, string) (*redis.Client, error) { return one, nil }
		return servers{master: master, readTimeout: one.Options().ReadTimeout}
	}
	return servers{}
}

// check sets the error of settings that need more than these servers can do.
func (s servers) check(l *settings.Lock) {
	switch {
	case l.Err != nil, l.Replicas <= 0:
	case s.master == nil:
		l.Err = &lockerr.ConfigError{Setting: "number of replicas", Value: l.Replicas, Reason: "needs a *redis.Client or a *redis.ClusterClient, or a struct that contains one"}
	case s.readTimeout > 0 && l.ReplicaTimeout >= s.readTimeout:
		l.Err = &lockerr.ConfigError{Setting: "replica timeout", Value: l.ReplicaTimeout, Reason: "must be below the ReadTimeout of the redis client, which is " + s.readTimeout.String()}
	}
}
