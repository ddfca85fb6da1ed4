package main

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// https://pkg.go.dev/go.etcd.io/etcd/client/v3/concurrency: one session for each client, and a
// Mutex for each lock. etcd is not Redis. It shows the cost of another kind of server.
var etcds = library{
	name: "etcd", module: "go.etcd.io/etcd/client/v3",
	open: func(c cell) (locker, error) {
		client, err := clientv3.New(clientv3.Config{Endpoints: c.Addrs})
		if err != nil {
			return nil, err
		}
		session, err := concurrency.NewSession(client, concurrency.WithTTL(int(lease.Seconds())))
		return etcdClient{client, session}, err
	},
}

type etcdClient struct {
	client  *clientv3.Client
	session *concurrency.Session
}

// lock: two Mutexes of one session and one name do not exclude each other. So goroutines that
// compete for a name need a client each.
func (c etcdClient) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	m := concurrency.NewMutex(c.session, name)
	if err := m.Lock(ctx); err != nil {
		return nil, err
	}
	return m.Unlock, nil
}

func (c etcdClient) close() {
	_ = c.session.Close()
	_ = c.client.Close()
}
