package redlatchui_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/redlatchui"
)

var update = flag.Bool("update", false, "write the pictures of docs/images anew")

// guardTime ends a test that waits for something that does not happen.
const guardTime = time.Minute

// browser is a Chromium without a window.
type browser struct {
	ctx context.Context
	axe string
}

// tab is a page in the browser. It notes everything that a page must not do.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	problems []string
}

// startBrowser skips the test if there is no browser, or fails it if one is required.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	missing := func(what string) {
		t.Helper()
		text := "left out: what only a browser shows; no " + what + ". scripts/browser.sh installs it"
		if os.Getenv("REDLATCH_REQUIRE_BROWSER") == "1" {
			t.Fatal(text)
		}
		t.Skip(text)
	}
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil && path == "" {
			path = found
		}
	}
	if path == "" {
		missing("chromium in PATH")
	}
	scripts, err := filepath.Glob(filepath.Join("..", ".cache", "axe", "*", "axe.min.js"))
	require.NoError(t, err)
	if len(scripts) == 0 {
		missing("axe-core in .cache/axe")
	}
	axe, err := os.ReadFile(scripts[len(scripts)-1])
	require.NoError(t, err)
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WSURLReadTimeout(guardTime),
		chromedp.Flag("force-color-profile", "srgb"), chromedp.Flag("hide-scrollbars", true),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")) // nothing outside is reached
	allocator, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancelBrowser := chromedp.NewContext(allocator)
	t.Cleanup(cancelBrowser)
	require.NoError(t, chromedp.Do(ctx)) // starts it
	return &browser{ctx: ctx, axe: string(axe)}
}

func (b *browser) open(t *testing.T) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx)
	tb := &tab{t: t, ctx: ctx}
	t.Cleanup(func() {
		cancel()
		tb.mu.Lock()
		defer tb.mu.Unlock()
		require.Empty(t, tb.problems, "dialogs, errors of scripts, and what CSP has blocked")
	})
	require.NoError(t, chromedp.Do(ctx)) // opens it; a context with a time would close it
	require.NoError(t, chromedp.Listen(ctx, func(event any) {
		tb.mu.Lock()
		defer tb.mu.Unlock()
		switch e := event.(type) {
		case *page.EventJavascriptDialogOpening:
			tb.problems = append(tb.problems, "dialog: "+e.Message)
		case *runtime.EventExceptionThrown:
			tb.problems = append(tb.problems, "exception: "+e.ExceptionDetails.Text)
		case *cdplog.EventEntryAdded:
			if e.Entry.Level == cdplog.EntryLevelError {
				tb.problems = append(tb.problems, e.Entry.Text+" "+e.Entry.URL)
			}
		}
	}))
	call(tb, cdplog.Enable, cdp.Empty{})
	return tb
}

func (tb *tab) run(steps ...chromedp.Action[chromedp.Void]) {
	tb.t.Helper()
	ctx, cancel := context.WithTimeout(tb.ctx, guardTime)
	defer cancel()
	require.NoError(tb.t, chromedp.Do(ctx, steps...))
}

func (tb *tab) open(link string) {
	tb.t.Helper()
	tb.run(chromedp.Navigate(link))
}

// click clicks the first element that a selector finds, and waits until the next page shows another
// one.
func (tb *tab) click(selector, next string) {
	tb.t.Helper()
	tb.run(chromedp.Click(chromedp.CSS(selector)), chromedp.WaitVisible(chromedp.CSS(next)))
}

// call sends a command to the browser.
func call[P, R any](tb *tab, command cdp.Command[P, R], params P) {
	tb.t.Helper()
	tb.run(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, command, params)
		return err
	}))
}

// eval runs an expression, and returns its value.
func eval[T any](tb *tab, expression string) T {
	tb.t.Helper()
	value, err := tryEval[T](tb, expression)
	require.NoError(tb.t, err, expression)
	return value
}

func tryEval[T any](tb *tab, expression string) (T, error) {
	ctx, cancel := context.WithTimeout(tb.ctx, guardTime)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// await waits until an expression is true. The page may change to another one meanwhile. The
// evaluation in progress then has no value.
func (tb *tab) await(expression string) {
	tb.t.Helper()
	const pageChanged = -32000
	for end := time.Now().Add(guardTime); ; time.Sleep(20 * time.Millisecond) {
		is, err := tryEval[bool](tb, "!!document.body && "+expression)
		if refused, ok := errors.AsType[*cdproto.Error](err); !ok || refused.Code != pageChanged {
			require.NoError(tb.t, err, expression)
		}
		if is {
			return
		}
		if time.Now().After(end) {
			tb.t.Fatalf("waited in vain for %s; the page has %s", expression, eval[string](tb, "document.body.innerText"))
		}
	}
}

// text is true if the page shows a text.
func shows(text string) string {
	quoted, _ := json.Marshal(text)
	return fmt.Sprintf("document.body.innerText.includes(%s)", quoted)
}

func (tb *tab) look(width, height int64, scheme string) {
	tb.t.Helper()
	call(tb, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1})
	call(tb, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
}

// serve serves a page on a loopback address.
func serve(t *testing.T, h *redlatchui.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(func() {
		require.NoError(t, h.Close(context.Background()))
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

// There is one browser, because its start takes longer than the tests.
func TestInChromium(t *testing.T) {
	t.Parallel()
	b := startBrowser(t)
	for name, test := range map[string]func(*testing.T, *browser){
		"axe-core finds nothing serious":       testAccessibility,
		"the page follows Redis":               testLiveUpdates,
		"hostile text runs nothing":            testHostileText,
		"a lock is released":                   testRelease,
		"it works without JavaScript":          testWithoutJavaScript,
		"ten thousand locks stay usable":       testTenThousandLocks,
		"the focus stays, and the page pauses": testFocusAndPause,
		"pictures":                             testPictures,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, b)
		})
	}
}

// busyScene has something on each page.
func busyScene(t *testing.T) (s *scene, hold *redlatch.Hold) {
	t.Helper()
	losses := redlatchui.NewLosses()
	s = newScene(t, redlatchui.WithActions(anybody), redlatchui.WithLosses(losses))
	workers := s.locks
	hold = s.hold("reports:monthly")
	for i := range 4 {
		s.locks = s.worker(i + 2)
		s.wait("reports:monthly")
		s.hold(fmt.Sprintf("orders:%d", 4200+i*17))
	}
	for i, units := range []int{3, 1, 2} {
		permit, err := s.worker(i+6).Semaphore("render:gpu", 6).Acquire(t.Context(), units)
		require.NoError(t, err)
		t.Cleanup(func() { _ = permit.Release(context.Background()) })
	}
	placed := make(chan struct{}, 1)
	s.inBackground(placed, func(ctx context.Context, option redlatch.LockOption) {
		_, _ = s.locks.Semaphore("render:gpu", 6, option).Acquire(ctx, 2)
	})
	s.locks = workers
	return s, hold
}

type axeResult struct {
	ID, Impact, Help string
	Nodes            []struct{ HTML string }
}

func testAccessibility(t *testing.T, b *browser) {
	s, hold := busyScene(t)
	names := hostileScene(t, s)
	url := serve(t, s.page)
	pages := map[string]string{
		"list": "/", "empty list": "/?q=nothing", "mutex": lockLink("reports:monthly"), "semaphore": lockLink("render:gpu"), "long name": lockLink(names[len(names)-2]),
		"confirm": "/actions/release?name=reports:monthly&id=" + hold.ID(), "resize": "/actions/resize?name=render:gpu", "message": "/lock", "unknown": lockLink("nobody"), "unusable": lockLink(names[12]),
	}
	tb := b.open(t)
	for name, link := range pages {
		tb.open(url + link)
		eval[chromedp.Void](tb, b.axe+";0")
		for _, width := range []int64{1200, 360} {
			for _, scheme := range []string{"light", "dark"} {
				if isMain := name == "list" || name == "mutex"; !isMain && (width == 1200) != (scheme == "light") {
					continue // the others have two of the four looks
				}
				tb.look(width, 800, scheme)
				var found []axeResult
				text := eval[string](tb, `axe.run().then(r => JSON.stringify(r.violations))`)
				require.NoError(t, json.Unmarshal([]byte(text), &found))
				for _, f := range found {
					require.NotContains(t, []string{"serious", "critical"}, f.Impact, "%s, %s, %d: %s: %s %v", name, scheme, width, f.ID, f.Help, f.Nodes)
				}
				require.LessOrEqual(t, eval[int64](tb, "document.documentElement.scrollWidth"), width, "%s at %d needs no sideways scrolling", name, width)
			}
		}
	}
	tb.mu.Lock()
	defer tb.mu.Unlock()
	for i, p := range tb.problems { // the page that only says what is wrong has the status 400
		if strings.HasSuffix(p, "/lock") && strings.Contains(p, "400") {
			tb.problems = append(tb.problems[:i], tb.problems[i+1:]...)
			return
		}
	}
}

func testLiveUpdates(t *testing.T, b *browser) {
	s := newScene(t)
	url := serve(t, s.page)
	tb := b.open(t)
	tb.open(url + "/")
	require.True(t, eval[bool](tb, shows("Nobody has used a lock lately.")))
	hold := s.hold("door")
	tb.await(shows("door"))
	tb.await(`document.getElementById("connection").textContent === "Live"`)
	s.wait("door")
	tb.await(`[...document.querySelectorAll("tbody tr")].some(r => r.cells[4].innerText === "1")`)
	tb.click("td.name a", "h1.lockname")
	tb.await(shows(hold.ID()))
	require.NoError(t, hold.Unlock(t.Context()))
	tb.await("!" + shows("Place")) // the waiter has it
	tb.await(`document.querySelectorAll(".strip rect").length > 1`)
	s.link.Down()
	tb.await(shows("Redis could not be read."))
	s.link.Up()
	tb.await("!" + shows("Redis could not be read."))
}

func testHostileText(t *testing.T, b *browser) {
	s := newScene(t, redlatchui.WithActions(anybody))
	names := hostileScene(t, s)
	url := serve(t, s.page)
	tb := b.open(t)
	tb.open(url + "/")
	require.EqualValues(t, len(names), eval[int](tb, `document.querySelectorAll("tbody tr").length`))
	s.hold("zz-last") // so that a live page comes
	tb.await(shows("zz-last"))
	const foreign = `[...document.querySelectorAll("main script, main img, main b, [onerror], [onmouseover]")].length`
	require.Zero(t, eval[int](tb, foreign))
	for _, name := range names {
		tb.open(url + lockLink(name))
		require.Zero(t, eval[int](tb, foreign), name)
	}
}

func testRelease(t *testing.T, b *browser) {
	s := newScene(t, redlatchui.WithActions(anybody))
	hold := s.hold("door")
	url := serve(t, s.page)
	tb := b.open(t)
	tb.open(url + lockLink("door"))
	tb.click("section .title a.button", ".question")
	require.True(t, eval[bool](tb, shows("Take the mutex")))
	s.requireHeld(hold)
	tb.click("button.danger", ".done")
	require.True(t, eval[bool](tb, shows("Released.")))
	info, err := s.locks.Mutex("door").Inspect(t.Context())
	require.NoError(t, err)
	require.False(t, info.Held())

	// A page of another site sends the same form.
	s.locks = s.worker(2) // the first one believes in its hold until its next renewal
	other := s.hold("door")
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<form method="post" action="%s/actions/release"><input name="name" value="door"><input name="id" value="%s"><input name="token" value="x"><button>go</button></form>`, url, other.ID())
	}))
	defer evil.Close()
	tb = b.open(t)
	tb.open(evil.URL)
	tb.click("button", ".message")
	s.requireHeld(other)
	tb.mu.Lock()
	tb.problems = nil // the refusal has the status 403
	tb.mu.Unlock()
}

func testWithoutJavaScript(t *testing.T, b *browser) {
	s := newScene(t, redlatchui.WithActions(anybody))
	s.hold("door")
	s.hold("gate")
	url := serve(t, s.page)
	tb := b.open(t)
	call(tb, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	tb.open(url + "/")
	require.True(t, eval[bool](tb, shows("Reload the page for a new reading.")))
	tb.run(chromedp.SendKeys(chromedp.CSS("input[name=q]"), "doo"))
	tb.run(chromedp.Click(chromedp.CSS(".filter button")))
	tb.await(`document.querySelectorAll("tbody tr").length === 1`)
	tb.click("td.name a", "h1.lockname")
	tb.click("section .title a.button", ".question")
	tb.click("button.danger", ".done")
	require.Contains(t, s.log.String(), "action=release name=door")
	require.LessOrEqual(t, s.counts.of("scan"), 2, "nobody watches: a reading for each load of the list at most")
}

func testTenThousandLocks(t *testing.T, b *browser) {
	const locks = 10_000
	rdb := redistest.Start(t).Client(t)
	for from := 0; from < locks; from += 1000 {
		_, err := rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for i := from; i < from+1000; i++ {
				name := fmt.Sprintf("orders:%05d", i)
				p.HSet(t.Context(), name, fmt.Sprintf("5f0c6f0e-6b8e-4d0a-9a38-0a3d1b8f3a11:%d", i+1), 1, "redlatch:about", "worker")
				p.PExpire(t.Context(), name, time.Hour)
				p.Set(t.Context(), "redisson_lock_token:{"+name+"}", i+1, time.Hour)
			}
			return nil
		})
		require.NoError(t, err)
	}
	h, err := redlatchui.New(rdb, newLocks(t, rdb))
	require.NoError(t, err)
	begin := time.Now()
	require.Less(t, ask(h, "/").Body.Len(), 100_000, "bytes of the page")
	t.Logf("the first reading of %d locks took %v", locks, time.Since(begin).Round(time.Millisecond))
	url := serve(t, h)
	tb := b.open(t)
	tb.open(url + "/")
	require.True(t, eval[bool](tb, shows("1–50 of 10000")))
	require.Equal(t, 50, eval[int](tb, `document.querySelectorAll("tbody tr").length`))
	tb.run(chromedp.SendKeys(chromedp.CSS("input[name=q]"), "S:09999"))
	tb.run(chromedp.Click(chromedp.CSS(".filter button")))
	tb.await(shows("1–1 of 1; 10000 used lately"))
	require.NoError(t, rdb.HSet(t.Context(), "orders:09999", "redlatch:about", "another worker").Err())
	tb.await(shows("another worker"))
}

func testFocusAndPause(t *testing.T, b *browser) {
	s := newScene(t)
	for i := range 5 {
		s.hold(fmt.Sprintf("door:%d", i))
	}
	url := serve(t, s.page)
	tb := b.open(t)
	tb.open(url + "/")
	eval[chromedp.Void](tb, `window.updates = 0; window.link = document.querySelectorAll("td.name a")[3]; link.focus();
		new MutationObserver(() => updates++).observe(document.getElementById("live-table"), {subtree: true, childList: true, characterData: true}); 0`)
	tb.await(`window.updates > 1`)
	s.wait("door:4") // becomes the first row
	tb.await(`document.querySelector("td.name a").innerText === "door:4"`)
	require.True(t, eval[bool](tb, `document.activeElement === link && link.innerText === "door:3"`), "the focus is on the same lock")
	tb.run(chromedp.Click(chromedp.CSS("#pause")))
	tb.await(`document.getElementById("connection").textContent === "Paused"`)
	awaitNobody(t, s)
	tb.run(chromedp.Click(chromedp.CSS("#pause")))
	tb.await(`document.getElementById("connection").textContent === "Live"`)
}

// awaitNobody waits until the page has no viewer: then it sends no more commands.
func awaitNobody(t *testing.T, s *scene) {
	t.Helper()
	h := s.newPage(redlatchui.WithMaxViewers(1)) // other pages do not count
	defer func() { require.NoError(t, h.Close(context.Background())) }()
	for end := time.Now().Add(guardTime); ; {
		before := s.counts.of("time") // once for each reading
		v := watch(t, h, "/lock/events?name=door:0")
		for v.pages() < 3 {
			if time.Now().After(end) {
				t.Fatal("the page still reads")
			}
			time.Sleep(10 * time.Millisecond)
		}
		v.leave()
		if s.counts.of("time")-before <= v.pages()+1 { // only those of this viewer
			return
		}
	}
}

func testPictures(t *testing.T, b *browser) {
	s, _ := busyScene(t)
	url := serve(t, s.page)
	tb := b.open(t)
	for _, p := range []struct {
		file, link, scheme string
		width, height      int64
	}{
		{"page-list.png", "/", "light", 1100, 690},
		{"page-lock.png", lockLink("render:gpu"), "dark", 1100, 600},
	} {
		tb.look(p.width, p.height, p.scheme)
		tb.open(url + p.link)
		tb.await(`document.getElementById("connection").textContent === "Live"`)
		picture, err := chromedp.Run(tb.ctx, chromedp.CaptureScreenshot())
		require.NoError(t, err)
		require.Less(t, len(picture), 150_000, p.file)
		path := filepath.Join("..", "docs", "images", p.file)
		if *update {
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, picture, 0o644))
		} else if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			t.Fatalf("%s is missing: run the test with -update", path)
		}
	}
}
