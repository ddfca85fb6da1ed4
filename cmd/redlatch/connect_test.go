package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/lockerr"
)

func TestURLsSayHowToReachRedis(t *testing.T) {
	type want struct {
		kind, user, secret string
		addrs              []string
		db                 int
		tls                bool
		master             string
	}
	for text, w := range map[string]want{
		"":                                       {kind: "single", addrs: []string{"127.0.0.1:6379"}},
		"redis://host":                           {kind: "single", addrs: []string{"host:6379"}},
		"redis://u:p@host:1/3":                   {kind: "single", user: "u", secret: "p", addrs: []string{"host:1"}, db: 3},
		"redis://:p%40%2F@host":                  {kind: "single", secret: "p@/", addrs: []string{"host:6379"}},
		"rediss://host":                          {kind: "single", addrs: []string{"host:6379"}, tls: true},
		"redis://[::1]:7":                        {kind: "single", addrs: []string{"[::1]:7"}},
		"unix:///run/a@b.sock":                   {kind: "single", addrs: []string{"/run/a@b.sock"}},
		"unix:///run/redis.sock?db=2":            {kind: "single", addrs: []string{"/run/redis.sock"}, db: 2},
		"redis+cluster://u:p@a:1,b:2,c":          {kind: "cluster", user: "u", secret: "p", addrs: []string{"a:1", "b:2", "c:6379"}},
		"rediss+cluster://a":                     {kind: "cluster", addrs: []string{"a:6379"}, tls: true},
		"redis://a:1?addr=b:2":                   {kind: "cluster", addrs: []string{"a:1", "b:2"}},
		"redis+sentinel://u:p@a,b:2/main/4":      {kind: "sentinel", user: "u", secret: "p", addrs: []string{"a:26379", "b:2"}, db: 4, master: "main"},
		"rediss+sentinel://a/main":               {kind: "sentinel", addrs: []string{"a:26379"}, tls: true, master: "main"},
		"redis://a:1?master_name=main&addr=b:2":  {kind: "sentinel", addrs: []string{"a:1", "b:2"}, master: "main"},
		"redis+sentinel://a:1?master_name=other": {kind: "sentinel", addrs: []string{"a:1"}, master: "other"},
	} {
		f := connectFlags{getenv: func(name string) string { return map[string]string{"REDIS_URL": text}[name] }}
		s, err := f.parse()
		require.NoError(t, err, text)
		rdb, err := s.client()
		require.NoError(t, err, text)
		got := want{kind: s.kind, user: s.user, secret: s.secret, master: s.master}
		switch c := rdb.(type) {
		case *redis.ClusterClient:
			o := c.Options()
			got.addrs, got.tls = o.Addrs, o.TLSConfig != nil
			require.Equal(t, []string{w.user, w.secret}, []string{o.Username, o.Password}, text)
			require.ElementsMatch(t, w.addrs, got.addrs, text)
			got.addrs = w.addrs
		case *redis.Client:
			o := c.Options()
			got.db, got.tls, got.addrs = o.DB, o.TLSConfig != nil, []string{o.Addr}
			require.Equal(t, []string{w.user, w.secret}, []string{o.Username, o.Password}, text)
			if s.kind == "sentinel" {
				got.addrs = append([]string{s.base.Host}, s.base.Query()["addr"]...)
			}
			require.True(t, o.ContextTimeoutEnabled)
		}
		require.Equal(t, w, got, text)
		require.NoError(t, rdb.Close())
	}
}

func TestCredentialsComeFromTheEnvironmentOrAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte("of the file\n"), 0o600))
	for _, c := range []struct {
		flags        connectFlags
		env          map[string]string
		user, secret string
	}{
		{connectFlags{}, map[string]string{"REDIS_PASSWORD": "p", "REDIS_USERNAME": "u"}, "u", "p"},
		{connectFlags{}, map[string]string{"REDIS_URL": "redis://a:b@host", "REDIS_PASSWORD": "p", "REDIS_USERNAME": "u"}, "a", "b"},
		{connectFlags{user: "c", passwordFile: file}, map[string]string{"REDIS_URL": "redis://a:b@host", "REDIS_PASSWORD": "p"}, "c", "of the file"},
		{connectFlags{url: "redis://d@host"}, map[string]string{"REDIS_URL": "redis://a:b@host", "REDIS_PASSWORD": "p"}, "d", "p"},
	} {
		c.flags.getenv = func(name string) string { return c.env[name] }
		s, err := c.flags.parse()
		require.NoError(t, err)
		require.Equal(t, []string{c.user, c.secret}, []string{s.user, s.secret})
	}
}

func TestNoErrorHasThePassword(t *testing.T) {
	const secret = "hunter2"
	for _, text := range []string{
		"redis://u:" + secret + "@host:port", "redis://u:" + secret + "%zz@host", "redis://u:" + secret + "@127.0.0.1:1", "redis://u:" + secret + "@127.0.0.1:1/x",
		"redis://u:" + secret + "@127.0.0.1:1?nonsense=1", "http://u:" + secret + "@host", "redis+sentinel://u:" + secret + "@host", "u:" + secret + "@host",
		"redis://u:" + secret + "@a,b", "redis://:" + secret + "/x@127.0.0.1:1",
	} {
		got := runIn(t, []string{"REDIS_URL=" + text}, "run", "x", "--connect-timeout", "10ms", "--", "true")
		require.NotContains(t, got.err+got.out, secret)
		require.NotZero(t, got.code)
		got = run(t, "", "run", "--redis", text, "x", "--connect-timeout", "10ms", "--", "true")
		require.Equal(t, 64, got.code, text)
		require.NotContains(t, got.err+got.out, secret)
	}
}

func TestAWrongPasswordIsSaidAtOnce(t *testing.T) {
	server := redistest.Start(t, "--requirepass", "right")
	for _, env := range [][]string{nil, {"REDIS_PASSWORD=wrong"}} {
		got := runIn(t, append(env, "REDIS_URL="+server.URL()), "run", "x", "--connect-timeout", "1h", "--", "true")
		require.Equal(t, 69, got.code)
		require.Regexp(t, "redlatch: redis refuses: (NOAUTH|WRONGPASS)", got.err)
		require.NotContains(t, got.err, "wrong\n")
	}
	require.Equal(t, 0, runIn(t, []string{"REDIS_PASSWORD=right", "REDIS_URL=" + server.URL()}, "run", "x", "--", "true").code)
}

func TestAllTopologiesWork(t *testing.T) {
	for kind, url := range map[string]func(t *testing.T) string{
		"cluster":           func(t *testing.T) string { return "redis+cluster://" + redistest.StartCluster(t, 2, 0).Nodes[0].Addr() },
		"node of a cluster": func(t *testing.T) string { return redistest.StartCluster(t, 2, 0).Nodes[1].URL() },
		"sentinels": func(t *testing.T) string {
			w := redistest.StartWatched(t)
			return "redis+sentinel://" + w.Addrs[0] + "," + w.Addrs[1] + "/" + w.Name
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			at := url(t)
			for _, name := range []string{"a", "b", "c", "d"} { // on all nodes
				got := run(t, at, "run", name, "--", "echo", "ran")
				require.Equal(t, result{0, "ran\n", ""}, got)
			}
		})
	}
}

func TestPlainNumbersAreSeconds(t *testing.T) {
	for text, want := range map[string]string{"30": "30s", "0.5": "500ms", "1h": "1h0m0s", "0": "0s", "1500us": "2ms"} {
		var d durationFlag
		require.NoError(t, d.Set(text))
		require.Equal(t, want, d.String())
	}
	for _, text := range []string{"", "-1", "-1s", "x", "NaN", "Inf", "1e30"} {
		require.Error(t, new(durationFlag).Set(text), text)
	}
}

// A password that was not escaped looks like a part of the path, the query or the fragment. No
// error may show it.
func TestNoErrorShowsAPasswordThatWasNotEscaped(t *testing.T) {
	for _, text := range []string{
		"redis://:123/s3cret@127.0.0.1:7791", "redis://:123?s3cret@127.0.0.1:7791", "redis://:123#s3cret@127.0.0.1:7791",
		"rediss://ann:12/3/s3cret@127.0.0.1", "redis+cluster://:123/s3cret@127.0.0.1:7791",
	} {
		for _, f := range []connectFlags{{url: text}, {getenv: func(string) string { return text }}} {
			if f.getenv == nil {
				f.getenv = func(string) string { return "" }
			}
			_, err := f.parse()
			require.ErrorContains(t, err, "must be escaped", text)
			require.NotContains(t, err.Error(), "s3cret")
			require.NotContains(t, err.Error(), "123")
		}
	}
}

func TestJSONEscapesWhatControlsATerminal(t *testing.T) {
	var b strings.Builder
	require.NoError(t, writeJSON(&b, "a\x7fb\x1bc\u202ed\u0085e"))
	require.Equal(t, `"a\u007fb\u001bc\u202ed\u0085e"`+"\n", b.String())
}

// A row without its last cells does not move those of the rows below.
func TestTablesStayAlignedBesideShortRows(t *testing.T) {
	var b strings.Builder
	require.NoError(t, table(&b, []string{"NAME", "WAITERS", "OLDEST"}, [][]string{{"a", "10"}, {"bc", "1", "2s"}}))
	require.Equal(t, "NAME  WAITERS  OLDEST\na     10\nbc    1        2s\n", b.String())
}

func TestTheNameOfTheProgramComesOnce(t *testing.T) {
	var b strings.Builder
	(&app{errOut: &b}).say("%v; the command ends", &lockerr.LostError{Name: "a", Reason: "gone"})
	require.Equal(t, 1, strings.Count(b.String(), "redlatch: "), b.String())
}

// Without --wait, run tells cron soon that Redis is down. With it, run waits for Redis too.
func TestWaitIsAlsoForRedis(t *testing.T) {
	t.Parallel()
	const nowhere, wait = "redis://127.0.0.1:1", time.Second
	args := []string{"run", "x", "--connect-timeout", "1ms", "--", "true"}
	require.Equal(t, 69, run(t, nowhere, args...).code)
	begin := time.Now()
	got := run(t, nowhere, slices.Insert(args, 2, "-w", wait.String())...)
	require.Equal(t, 69, got.code)
	require.GreaterOrEqual(t, time.Since(begin), wait, got.err)
}
