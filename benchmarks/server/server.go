// Package server starts the servers for the benchmarks and the recipes.
package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// Server is one Redis, a cluster, or etcd. It listens on the loopback interface, and ends with this
// program at the latest.
type Server struct {
	Addrs []string
	Nodes []*redis.Client // none for etcd

	cluster bool
	started []*exec.Cmd
	dir     string
}

// serverPath is the path of the redis-server to measure on.
func serverPath() string {
	if path := os.Getenv("REDLATCH_REDIS_SERVER"); path != "" {
		return path
	}
	return "redis-server"
}

// Redis starts one server, or a cluster of several.
func Redis(nodes int) (_ *Server, err error) {
	s := &Server{cluster: nodes > 1}
	if s.dir, err = os.MkdirTemp("", "benchmarks"); err != nil {
		return s, err
	}
	for i := range nodes {
		port, err := freePort()
		if err != nil {
			return s, err
		}
		dir := filepath.Join(s.dir, strconv.Itoa(i))
		if err := os.Mkdir(dir, 0o700); err != nil {
			return s, err
		}
		args := []string{"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "no"}
		if s.cluster {
			args = append(args, "--cluster-enabled", "yes")
		}
		if err := s.start(serverPath(), args...); err != nil {
			return s, err
		}
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		s.Addrs = append(s.Addrs, addr)
		s.Nodes = append(s.Nodes, redis.NewClient(&redis.Options{Addr: addr}))
	}
	return s, s.awaitRedis()
}

func (s *Server) start(path string, args ...string) error {
	log, err := os.OpenFile(s.log(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.started = append(s.started, cmd)
	return nil
}

func (s *Server) log() string { return filepath.Join(s.dir, "log") }

// Log returns the last lines that the server has written.
func (s *Server) Log() string {
	const lines = 20
	text, err := os.ReadFile(s.log())
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

func (s *Server) awaitRedis() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for _, n := range s.Nodes {
		if err := until(ctx, func() error { return n.Ping(ctx).Err() }); err != nil {
			return err
		}
	}
	if !s.cluster {
		return nil
	}
	const slots = 16384
	for i, n := range s.Nodes {
		if err := n.ClusterAddSlotsRange(ctx, slots*i/len(s.Nodes), slots*(i+1)/len(s.Nodes)-1).Err(); err != nil {
			return err
		}
		if i == 0 {
			continue
		}
		host, port, _ := net.SplitHostPort(s.Addrs[0])
		if err := n.ClusterMeet(ctx, host, port).Err(); err != nil {
			return err
		}
	}
	for _, n := range s.Nodes {
		known := func() error {
			info, err := n.ClusterInfo(ctx).Result()
			if err == nil && !(strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d", len(s.Nodes)))) {
				err = errors.New("the cluster is not complete")
			}
			return err
		}
		if err := until(ctx, known); err != nil {
			return err
		}
	}
	return nil
}

// Etcd starts one etcd, which keeps its data below dir. If dir is empty, it is that of temporary
// files.
func Etcd(dir string) (_ *Server, err error) {
	s := &Server{}
	if s.dir, err = os.MkdirTemp(dir, "benchmarks"); err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return s, err
	}
	peer, err := freePort()
	if err != nil {
		return s, err
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	url, peerURL := "http://"+addr, fmt.Sprintf("http://127.0.0.1:%d", peer)
	err = s.start("etcd", "--data-dir", filepath.Join(s.dir, "etcd"),
		"--listen-client-urls", url, "--advertise-client-urls", url,
		"--listen-peer-urls", peerURL, "--initial-advertise-peer-urls", peerURL, "--initial-cluster", "default="+peerURL)
	if err != nil {
		return s, err
	}
	s.Addrs = []string{addr}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return s, until(ctx, func() error {
		// etcd accepts connections before it has elected itself. To say that it is healthy, it
		// reads a key.
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/health", nil)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("etcd is not healthy: %s", answer.Status)
		}
		return nil
	})
}

// until calls try until it succeeds or ctx ends.
func until(ctx context.Context, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Monitor subscribes to every channel of the first node, until stop.
func (s *Server) Monitor() (stop func(), err error) {
	monitor := s.Nodes[0].PSubscribe(context.Background(), "*")
	if _, err := monitor.Receive(context.Background()); err != nil {
		return nil, errors.Join(err, monitor.Close())
	}
	go func() {
		for range monitor.Channel() { // Redis ends a connection that nobody reads
		}
	}()
	return func() { _ = monitor.Close() }, nil
}

// Flush empties the server, which only this program uses.
func (s *Server) Flush() error {
	for _, n := range s.Nodes {
		if err := n.FlushAll(context.Background()).Err(); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends the server.
func (s *Server) Stop() {
	for _, n := range s.Nodes {
		_ = n.Close()
	}
	for _, cmd := range s.started {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	_ = os.RemoveAll(s.dir)
}

// nextPort is below the range of outgoing connections, and so is the port of the bus of a cluster,
// which is 10,000 higher.
var nextPort = 20000 + os.Getpid()%2000

// freePort returns each port once, because the last caller may not have bound its port yet.
func freePort() (int, error) {
	for nextPort < 22700 {
		nextPort++
		if isFree(nextPort) && isFree(nextPort+10_000) {
			return nextPort, nil
		}
	}
	return 0, errors.New("no port is free")
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	return err == nil && l.Close() == nil
}

// Usage is the work of the nodes of a server so far.
type Usage struct {
	Commands int     // including those inside scripts
	Scripts  int     // EVALSHA and EVAL
	Sent     float64 // µs in the commands that clients of a library send
	CPU      float64 // µs
	Memory   float64 // bytes
}

// Used asks the nodes. sends are the commands whose time counts.
func (s *Server) Used(sends []string) (u Usage, err error) {
	for _, n := range s.Nodes {
		info, err := n.InfoMap(context.Background(), "commandstats", "cpu", "memory").Result()
		if err != nil {
			return u, err
		}
		for name, line := range info["Commandstats"] {
			var calls int
			var usec float64
			if _, err := fmt.Sscanf(line, "calls=%d,usec=%f", &calls, &usec); err != nil {
				return u, fmt.Errorf("%s: %s: %w", name, line, err)
			}
			command := strings.TrimPrefix(name, "cmdstat_")
			if command == "info" {
				continue
			}
			u.Commands += calls
			if command == "evalsha" || command == "eval" {
				u.Scripts += calls
			}
			for _, c := range sends {
				if c == command {
					u.Sent += usec
				}
			}
		}
		for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
			seconds, err := strconv.ParseFloat(info["CPU"][field], 64)
			if err != nil {
				return u, err
			}
			u.CPU += seconds * 1e6
		}
		memory, err := strconv.ParseFloat(info["Memory"]["used_memory"], 64)
		if err != nil {
			return u, err
		}
		u.Memory += memory
	}
	return u, nil
}

// Since returns the work after before.
func (u Usage) Since(before Usage) Usage {
	return Usage{
		Commands: u.Commands - before.Commands, Scripts: u.Scripts - before.Scripts,
		Sent: u.Sent - before.Sent, CPU: u.CPU - before.CPU, Memory: u.Memory - before.Memory,
	}
}
