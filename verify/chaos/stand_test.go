//go:build unix

package chaos_test

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// stand has a server for one row, a proxy in front of it, and clients of the library.
type stand struct {
	*course
	server *redistest.Server
	proxy  *redistest.Proxy
	ends   []func() // of its clients
}

func (c *course) stand(args ...string) *stand {
	c.Helper()
	server := redistest.Start(c.T, args...)
	return &stand{course: c, server: server, proxy: redistest.NewProxy(c.T, server.Addr())}
}

// apart is the same server behind another proxy, so that a fault of one affects nobody at the
// other.
func (s *stand) apart() *stand {
	s.Helper()
	return &stand{course: s.course, server: s.server, proxy: redistest.NewProxy(s.T, s.server.Addr())}
}

// over ends the clients of the stand, whatever is left of its fault. The server stays.
func (s *stand) over() {
	s.proxy.Heal()
	s.proxy.Down()
	s.end()
}

// end ends all clients so far.
func (s *stand) end() {
	for _, end := range s.ends {
		end()
	}
	s.ends = nil
}

// impatient notices a silent connection soon. The default of go-redis is seconds, and a row has
// thousands of silent connections.
func impatient(o *redis.Options) { o.ReadTimeout = 200 * time.Millisecond }

// client returns a client that faults can affect.
func (s *stand) client(options ...redlatch.Option) *redlatch.Client {
	s.Helper()
	return s.on(s.proxy.Client(impatient), options...)
}

// aside returns a client that does not use the proxy.
func (s *stand) aside(options ...redlatch.Option) *redlatch.Client {
	s.Helper()
	return s.on(s.server.Client(s.T), options...)
}

func (s *stand) on(rdb redis.UniversalClient, options ...redlatch.Option) *redlatch.Client {
	s.Helper()
	quiet := redlatch.WithLogger(slog.New(slog.DiscardHandler))
	c, err := redlatch.New(rdb, append([]redlatch.Option{quiet, redlatch.WithHeartbeat(heartbeat)}, options...)...)
	require.NoError(s, err)
	end := func() { // after a row of faults, the server may not answer
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Close(ctx)
		_ = rdb.Close()
	}
	s.ends = append(s.ends, end)
	s.Cleanup(end)
	return c
}

// try sends an operator's command. The answer of a server in trouble does not matter.
func (s *stand) try(args ...any) { _ = s.server.Control().Do(context.Background(), args...).Err() }

// operate sends an operator's command that has to work.
func (s *stand) operate(args ...any) {
	s.Helper()
	require.NoError(s, s.server.Control().Do(context.Background(), args...).Err(), args)
}

// counted is a number from a section of INFO, or 0 if it is not there. For example,
// counted("errorstats", "errorstat_OOM") is how many commands the server refused with OOM since it
// started.
func (s *stand) counted(section, field string) int {
	text, err := s.server.Control().Info(context.Background(), section).Result()
	if err != nil {
		return 0
	}
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(strings.TrimSpace(line), field+":"); found {
			n, _ := strconv.Atoi(strings.TrimPrefix(value, "count="))
			return n
		}
	}
	return 0
}

// refusals is how many commands the server answered with an error of that code since it started.
func (s *stand) refusals(code string) int { return s.counted("errorstats", "errorstat_"+code) }
