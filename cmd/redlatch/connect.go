package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/spf13/pflag"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/key"
)

// connectFlags say how to reach Redis.
type connectFlags struct {
	url, prefix, user, passwordFile string
	cacert, cert, key               string
	timeout                         durationFlag
	getenv                          func(string) string
}

const defaultURL = "redis://127.0.0.1:6379"

func (f *connectFlags) register(flags *pflag.FlagSet, getenv func(string) string, timeout time.Duration) {
	f.getenv = getenv
	f.timeout.value = timeout
	flags.StringVar(&f.url, "redis", "", "`URL` of Redis, without a password: redis://, rediss://, unix://, redis+sentinel://host,host/master, redis+cluster://host,host (default REDIS_URL, or "+defaultURL+")")
	flags.StringVar(&f.prefix, "prefix", "", "`TEXT` before all names, as redlatch.WithPrefix (default REDLATCH_PREFIX)")
	flags.StringVar(&f.user, "user", "", "`NAME` of the user in Redis (default REDIS_USERNAME)")
	flags.StringVar(&f.passwordFile, "password-file", "", "`FILE` with the password (default: the password of REDIS_URL, or REDIS_PASSWORD)")
	flags.StringVar(&f.cacert, "cacert", "", "`FILE` with the certificates of authorities that sign the server's, for TLS")
	flags.StringVar(&f.cert, "cert", "", "`FILE` with the certificate of this client, for TLS")
	flags.StringVar(&f.key, "key", "", "`FILE` with the key of that certificate")
	flags.Var(&f.timeout, "connect-timeout", "how long to try to reach Redis at the start")
}

// server is a parsed URL with its credentials.
type server struct {
	kind         string   // "single", "cluster" or "sentinel"
	base         *url.URL // with the first host
	others       []string // the other hosts
	master       string   // among sentinels
	user, secret string
	tls          *tls.Config // nil: as the URL says
	sentinelUser string
	sentinelAuth string
}

// parse reads the flags, the environment and the files that they name. No error contains a
// password.
func (f *connectFlags) parse() (*server, error) {
	text, fromFlag := f.url, f.url != ""
	if !fromFlag {
		text = f.getenv("REDIS_URL")
	}
	if text == "" {
		text = defaultURL
	}
	isUnclear := strings.LastIndexByte(text, '@') > strings.IndexAny(text+"?", "?#") || hasAtInPath(text)
	text, others := splitHosts(text)
	u, err := url.Parse(text)
	if err != nil || isUnclear { // its text has the URL, and so the password
		return nil, usageErrorf("the URL of Redis is not a URL, such as %s; a password with special characters must be escaped, or in REDIS_PASSWORD", defaultURL)
	}
	if _, hasPassword := u.User.Password(); (hasPassword || u.Query().Has("password")) && fromFlag {
		return nil, usageErrorf("--redis must not contain a password, because everybody can see the arguments of a process; use REDIS_URL, REDIS_PASSWORD or --password-file")
	}
	s := &server{base: u, others: others}
	if err := s.readKind(); err != nil {
		return nil, err
	}
	s.user, s.secret = u.User.Username(), firstOf(password(u), f.getenv("REDIS_PASSWORD"))
	s.user = firstOf(f.user, s.user, f.getenv("REDIS_USERNAME"))
	s.sentinelUser, s.sentinelAuth = f.getenv("REDIS_SENTINEL_USERNAME"), f.getenv("REDIS_SENTINEL_PASSWORD")
	u.User = nil
	if f.passwordFile != "" {
		secret, err := os.ReadFile(f.passwordFile)
		if err != nil {
			return nil, usageErrorf("--password-file: %w", err)
		}
		s.secret = strings.TrimRight(string(secret), "\r\n")
	}
	s.tls, err = f.tlsConfig()
	if err == nil && s.tls != nil && u.Scheme != "rediss" {
		err = usageErrorf("--cacert, --cert and --key are for TLS: begin the URL with rediss")
	}
	return s, err
}

func password(u *url.URL) string {
	secret, _ := u.User.Password()
	return secret
}

func firstOf(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}

// splitHosts takes all hosts but the first out of a URL, because package url refuses several with
// ports.
func splitHosts(text string) (rest string, others []string) {
	scheme, after, found := strings.Cut(text, "://")
	end := strings.IndexAny(after, "/?#")
	if end < 0 {
		end = len(after)
	}
	at := strings.LastIndex(after[:end], "@") + 1
	hosts := strings.Split(after[at:end], ",")
	if !found || len(hosts) == 1 {
		return text, nil
	}
	return scheme + "://" + after[:at] + hosts[0] + after[end:], hosts[1:]
}

// readKind takes the kind of servers out of the scheme, and adds the other hosts to the query, so
// that the result is a URL as go-redis has it.
func (s *server) readKind() error {
	u := s.base
	scheme, kind, _ := strings.Cut(u.Scheme, "+")
	query := u.Query()
	switch {
	case scheme != "redis" && scheme != "rediss" && scheme != "unix",
		kind != "" && kind != "sentinel" && kind != "cluster", scheme == "unix" && kind != "":
		return usageErrorf("the URL of Redis must begin with redis://, rediss:// or unix://, or with redis+sentinel:// or redis+cluster://, not %q", u.Scheme+"://")
	case kind == "sentinel" || query.Has("master_name"):
		s.kind, s.master = "sentinel", query.Get("master_name")
		if kind == "sentinel" {
			parts := strings.SplitN(strings.Trim(u.Path, "/"), "/", 2)
			s.master = firstOf(parts[0], s.master)
			u.Path = "/" + strings.Join(parts[1:], "/")
		}
		if s.master == "" {
			return usageErrorf("the URL of sentinels must name the master: redis+sentinel://host:26379,host:26379/MASTER")
		}
		query.Del("master_name")
	case kind == "cluster" || query.Has("addr"):
		s.kind = "cluster"
	default:
		s.kind = "single"
	}
	hosts := append([]string{u.Host}, s.others...)
	if len(hosts) > 1 && s.kind == "single" {
		return usageErrorf("several hosts need redis+sentinel:// or redis+cluster://")
	}
	port := ":6379"
	if s.kind == "sentinel" {
		port = ":26379"
	}
	for i, host := range hosts {
		if one := (&url.URL{Host: host}); host != "" && one.Port() == "" && scheme != "unix" {
			hosts[i] += port
		}
		if i > 0 {
			query.Add("addr", hosts[i])
		}
	}
	u.Scheme, u.Host, u.RawQuery = scheme, hosts[0], query.Encode()
	return nil
}

func (f *connectFlags) tlsConfig() (*tls.Config, error) {
	if f.cacert == "" && f.cert == "" && f.key == "" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.cacert != "" {
		pem, err := os.ReadFile(f.cacert)
		if err != nil {
			return nil, usageErrorf("--cacert: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usageErrorf("--cacert: %s has no certificate", f.cacert)
		}
	}
	if f.cert != "" || f.key != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, usageErrorf("--cert and --key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// mergeTLS adds what the flags say to the TLS settings of the URL. Servers of a cluster have
// several names, so each is compared with its own.
func (s *server) mergeTLS(config *tls.Config, single bool) *tls.Config {
	if config == nil {
		return nil
	}
	if !single {
		config.ServerName = ""
	}
	if s.tls != nil {
		config.RootCAs, config.Certificates = s.tls.RootCAs, s.tls.Certificates
	}
	return config
}

var noMaintenance = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}

// client makes the client of these servers. It sends nothing.
func (s *server) client() (redis.UniversalClient, error) {
	switch s.kind {
	case "sentinel":
		o, err := redis.ParseFailoverURL(s.base.String())
		if err != nil {
			return nil, badURL(err)
		}
		o.MasterName, o.Username, o.Password = s.master, s.user, s.secret
		o.SentinelUsername, o.SentinelPassword = s.sentinelUser, s.sentinelAuth
		o.ContextTimeoutEnabled, o.DialerRetries = true, dials(o.DialerRetries)
		o.TLSConfig = s.mergeTLS(o.TLSConfig, false)
		return redis.NewFailoverClient(o), nil
	case "cluster":
		o, err := redis.ParseClusterURL(s.base.String())
		if err != nil {
			return nil, badURL(err)
		}
		return s.newCluster(o), nil
	}
	o, err := redis.ParseURL(s.base.String())
	if err != nil {
		return nil, badURL(err)
	}
	o.Username, o.Password = s.user, s.secret
	o.ContextTimeoutEnabled, o.MaintNotificationsConfig, o.DialerRetries = true, noMaintenance, dials(o.DialerRetries)
	o.TLSConfig = s.mergeTLS(o.TLSConfig, true)
	return redis.NewClient(o), nil
}

func (s *server) newCluster(o *redis.ClusterOptions) redis.UniversalClient {
	o.Username, o.Password = s.user, s.secret
	o.ContextTimeoutEnabled, o.MaintNotificationsConfig, o.DialerRetries = true, noMaintenance, dials(o.DialerRetries)
	o.TLSConfig = s.mergeTLS(o.TLSConfig, false)
	return redis.NewClusterClient(o)
}

// dials makes go-redis report the error of a failed dial. The client of locks tries again by
// itself.
func dials(fromURL int) int { return max(fromURL, 1) }

// hasAtInPath reports whether an @ stands behind the first slash of the path, as in
// redis://:a/b@host. It then ends a password that was not escaped, unless the path is that of a
// socket.
func hasAtInPath(text string) bool {
	_, rest, _ := strings.Cut(text, "://")
	return !strings.HasPrefix(text, "unix:") && strings.LastIndexByte(rest, '@') > strings.IndexByte(rest+"/", '/')
}

func badURL(err error) error { return usageErrorf("the URL of Redis: %w", err) }

// connection is a client of Redis that has answered, and a client of locks on it.
type connection struct {
	rdb    redis.UniversalClient
	locks  *redlatch.Client
	server *server
}

// connect returns when Redis has answered. It tries again until the connect timeout, or until
// atLeast if that is longer, unless Redis refuses. The caller closes the connection.
func (a *app) connect(ctx context.Context, atLeast time.Duration, options ...redlatch.Option) (*connection, error) {
	s, err := a.conn.parse()
	if err != nil {
		return nil, err
	}
	rdb, err := s.client()
	if err != nil {
		return nil, err
	}
	options = append([]redlatch.Option{redlatch.WithPrefix(a.prefix()), redlatch.WithLogger(newLogger(a.errOut))}, options...)
	options = append(options, a.options...)
	locks, err := redlatch.New(rdb, options...)
	if err != nil {
		_ = rdb.Close()
		return nil, err
	}
	c := &connection{rdb: rdb, locks: locks, server: s}
	waiting, cancel := context.WithTimeoutCause(ctx, max(a.conn.timeout.value, atLeast), errNoAnswer)
	defer cancel()
	if err := c.await(waiting); err != nil {
		c.close()
		return nil, err
	}
	if err := c.followCluster(waiting, options); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// checkName refuses a name before redlatch looks for Redis.
func (a *app) checkName(name string) error {
	if name == "" {
		return usageErrorf("the name must not be empty")
	}
	return key.CheckName(a.prefix() + name)
}

func (a *app) prefix() string { return firstOf(a.conn.prefix, a.getenv("REDLATCH_PREFIX")) }

var errNoAnswer = errors.New("no answer in time")

// await pings until Redis answers.
func (c *connection) await(ctx context.Context) error {
	const pause = 200 * time.Millisecond
	var last error
	for {
		err := c.rdb.Process(ctx, pingCommand{redis.NewStatusCmd(ctx, "ping")})
		if err == nil {
			return nil
		}
		var refusal redis.Error
		if errors.As(err, &refusal) && !isTemporary(err) {
			return &exitError{exitUnavailable, fmt.Errorf("redis refuses: %w", err)}
		}
		if isWrongTLS(err) {
			return &exitError{exitUnavailable, fmt.Errorf("no TLS with redis at %s: %w; see --cacert, --cert and --key", c.server.base.Host, err)}
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return &exitError{exitUnavailable, fmt.Errorf("redis is not available at %s: %w", c.server.base.Host+unixPath(c.server.base), last)}
		case <-time.After(pause):
		}
	}
}

// isWrongTLS reports whether one side refuses the certificate of the other, which lasts.
func isWrongTLS(err error) bool {
	var verification *tls.CertificateVerificationError
	return errors.As(err, &verification) || strings.Contains(err.Error(), "remote error: tls: ")
}

// pingCommand is a PING that go-redis does not send again, so that its error is that of the server
// or the network.
type pingCommand struct{ *redis.StatusCmd }

// NoRetry is how go-redis asks.
func (pingCommand) NoRetry() bool { return true }

func unixPath(u *url.URL) string {
	if u.Scheme == "unix" {
		return u.Path
	}
	return ""
}

func isTemporary(err error) bool {
	for _, prefix := range []string{"LOADING", "BUSY", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "READONLY"} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return strings.Contains(err.Error(), "max number of clients reached")
}

// followCluster makes clients of the cluster if the single server of the URL is one of its nodes.
func (c *connection) followCluster(ctx context.Context, options []redlatch.Option) error {
	one, isSingle := c.rdb.(*redis.Client)
	if !isSingle || c.server.kind != "single" {
		return nil
	}
	info, err := one.Info(ctx, "cluster").Result() // a user may lack the permission
	if err != nil || !strings.Contains(info, "cluster_enabled:1") {
		return nil
	}
	o := one.Options()
	cluster := c.server.newCluster(&redis.ClusterOptions{
		Addrs: []string{o.Addr}, TLSConfig: o.TLSConfig, Protocol: o.Protocol, DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
	})
	locks, err := redlatch.New(cluster, options...)
	if err != nil {
		_ = cluster.Close()
		return err
	}
	c.close()
	c.rdb, c.locks = cluster, locks
	return c.await(ctx)
}

// close ends both clients. Nothing is held any more.
func (c *connection) close() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // Close then has the time of one command
	_ = c.locks.Close(ctx)
	_ = c.rdb.Close()
}

// newLogger writes what the client of locks logs, without the time.
func newLogger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{
		Level: slog.LevelWarn,
		ReplaceAttr: func(groups []string, attr slog.Attr) slog.Attr {
			if len(groups) == 0 && attr.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return attr
		},
	}))
}
