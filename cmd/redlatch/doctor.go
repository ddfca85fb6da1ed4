package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/display"
	"github.com/redlatch/redlatch/internal/key"
)

func newDoctorCommand(a *app) *cobra.Command {
	var asJSON, strict bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether this Redis and this user are fit for locks",
		Long: "Check the servers, and lock with names of its own what redlatch can lock, as this user. The names begin with\n" +
			"redlatch-doctor: after the prefix, and end within a few seconds.\n\n" +
			"Exit code 1: there is a problem. With --strict, a warning is one too.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.doctor(cmd.Context(), asJSON, strict) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	cmd.Flags().BoolVar(&strict, "strict", false, "exit with 1 after a warning too")
	return cmd
}

// finding is one line of the doctor.
type finding struct {
	Check  string `json:"check"`
	Server string `json:"server,omitempty"`
	Status string `json:"status"` // "ok", "warning" or "problem"
	Text   string `json:"text"`
	ToDo   string `json:"to_do,omitempty"`
}

const (
	statusOK      = "ok"
	statusWarning = "warning"
	statusProblem = "problem"

	checkReplicas = "replicas"
)

// examination is one call of doctor.
type examination struct {
	*app
	c    *connection
	name string // for its own locks

	mu       sync.Mutex // masters are examined at the same time
	findings []finding
}

func (e *examination) add(check, server, status, toDo, format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.findings = append(e.findings, finding{check, server, status, fmt.Sprintf(format, args...), toDo})
}

func (a *app) doctor(ctx context.Context, asJSON, strict bool) error {
	// The locks of the doctor leave as little behind as possible.
	c, err := a.connect(ctx, 0, redlatch.WithFenceRetention(time.Second), redlatch.WithLease(a.limits.connect), redlatch.WithDescription("redlatch doctor"))
	if err != nil {
		return err
	}
	defer c.close()
	e := &examination{app: a, c: c, name: "redlatch-doctor:" + uuid.NewString()}
	e.servers(ctx)
	e.latency(ctx)
	for _, check := range []func(context.Context){e.mutex, e.fairMutex, e.semaphore, e.pubSub} {
		bounded, cancel := context.WithTimeout(ctx, e.limits.connect) // a lock waits through an outage otherwise
		if !e.isReplica() {
			check(bounded)
		}
		cancel()
	}
	e.search(ctx)
	if err := e.write(asJSON); err != nil {
		return err
	}
	for _, f := range e.findings {
		if f.Status == statusProblem || strict && f.Status == statusWarning {
			return &exitError{exitNo, nil}
		}
	}
	return nil
}

// isReplica reports whether no lock can be acquired on the server.
func (e *examination) isReplica() bool {
	return slices.ContainsFunc(e.findings, func(f finding) bool { return f.Check == checkReplicas && f.Status == statusProblem })
}

func (e *examination) write(asJSON bool) error {
	if asJSON {
		return writeJSON(e.out, e.findings)
	}
	for _, f := range e.findings {
		server := ""
		if f.Server != "" {
			server = " (" + display.Safe(f.Server) + ")"
		}
		fmt.Fprintf(e.out, "%-8s %s%s: %s\n", f.Status, f.Check, server, display.Safe(f.Text))
		if f.ToDo != "" {
			fmt.Fprintf(e.out, "         → %s\n", f.ToDo)
		}
	}
	return nil
}

// servers examines each master.
func (e *examination) servers(ctx context.Context) {
	var err error
	switch rdb := e.c.rdb.(type) {
	case *redis.ClusterClient:
		err = rdb.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { e.server(ctx, node); return nil })
		slices.SortStableFunc(e.findings, func(a, b finding) int { return strings.Compare(a.Server, b.Server) })
	case *redis.Client:
		e.server(ctx, rdb)
	}
	if err != nil {
		e.add("cluster", "", statusProblem, "", "its nodes are not known: %v", err)
	}
}

func (e *examination) server(ctx context.Context, node *redis.Client) {
	addr := node.Options().Addr
	text, err := node.Info(ctx).Result()
	if err != nil {
		e.add("server", addr, statusWarning, toDoAfter(err, "to check it, let this user do INFO, or run doctor as another user"), "it does not say how it is configured: %v", err)
		return
	}
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[k] = v
		}
	}
	if info["redis_version"] == "" { // a server double, or a proxy
		e.add("server", addr, statusWarning, "look at the documentation of this server", "its INFO does not say what it is, so its version and settings are not checked")
		return
	}
	e.version(addr, info)
	e.eviction(addr, info)
	e.persistence(ctx, node, addr, info)
	e.replicas(addr, info)
	e.clock(ctx, node, addr)
}

func (e *examination) version(addr string, info map[string]string) {
	name, version := "Redis", info["redis_version"]
	if v := info["valkey_version"]; v != "" {
		name, version = "Valkey", v
	}
	var major, minor int
	_, _ = fmt.Sscanf(version, "%d.%d", &major, &minor)
	if name == "Redis" && (major < 6 || major == 6 && minor < 2) {
		e.add("version", addr, statusProblem, "use Redis 6.2 or newer, or Valkey", "%s %s is too old", name, version)
		return
	}
	e.add("version", addr, statusOK, "", "%s %s", name, version)
}

func (e *examination) eviction(addr string, info map[string]string) {
	policy := info["maxmemory_policy"]
	switch {
	case info["maxmemory"] == "0" && policy != "noeviction":
		e.add("eviction", addr, statusOK, "", "no memory limit, so the policy %s evicts nothing", policy)
	case policy == "noeviction":
		e.add("eviction", addr, statusOK, "", "noeviction")
	default:
		e.add("eviction", addr, statusProblem, "set maxmemory-policy noeviction, or use a server of its own for locks", "maxmemory is %s and the policy %s, so Redis may drop locks that are held", info["maxmemory_human"], policy)
	}
}

func (e *examination) persistence(ctx context.Context, node *redis.Client, addr string, info map[string]string) {
	if info["aof_enabled"] != "1" {
		e.add("persistence", addr, statusWarning, "set appendonly yes, and appendfsync always if the locks must outlast a crash", "no append-only file: a crash forgets locks, and two clients may then have the same one")
		return
	}
	if info["aof_last_write_status"] != "ok" {
		e.add("persistence", addr, statusProblem, "look at the log of the server and the disk", "the last write to the append-only file failed")
		return
	}
	fsync, err := node.ConfigGet(ctx, "appendfsync").Result()
	switch policy := fsync["appendfsync"]; {
	case err != nil:
		e.add("persistence", addr, statusOK, "", "append-only file; appendfsync is unknown, because this user may not read it")
	case policy != "always":
		e.add("persistence", addr, statusWarning, "set appendfsync always if the locks must outlast a crash", "append-only file with appendfsync %s: a crash forgets the locks of the last second", policy)
	default:
		e.add("persistence", addr, statusOK, "", "append-only file with appendfsync always")
	}
}

func (e *examination) replicas(addr string, info map[string]string) {
	n, _ := strconv.Atoi(info["connected_slaves"])
	switch {
	case info["role"] != "master":
		e.add(checkReplicas, addr, statusProblem, "connect to the master", "this server is a replica of %s:%s, and locks need a server that takes writes", info["master_host"], info["master_port"])
	case n == 0:
		e.add(checkReplicas, addr, statusOK, "", "none; no failover can forget a lock")
	default:
		e.add(checkReplicas, addr, statusWarning, "use fences, or redlatch.WithReplicas and min-replicas-to-write; see docs/guarantees.md", "%d: a failover may forget the last locks", n)
	}
}

// clock compares the clocks. Leases need no agreement, but fences of a cluster come from the clocks
// of its servers.
func (e *examination) clock(ctx context.Context, node *redis.Client, addr string) {
	const most = time.Second
	before := time.Now()
	server, err := node.Time(ctx).Result()
	trip := time.Since(before)
	if err != nil {
		e.add("clock", addr, statusProblem, toDoAfter(err, "let this user do TIME; see docs/security.md"), "the server does not say its time: %v", err)
		return
	}
	skew := server.Sub(before.Add(trip / 2)).Round(time.Millisecond)
	if skew.Abs() > most+trip {
		e.add("clock", addr, statusWarning, "run a time service on both machines; a jump of the server's clock ends or extends leases", "the server's clock differs from this machine's by %s", skew)
		return
	}
	e.add("clock", addr, statusOK, "", "within %s of this machine's", max(skew.Abs(), time.Millisecond))
}

func (e *examination) latency(ctx context.Context) {
	const pings = 11
	var trips []time.Duration
	for range pings {
		before := time.Now()
		if err := e.c.rdb.Ping(ctx).Err(); err != nil {
			e.add("latency", "", statusProblem, "", "no answer: %v", err)
			return
		}
		trips = append(trips, time.Since(before))
	}
	slices.Sort(trips)
	median := trips[pings/2].Round(time.Microsecond)
	if median > e.limits.slow {
		e.add("latency", "", statusWarning, "look for slow commands (SLOWLOG GET), and for the way between this machine and Redis", "a round trip takes %s; a lock and its release take two", median)
		return
	}
	e.add("latency", "", statusOK, "", "a round trip takes %s", median)
}

const toDoACL = "grant what docs/security.md lists for this kind of lock"

// toDoAfter says what to do after an error of Redis. permission is for a user who may not do it.
func toDoAfter(err error, permission string) string {
	text := err.Error()
	for _, advice := range []struct{ word, toDo string }{
		{"NOPERM", permission},
		{"user executing the script", permission}, // before Redis 7
		{"OOM ", "Redis has no memory for a write: raise maxmemory, or delete data; keep maxmemory-policy noeviction"},
		{"READONLY", "connect to the master: this server is a replica, and takes no writes"},
		{"MISCONF", "look at the log of the server and its disk: it cannot save its data, and so takes no writes"},
		{"LOADING", "wait until the server has loaded its data"},
		{"NOAUTH", "pass a user and a password: REDIS_URL, or --user and --password-file"},
		{"WRONGPASS", "check the user and the password"},
		{"NOREPLICAS", "look at the replicas: min-replicas-to-write of the server wants more of them"},
		{"CLUSTERDOWN", "look at CLUSTER INFO: the cluster does not serve all slots"},
	} {
		if strings.Contains(text, advice.word) {
			return advice.toDo
		}
	}
	return "docs/troubleshooting.md explains the errors"
}

// try reports whether this user can do something.
func (e *examination) try(check string, err error) {
	if err != nil {
		e.add(check, "", statusProblem, toDoAfter(err, toDoACL), "%v", err)
		return
	}
	e.add(check, "", statusOK, "", "this user can use it")
}

func (e *examination) mutex(ctx context.Context) {
	hold, err := e.c.locks.Mutex(e.name).TryLock(ctx)
	if err == nil {
		err = hold.Unlock(ctx)
	}
	e.try("mutex", err)
}

// fairMutex also waits in the queue, which needs other permissions.
func (e *examination) fairMutex(ctx context.Context) {
	e.try("fair mutex", func() error {
		hold, err := e.c.locks.FairMutex(e.name).Lock(ctx)
		if err != nil {
			return err
		}
		next := make(chan error, 1)
		placed := make(chan struct{}, 64)
		waiting := e.c.locks.FairMutex(e.name, redlatch.WithWaitTimeout(e.limits.connect), redlatch.WithWaitCallback(func(redlatch.Waiting) { placed <- struct{}{} }))
		go func() {
			second, err := waiting.Lock(ctx)
			if err == nil {
				err = second.Unlock(ctx)
			}
			next <- err
		}()
		select {
		case <-placed:
		case err := <-next:
			_ = hold.Unlock(ctx)
			return err
		}
		if err := hold.Unlock(ctx); err != nil {
			return err
		}
		return <-next
	}())
}

func (e *examination) semaphore(ctx context.Context) {
	e.try("semaphore", func() error {
		s := e.c.locks.Semaphore(e.name, 1)
		permit, err := s.Acquire(ctx, 1)
		if err != nil {
			return err
		}
		if _, _, err := s.Queue(ctx, 0, 1); err != nil {
			return err
		}
		return permit.Release(ctx)
	}())
}

// pubSub sends a message on the channel of a mutex, as a release does.
func (e *examination) pubSub(ctx context.Context) {
	channel := key.ForMutex(e.prefix() + e.name).Channel
	ctx, cancel := context.WithTimeout(ctx, e.limits.connect)
	defer cancel()
	listener := e.c.rdb.Subscribe(ctx, channel)
	defer listener.Close()
	begin := time.Now()
	_, err := listener.Receive(ctx) // the server has confirmed the subscription
	if err == nil {
		begin = time.Now()
		err = e.c.rdb.Publish(ctx, channel, "0").Err()
	}
	if err == nil {
		_, err = listener.ReceiveMessage(ctx)
	}
	if err != nil {
		toDo := toDoAfter(err, "let this user subscribe to and publish on the channels of docs/security.md; without messages, waiters poll")
		e.add("messages", "", statusProblem, toDo, "no message of a release arrives: %v", err)
		return
	}
	e.add("messages", "", statusOK, "", "a message of a release takes %s", time.Since(begin).Round(time.Microsecond))
}

// search checks what ls needs.
func (e *examination) search(ctx context.Context) {
	if err := e.c.rdb.Scan(ctx, 0, "redlatch:*", 1).Err(); err != nil {
		e.add("ls", "", statusWarning, toDoAfter(err, "let a user for people do SCAN; programs do not need it"), "%v", err)
		return
	}
	e.add("ls", "", statusOK, "", "this user can list names")
}
