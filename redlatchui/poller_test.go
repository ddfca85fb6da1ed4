package redlatchui_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/redlatchui"
)

// The test ends only when no goroutine of the page is left. It does not call Close.
func TestFiftyViewersCostOneScanASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.hold("door")
		var viewers []*viewer
		for i := range 50 {
			link := fmt.Sprintf("/events?q=%.*s&sort=name&page=%d", i%5, "door", i)
			if i%10 == 0 {
				link = "/lock/events?name=door"
			}
			viewers = append(viewers, watch(t, s.page, link))
		}
		time.Sleep(20*time.Second + tickHalf)
		scans := s.counts.of("scan")
		require.LessOrEqual(t, scans, 21)
		require.Greater(t, scans, 15, "it does read")
		for _, v := range viewers {
			require.Greater(t, v.pages(), 15)
			require.Contains(t, v.lastPage(), "worker-1")
		}
		for range 50 { // pages that load meanwhile share the reading
			require.Contains(t, s.get("/").Body.String(), "worker-1")
		}
		require.LessOrEqual(t, s.counts.of("scan"), scans+1)
		for _, v := range viewers {
			v.leave()
		}
		synctest.Wait()
		before := s.counts.of("all")
		time.Sleep(time.Hour)
		require.Equal(t, before, s.counts.of("all"), "nobody looks")
		v := watch(t, s.page, "/events")
		time.Sleep(tickHalf)
		require.Equal(t, 1, v.pages())
		v.leave()
	})
}

const tickHalf = 500 * time.Millisecond

// Viewers who come and go all the time cost no more than one who stays.
func TestReloadsCostNoMoreScans(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.hold("door")
		for range 100 {
			s.get("/")
			v := watch(t, s.page, "/events")
			time.Sleep(100 * time.Millisecond)
			v.leave()
		}
		require.LessOrEqual(t, s.counts.of("scan"), 11)
		require.Greater(t, s.counts.of("scan"), 5)
	})
}

// A page of a lock needs no list.
func TestThePageOfALockNeedsNoScan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		hold := s.hold("door")
		v := watch(t, s.page, "/lock/events?name=door")
		time.Sleep(5*time.Second + tickHalf)
		require.Contains(t, v.lastPage(), hold.ID())
		require.Zero(t, s.counts.of("scan"))
		v.leave()
	})
}

func TestASlowViewerDelaysNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, redlatchui.WithMaxViewers(2))
		s.hold("door")
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		stuck := &writer{header: http.Header{}, stuck: make(chan struct{})}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.page.ServeHTTP(stuck, httptest.NewRequest(http.MethodGet, "/events", nil).WithContext(ctx))
		}()
		synctest.Wait()
		v := watch(t, s.page, "/events")
		time.Sleep(5*time.Second + tickHalf)
		require.Greater(t, v.pages(), 4)
		select {
		case <-ended:
			t.Fatal("it was still reading")
		default:
		}
		time.Sleep(10 * time.Second)
		select { // it does not occupy its place for ever
		case <-ended:
		default:
			t.Fatal("the slow viewer is still there")
		}
		v.leave()
	})
}

func TestTooManyViewersAreRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, redlatchui.WithMaxViewers(2))
		first, second := watch(t, s.page, "/events"), watch(t, s.page, "/lock/events?name=door")
		synctest.Wait()
		third := watch(t, s.page, "/events")
		synctest.Wait()
		select {
		case <-third.done:
		default:
			t.Fatal("there are two already")
		}
		require.Equal(t, http.StatusServiceUnavailable, third.status)
		require.Contains(t, third.text(), "Too many live pages are open.")
		require.Equal(t, http.StatusOK, s.get("/").Code, "it still loads")
		first.leave() // makes room
		fourth := watch(t, s.page, "/events")
		time.Sleep(tickHalf)
		require.Equal(t, 1, fourth.pages())
		second.leave()
		fourth.leave()
	})
}

// Close ends live pages, also one whose viewer does not read, and leaves no goroutine.
func TestCloseEndsLivePages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.hold("door")
		v := watch(t, s.page, "/events")
		stuck := &writer{header: http.Header{}, stuck: make(chan struct{})}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.page.ServeHTTP(stuck, httptest.NewRequest(http.MethodGet, "/events", nil))
		}()
		time.Sleep(tickHalf)
		begin := time.Now()
		require.NoError(t, s.page.Close(t.Context()))
		require.Less(t, time.Since(begin), time.Second, "by the clock of the bubble")
		require.False(t, stuck.writing.Load(), "Close has waited for it")
		<-v.done
		<-ended
		require.NoError(t, s.page.Close(t.Context()), "again")
		late := watch(t, s.page, "/events")
		<-late.done
		require.Equal(t, http.StatusServiceUnavailable, late.status)
		require.Contains(t, s.get("/").Body.String(), "worker-1", "pages still load")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = s.page.Close(ctx) // must not hang
	})
}

func TestAHeartbeatKeepsTheConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		v := watch(t, s.page, "/events")
		time.Sleep(16 * time.Second)
		require.Contains(t, v.text(), "\n: heartbeat\n\n")
		require.Equal(t, "text/event-stream", v.header.Get("Content-Type"))
		for line := range strings.Lines(v.text()) {
			require.Regexp(t, `^(: \w+|event: page|data: .*|)\n$`, line)
		}
		v.leave()
	})
}

func TestAnOutageIsShownWithTheLastGoodReading(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.hold("door")
		list, lock := watch(t, s.page, "/events"), watch(t, s.page, "/lock/events?name=door")
		time.Sleep(3*time.Second + tickHalf)
		s.link.Down()
		last := time.Now().UTC().Format("15:04:05 UTC")
		time.Sleep(20 * time.Second)
		for _, v := range []*viewer{list, lock} {
			require.Contains(t, v.lastPage(), "Redis could not be read.")
			require.Regexp(t, `The last good reading was at \d\d:\d\d:\d\d UTC, (1[5-9]|2\d)s ago\.`, v.lastPage())
			require.Contains(t, v.lastPage(), "worker-1", "what was read last")
		}
		require.Contains(t, list.lastPage(), last[:6])
		require.Contains(t, s.get("/").Body.String(), "Redis could not be read.")
		require.Contains(t, s.get("/lock?name=other").Body.String(), "There has been no good reading.")
		s.link.Up()
		time.Sleep(20 * time.Second)
		for _, v := range []*viewer{list, lock} {
			require.NotContains(t, v.lastPage(), "Redis could not be read.")
			require.Contains(t, v.lastPage(), "worker-1")
		}
		list.leave()
		lock.leave()
	})
}

func TestTheTimelineHasTheFencesThatThePageSaw(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		first := s.hold("door")
		v := watch(t, s.page, "/lock/events?name=door")
		time.Sleep(3*time.Second + tickHalf)
		require.NoError(t, first.Unlock(t.Context()))
		quick := s.hold("door") // nobody sees it
		require.NoError(t, quick.Unlock(t.Context()))
		time.Sleep(2 * time.Second)
		last := s.hold("door")
		time.Sleep(2 * time.Second)
		page := v.lastPage()
		require.Contains(t, page, "This page has watched the mutex since ")
		for _, fence := range []int64{first.Fence(), quick.Fence(), last.Fence()} {
			require.Contains(t, page, fmt.Sprintf(`<td role="cell" class="mono">%d</td>`, fence))
		}
		require.Contains(t, page, "it came and went between two readings")
		require.Contains(t, page, `<tr role="row" class="now" data-key="`+fmt.Sprint(last.Fence()))
		v.leave()

		time.Sleep(time.Minute) // it saw nothing meanwhile
		page = s.get("/lock?name=door").Body.String()
		require.Contains(t, page, fmt.Sprint(last.Fence()))
		require.NotContains(t, page, fmt.Sprint(first.Fence()))
	})
}
