package main

import (
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

var pageURL = regexp.MustCompile(`The page is at (http://(127\.0\.0\.1:\d+)/\S*) `)

// startUI returns the URL that the page says it has, and its address.
func startUI(t *testing.T, s *scene, args ...string) (p *process, link, address string) {
	t.Helper()
	p = command(t, []string{"REDIS_URL=" + s.url, "REDLATCH_PREFIX=svc:"}, append([]string{"ui", "--listen", "127.0.0.1:0"}, args...)...).start()
	p.awaitOut("(^C ends it)")
	found := pageURL.FindStringSubmatch(p.out.String())
	require.NotNil(t, found, p.out.String())
	return p, found[1], found[2]
}

func get(t *testing.T, client *http.Client, link string) (status int, body string) {
	t.Helper()
	r, err := client.Get(link)
	require.NoError(t, err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return r.StatusCode, string(text)
}

func newBrowser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	client := &http.Client{Jar: jar, Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

func TestUIIsReadOnlyAndEndsWithTheSignal(t *testing.T) {
	t.Parallel()
	p, link, address := startUI(t, newScene(t))
	require.Equal(t, "http://"+address+"/", link)
	browser := newBrowser(t)
	status, body := get(t, browser, link)
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, "read-only")
	require.Contains(t, body, ">door<")
	status, _ = get(t, browser, link+"actions/release?name=door&id=x")
	require.Equal(t, http.StatusForbidden, status)

	request, err := http.NewRequest(http.MethodGet, link, nil)
	require.NoError(t, err)
	request.Host = "evil.example:80" // a name that somebody else lets point to 127.0.0.1
	r, err := browser.Do(request)
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	require.Equal(t, http.StatusMisdirectedRequest, r.StatusCode)

	live, err := browser.Get(link + "events") // a viewer must not delay the end
	require.NoError(t, err)
	defer live.Body.Close()
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGINT))
	require.Equal(t, 0, p.wait(), p.err.String())
}

func TestUIActionsNeedTheKey(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	p, link, address := startUI(t, s, "--actions")
	form := "http://" + address + "/actions/release?" + url.Values{"name": {"door"}, "id": {s.hold.ID()}}.Encode()
	stranger := newBrowser(t)
	for _, key := range []string{"", "?key=", "?key=AAAAAAAAAAAAAAAAAAAAAAAAAA"} {
		status, _ := get(t, stranger, "http://"+address+"/"+key)
		require.Equal(t, http.StatusOK, status)
	}
	status, _ := get(t, stranger, form)
	require.Equal(t, http.StatusForbidden, status)

	browser := newBrowser(t)
	status, _ = get(t, browser, link)
	require.Equal(t, http.StatusOK, status)
	status, body := get(t, browser, form)
	require.Equal(t, http.StatusOK, status)
	token := regexp.MustCompile(`name="token" value="(\w+)"`).FindStringSubmatch(body)
	require.NotNil(t, token, body)
	r, err := browser.PostForm("http://"+address+"/actions/release", url.Values{"token": {token[1]}, "name": {"door"}, "id": {s.hold.ID()}})
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	require.Equal(t, http.StatusOK, r.StatusCode, "the page of the lock")
	p.awaitErr("action=release name=door id=" + s.hold.ID())
	require.NotContains(t, s.run(t, "show", "door").out, "holder:      "+s.hold.ID())
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 0, p.wait())
}

func TestUIRefusesToLetOtherHostsChangeLocks(t *testing.T) {
	t.Parallel()
	const nowhere = "redis://127.0.0.1:1"
	for _, args := range [][]string{
		{"--actions", "--listen", "0.0.0.0:0"}, {"--actions", "--listen", ":0"}, {"--actions", "--listen", "192.0.2.1:0"},
		{"--remote-actions"}, {"--listen", "nonsense"}, {"argument"},
	} {
		require.Equal(t, 64, run(t, nowhere, append([]string{"ui"}, args...)...).code, args)
	}
	remote := &uiFlags{listen: "0.0.0.0:0", actions: true, remoteActions: true}
	_, err := remote.address()
	require.NoError(t, err)
	require.Equal(t, 69, run(t, nowhere, "ui", "--listen", "127.0.0.1:0", "--connect-timeout", "1ms").code)
}

// 69 would send people to Redis.
func TestUIOnABusyPortIsNoFaultOfRedis(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	got := run(t, "", "ui", "--listen", listener.Addr().String())
	require.Equal(t, 1, got.code)
	require.Contains(t, got.err, "--listen takes another address")
}
