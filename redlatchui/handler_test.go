package redlatchui_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/event"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lockerr"
	"github.com/redlatch/redlatch/redlatchui"
)

func TestBadArgumentsAreRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for name, options := range map[string][]redlatchui.Option{
		"nil":                           {nil},
		"WithLogger":                    {redlatchui.WithLogger(nil)},
		"WithActions":                   {redlatchui.WithActions(nil)},
		"WithLosses":                    {redlatchui.WithLosses(nil)},
		"WithMaxViewers":                {redlatchui.WithMaxViewers(0)},
		"WithPrefix, without a slash":   {redlatchui.WithPrefix("locks")},
		"WithPrefix, with a last slash": {redlatchui.WithPrefix("/locks/")},
		"WithPrefix, only a slash":      {redlatchui.WithPrefix("/")},
		"WithPrefix, not clean":         {redlatchui.WithPrefix("/a/../b")},
		"WithPrefix, special":           {redlatchui.WithPrefix(`/a"b`)},
	} {
		_, err := redlatchui.New(s.rdb, s.mine, options...)
		var config *lockerr.ConfigError
		require.ErrorAs(t, err, &config, name)
		if option, _, _ := strings.Cut(name, ","); option != "nil" {
			require.Equal(t, option, config.Option)
		}
	}
	_, err := redlatchui.New(nil, s.mine)
	require.ErrorIs(t, err, redlatch.ErrConfig)
	_, err = redlatchui.New(s.rdb, nil)
	require.ErrorIs(t, err, redlatch.ErrConfig)
	require.Zero(t, s.counts.of("all"), "nothing was sent")
}

func TestTheFirstScreen(t *testing.T) {
	t.Parallel()
	losses := redlatchui.NewLosses()
	s := newScene(t, redlatchui.WithLosses(losses))
	s.hold("door")
	s.wait("door")
	permit, err := s.locks.Semaphore("render", 2).Acquire(t.Context(), 2)
	require.NoError(t, err)
	defer func() { require.NoError(t, permit.Release(context.Background())) }()
	for _, e := range []event.Event{
		{Kind: event.Lost, Time: time.Now()}, {Kind: event.Lost, Time: time.Now().Add(-30 * time.Minute)},
		{Kind: event.Lost, Time: time.Now().Add(-2 * time.Hour)}, {Kind: event.Released, Time: time.Now()},
	} {
		losses.Observe(t.Context(), e)
	}
	require.Equal(t, 2, losses.LastHour())

	w := s.get("/")
	require.Equal(t, http.StatusOK, w.Code)
	cards := map[string]string{}
	for _, found := range regexp.MustCompile(`(?s)<span class="label">(.*?)</span>\s*<span class="value">(?:<a [^>]*>)?([^<]*)`).FindAllStringSubmatch(w.Body.String(), -1) {
		cards[found[1]] = found[2]
	}
	require.Regexp(t, `^[\dm.]+s$`, cards["Oldest wait"])
	delete(cards, "Oldest wait")
	require.Equal(t, map[string]string{"Held": "2", "Waiting": "1", "At their limit": "1", "Lost in the last hour": "2"}, cards)
	require.Contains(t, w.Body.String(), ">2 of 2 in use<")
	require.Contains(t, w.Body.String(), `read-only`)

	require.NotContains(t, newScene(t).get("/").Body.String(), "Lost in the last hour", "no observer feeds it")
}

func TestFilterSortAndPagesAreThoseOfTheServer(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for i := range 60 {
		s.hold(fmt.Sprintf("orders:%02d", i))
	}
	s.hold("reports")
	s.wait("reports")
	idle, err := s.locks.Mutex("idle").Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, idle.Unlock(t.Context()))
	names := func(link string) (all []string) {
		for _, found := range regexp.MustCompile(`<td role="cell" class="name"><a href="[^"]*"><bdi>([^<]*)`).FindAllStringSubmatch(s.get(link).Body.String(), -1) {
			all = append(all, found[1])
		}
		return all
	}
	require.Len(t, names("/"), 50)
	require.Equal(t, "reports", names("/")[0], "the one with the most waiters")
	require.Equal(t, []string{"reports"}, names("/?show=waiting"))
	require.Empty(t, names("/?show=limit"))
	require.Len(t, names("/?page=2"), 11)
	require.Len(t, names("/?page=99"), 11, "the last page")
	require.Equal(t, []string{"orders:07"}, names("/?q=S%3a07"), "in any case of letters")
	require.Equal(t, []string{"idle"}, names("/?q=idle&show=all"))
	require.Equal(t, "idle", names("/?show=all&sort=name")[0])
	require.Equal(t, "reports", names("/?sort=oldest")[0])
	require.Len(t, names("/?page=x&show=x&sort=x"), 50)
	require.Contains(t, s.get("/?q=orders").Body.String(), `<a href="/?page=2&amp;q=orders">Next</a>`)
}

func TestMountedBelowAPrefix(t *testing.T) {
	t.Parallel()
	s := newScene(t, redlatchui.WithPrefix("/ops/locks"))
	s.hold("door")
	mux := http.NewServeMux()
	mux.Handle("/ops/locks/", s.page)
	page := ask(mux, "/ops/locks/")
	require.Equal(t, http.StatusOK, page.Code)
	for _, found := range regexp.MustCompile(`(?:href|src|action|data-events)="([^"]*)"`).FindAllStringSubmatch(page.Body.String(), -1) {
		require.True(t, strings.HasPrefix(found[1], "/ops/locks/"), found[1])
		if !strings.Contains(found[1], "events") {
			require.Equal(t, http.StatusOK, ask(mux, strings.ReplaceAll(found[1], "&amp;", "&")).Code, found[1])
		}
	}
	require.Equal(t, http.StatusMovedPermanently, ask(s.page, "/ops/locks").Code)
	require.Equal(t, http.StatusNotFound, ask(mux, "/ops/locks/static/none.js").Code)
	require.Equal(t, http.StatusNotFound, ask(mux, "/ops/locks/other").Code)
	require.Equal(t, http.StatusBadRequest, ask(mux, "/ops/locks/lock").Code)
	require.Equal(t, http.StatusBadRequest, ask(mux, "/ops/locks/lock/events").Code)
}

func TestEveryAnswerHasTheSecurityHeaders(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for _, link := range []string{"/", "/lock?name=x", "/lock", "/actions/release", "/static/page.js", "/nothing"} {
		header := s.get(link).Header()
		policy := header.Get("Content-Security-Policy")
		require.Contains(t, policy, "default-src 'none'", link)
		require.Contains(t, policy, "frame-ancestors 'none'")
		require.NotContains(t, policy, "unsafe")
		require.Equal(t, "nosniff", header.Get("X-Content-Type-Options"))
		require.Equal(t, "same-origin", header.Get("Referrer-Policy"))
	}
}

func TestLoopbackOnly(t *testing.T) {
	t.Parallel()
	s := newScene(t, redlatchui.WithLoopbackOnly())
	for host, status := range map[string]int{
		"localhost:8420": http.StatusOK, "LOCALHOST": http.StatusOK, "127.0.0.1:1": http.StatusOK, "127.9.9.9": http.StatusOK, "[::1]:8420": http.StatusOK, "[::1]": http.StatusOK,
		"evil.example:8420": http.StatusMisdirectedRequest, "localhost.evil.example": http.StatusMisdirectedRequest, "192.0.2.1": http.StatusMisdirectedRequest, "": http.StatusMisdirectedRequest,
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = host
		w := httptest.NewRecorder()
		s.page.ServeHTTP(w, r)
		require.Equal(t, status, w.Code, host)
	}
}

// hostile are texts that another program may write into Redis.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `'onmouseover='alert(1)`, `javascript:alert(1)`, `{{.Secret}}`, `</title><script>`,
	"right\u202eto left", "zero\u200bwidth", "line\nbreak", "\x1b[31mred", "nul\x00", "not utf-8 \xff\xfe", "data: x\n\nevent: page\ndata: forged", strings.Repeat("<b>", 170) + "ab",
}

// hostileScene writes each text as a name and as a description.
func hostileScene(t *testing.T, s *scene) (names []string) {
	t.Helper()
	for i, text := range hostile {
		name := text + fmt.Sprint(i)
		if len(name) > 512 {
			name = text
		}
		id := fmt.Sprintf("5f0c6f0e-6b8e-4d0a-9a38-0a3d1b8f3a11:%d", i+1)
		_, err := s.rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			p.HSet(t.Context(), name, id, 1, "redlatch:about", text)
			p.PExpire(t.Context(), name, time.Hour)
			p.Set(t.Context(), "redisson_lock_token:{"+name+"}", i+1, time.Hour)
			return nil
		})
		require.NoError(t, err)
		names = append(names, name)

		// A name that redlatch accepts, so that its page shows the description.
		plain := fmt.Sprint("plain:", i)
		_, err = s.rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			p.HSet(t.Context(), plain, id, 1, "redlatch:about", text)
			p.PExpire(t.Context(), plain, time.Hour)
			p.Set(t.Context(), "redisson_lock_token:{"+plain+"}", i+1, time.Hour)
			return nil
		})
		require.NoError(t, err)
		names = append(names, plain)
	}
	return names
}

func requireHarmless(t *testing.T, page string) {
	t.Helper()
	for _, raw := range []string{"<script>alert", "<img src=x", "'onmouseover='alert(1)", `href="javascript:`, "\u202e", "\u200b", "\x1b", "\x00", "\xff", "<b>", "</title><script>", "\nevent: page\ndata: forged"} {
		require.NotContains(t, page, raw)
	}
}

func TestHostileTextIsHarmless(t *testing.T) {
	t.Parallel()
	s := newScene(t, redlatchui.WithActions(anybody))
	names := hostileScene(t, s)
	page := s.get("/").Body.String()
	requireHarmless(t, page)
	require.Contains(t, page, "&lt;script&gt;alert(1)&lt;/script&gt;")
	require.Contains(t, page, `right\u202eto left`)
	shown := len(regexp.MustCompile(`<tr role="row" data-key`).FindAllString(page, -1))
	require.Equal(t, len(names), shown)
	for i, name := range names {
		text := hostile[i/2] // it has two names
		page := s.get(lockLink(name)).Body.String()
		requireHarmless(t, page)
		if strings.HasPrefix(text, "<script>") {
			require.Contains(t, page, `<dd><bdi>&lt;script&gt;alert(1)&lt;/script&gt;</bdi></dd>`)
		}
		requireHarmless(t, s.get("/?q="+url.QueryEscape(name)).Body.String())
		requireHarmless(t, s.get("/actions/release?"+url.Values{"name": {name}, "id": {text}}.Encode()).Body.String())
	}
	v := watch(t, s.page, "/events")
	awaitPage(t, v)
	requireHarmless(t, v.text())
	v.leave()
}

// awaitPage waits in real time.
func awaitPage(t *testing.T, v *viewer) {
	t.Helper()
	for end := time.Now().Add(time.Minute); v.pages() == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no live page")
		}
	}
}

// Permissions that the user of the page lacks are on the page.
func TestARefusalOfRedisIsShown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	locks := newLocks(t, rdb)
	hold, err := locks.Mutex("svc:door").Lock(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, hold.Unlock(context.Background())) }()
	other, err := locks.Mutex("other").Lock(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, other.Unlock(context.Background())) }()
	as := func(rules ...any) string {
		user := server.Client(t, func(o *redis.Options) { o.Username, o.Password = "viewer", "secret" })
		require.NoError(t, server.Control().Do(t.Context(), append([]any{"ACL", "SETUSER", "viewer", "reset", "on", ">secret", "&*", "+@all"}, rules...)...).Err())
		page, err := redlatchui.New(user, newLocks(t, user, redlatch.WithPrefix("svc:")))
		require.NoError(t, err)
		return ask(page, "/").Body.String()
	}
	page := as("~*", "-scan")
	require.Contains(t, page, "NOPERM")
	require.Contains(t, page, "There has been no good reading.")
	page = as("~*", "-evalsha", "-eval")
	require.Contains(t, page, "Redis did not show the state of 1 name.")
	require.Contains(t, page, "unknown: ")
	page = as("~svc:*", "~redisson_lock_token:{svc:*", "~redlatch:queue:{svc:*")
	require.NotContains(t, page, `role="alert"`, "the documented permissions are enough")
	require.Contains(t, page, `>worker-1<`)
	require.NotContains(t, page, "other")
}

// A live page outlasts the timeouts of the server, which are for other requests.
func TestLivePagesOutlastTheTimeoutsOfTheServer(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.hold("door")
	web := httptest.NewUnstartedServer(s.page)
	const timeout = time.Second // a busy machine needs some of it to read the request
	web.Config.ReadTimeout, web.Config.WriteTimeout = timeout, timeout
	web.Start()
	defer web.Close()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	r, err := client.Get(web.URL + "/events")
	require.NoError(t, err)
	defer r.Body.Close()
	lines := bufio.NewScanner(r.Body)
	began := time.Now()
	for last := began; last.Sub(began) < 2*timeout; {
		require.True(t, lines.Scan(), "the stream has ended: %v", lines.Err())
		if lines.Text() == "event: page" {
			last = time.Now()
		}
	}
	require.NoError(t, s.page.Close(context.Background()))
}
