package redlatchui_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchui"
)

func anybody(*http.Request) (who string, allowed bool) { return "ann@example", true }

// onlyAnn allows requests that a login has marked.
func onlyAnn(r *http.Request) (who string, allowed bool) {
	who = r.Header.Get("X-User")
	return who, who == "ann"
}

// form is a request of a browser that submits a form of the page.
type form struct {
	action        string
	values        url.Values
	cookie, token string
	header        http.Header
}

func (s *scene) submit(f form) *httptest.ResponseRecorder {
	values := url.Values{}
	if f.token != "" {
		values.Set("token", f.token)
	}
	for name, value := range f.values {
		values[name] = value
	}
	r := httptest.NewRequest(http.MethodPost, "http://ops.example/actions/"+f.action, strings.NewReader(values.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for name, value := range f.header {
		r.Header[name] = value
	}
	if f.cookie != "" {
		r.AddCookie(&http.Cookie{Name: "redlatch-token", Value: f.cookie})
	}
	w := httptest.NewRecorder()
	s.page.ServeHTTP(w, r)
	return w
}

// confirm loads the page that asks, and returns its form.
func (s *scene) confirm(action string, values url.Values) form {
	s.t.Helper()
	w := s.get("/actions/" + action + "?" + values.Encode())
	require.Equal(s.t, http.StatusOK, w.Code, w.Body.String())
	token := regexp.MustCompile(`name="token" value="(\w+)"`).FindStringSubmatch(w.Body.String())
	require.NotNil(s.t, token, w.Body.String())
	cookies := w.Result().Cookies()
	require.Len(s.t, cookies, 1)
	require.True(s.t, cookies[0].HttpOnly)
	require.Equal(s.t, http.SameSiteStrictMode, cookies[0].SameSite)
	return form{action: action, values: values, cookie: cookies[0].Value, token: token[1]}
}

func TestThePageIsReadOnlyByDefault(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	hold := s.hold("door")
	require.NotContains(t, s.get("/lock?name=door").Body.String(), "actions/")
	values := url.Values{"name": {"door"}, "id": {hold.ID()}}
	require.Equal(t, http.StatusForbidden, s.get("/actions/release?"+values.Encode()).Code)
	secret := strings.Repeat("A", 26)
	for _, action := range []string{"release", "remove-waiter", "resize"} {
		w := s.submit(form{action: action, values: values, cookie: secret, token: secret})
		require.Equal(t, http.StatusForbidden, w.Code)
		require.Contains(t, w.Body.String(), "This page is read-only.")
	}
	s.requireHeld(hold)
}

func (s *scene) requireHeld(hold *redlatch.Hold) {
	s.t.Helper()
	info, err := s.locks.Mutex(hold.Name()).Inspect(s.t.Context())
	require.NoError(s.t, err)
	require.Equal(s.t, hold.ID(), info.Holder)
}

func TestReleaseNeedsTheTokenOfThisBrowser(t *testing.T) {
	t.Parallel()
	s := newScene(t, redlatchui.WithActions(anybody))
	hold := s.hold("door")
	values := url.Values{"name": {"door"}, "id": {hold.ID()}}
	right := s.confirm("release", values)
	for what, spoil := range map[string]func(*form){
		"no token":               func(f *form) { f.token = "" },
		"another token":          func(f *form) { f.token = strings.Repeat("B", len(f.token)) },
		"no cookie":              func(f *form) { f.cookie = "" },
		"neither":                func(f *form) { f.cookie, f.token = "", "" },
		"another browser":        func(f *form) { f.cookie = strings.Repeat("B", len(f.cookie)) },
		"from another site":      func(f *form) { f.header = http.Header{"Sec-Fetch-Site": {"cross-site"}} },
		"from a sibling site":    func(f *form) { f.header = http.Header{"Sec-Fetch-Site": {"same-site"}} },
		"from an old browser":    func(f *form) { f.header = http.Header{"Origin": {"https://evil.example"}} },
		"without an origin":      func(f *form) { f.header = http.Header{"Origin": {"null"}} },
		"a token in the address": func(f *form) { f.action, f.token = f.action+"?token="+f.token, "" },
	} {
		f := right
		spoil(&f)
		require.Equal(t, http.StatusForbidden, s.submit(f).Code, what)
	}
	require.Equal(t, http.StatusForbidden, s.get("/actions/remove?"+values.Encode()).Code/100*100+3, "an unknown action")
	s.requireHeld(hold)

	right.header = http.Header{"Sec-Fetch-Site": {"same-origin"}, "Origin": {"http://ops.example"}}
	w := s.submit(right)
	require.Equal(t, http.StatusSeeOther, w.Code)
	require.Equal(t, "/lock?name=door&done=released", w.Header().Get("Location"))
	info, err := s.locks.Mutex("door").Inspect(t.Context())
	require.NoError(t, err)
	require.False(t, info.Held())
	require.Contains(t, s.log.String(), "who=ann@example action=release name=door id="+hold.ID())
	require.Contains(t, s.get(w.Header().Get("Location")).Body.String(), "Released. The old holder works on")

	w = s.submit(right) // again, as with the back button
	require.Contains(t, w.Header().Get("Location"), "done=not-held")
	right.values.Set("id", "")
	require.Equal(t, http.StatusBadRequest, s.submit(right).Code, "not whichever holder there is")
	require.NotContains(t, s.get("/lock?name=door&done=%3Cb%3E").Body.String(), "class=\"done\"")
}

func TestOnlyThoseWhoAreAllowedChangeSomething(t *testing.T) {
	t.Parallel()
	s := newScene(t, redlatchui.WithActions(onlyAnn))
	hold := s.hold("door")
	secret := strings.Repeat("A", 26)
	f := form{action: "release", values: url.Values{"name": {"door"}, "id": {hold.ID()}}, cookie: secret, token: secret, header: http.Header{"X-User": {"bob"}}}
	require.NotContains(t, s.get("/lock?name=door").Body.String(), "actions/")
	require.Equal(t, http.StatusForbidden, s.get("/actions/release?"+f.values.Encode()).Code)
	require.Equal(t, http.StatusForbidden, s.submit(f).Code)
	s.requireHeld(hold)
	require.Contains(t, s.log.String(), "You may look at locks, and not change them.")
	f.header.Set("X-User", "ann")
	require.Equal(t, http.StatusSeeOther, s.submit(f).Code)
	require.Contains(t, s.log.String(), "who=ann")
}

func TestRemoveAWaiterAndResize(t *testing.T) {
	t.Parallel()
	s := newScene(t, redlatchui.WithActions(anybody))
	s.hold("door")
	s.wait("door")
	waiters, _, err := s.locks.FairMutex("door").Queue(t.Context(), 0, 1)
	require.NoError(t, err)
	page := s.get("/lock?name=door").Body.String()
	require.Contains(t, page, `<td role="cell" class="number place">1</td>`)
	require.Contains(t, page, waiters[0].ID)
	f := s.confirm("remove-waiter", url.Values{"name": {"door"}, "id": {waiters[0].ID}})
	require.Contains(t, s.submit(f).Header().Get("Location"), "done=removed")
	require.Contains(t, s.submit(f).Header().Get("Location"), "done=not-waiting")

	permit, err := s.locks.Semaphore("render", 2).Acquire(t.Context(), 1)
	require.NoError(t, err)
	defer func() { _ = permit.Release(context.Background()) }()
	f = s.confirm("resize", url.Values{"name": {"render"}})
	for _, limit := range []string{"", "0", "-1", "many"} {
		f.values.Set("limit", limit)
		require.Equal(t, http.StatusBadRequest, s.submit(f).Code, limit)
	}
	f.values.Set("limit", "5")
	require.Contains(t, s.submit(f).Header().Get("Location"), "done=resized")
	info, err := s.locks.Semaphore("render", 2).Inspect(t.Context())
	require.NoError(t, err)
	require.Equal(t, 5, info.Limit)
	page = s.get("/lock?name=render").Body.String()
	require.Contains(t, page, "1 of 5 in use")
	require.Contains(t, page, "Programs pass the limit 2.")
	f = s.confirm("release", url.Values{"name": {"render"}, "id": {permit.ID()}})
	require.Contains(t, s.submit(f).Header().Get("Location"), "done=released")
}
