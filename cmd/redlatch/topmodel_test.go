package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/catalog"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/semaphore"
)

var update = flag.Bool("update", false, "write the golden files again")

// requireGolden compares a text with a file of testdata.
func requireGolden(t *testing.T, file, text string) {
	t.Helper()
	path := filepath.Join("testdata", file)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), text, "go test -run %s -update writes %s again", t.Name(), path)
}

// noon is the time of the readings, by the server's clock and that of this machine.
var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

const (
	holderID = "5f0c6f0e-6b8e-4d0a-9a38-0a3d1b8f3a11:7"
	waiterID = "a13a469b-6f3d-4339-ac5f-b1a5eccc06c8:3"
)

func ago(d time.Duration) time.Time { return noon.Add(-d) }

func waiter(description string, waits time.Duration, units int) lock.Waiter {
	return lock.Waiter{ID: waiterID, Description: description, Units: units, Since: ago(waits), Heartbeat: 5 * time.Second, HeartbeatLeft: 3 * time.Second}
}

// fixedReading is a list with one row of each kind.
func fixedReading() topReading {
	hostile := "evil\x1b[2J\u202e\nname"
	states := []catalog.State{
		{
			Entry: catalog.Entry{Name: "reports:nightly", Kinds: catalog.Mutex | catalog.FairQueue}, Subscribers: 2,
			Lock:    lock.Info{Holder: holderID, Description: "host-1 pid 421: report", Holds: 1, Remaining: 21 * time.Second, Fence: 1795690270949654, Since: ago(51 * time.Second)},
			Waiting: 2, Waiters: []lock.Waiter{waiter("host-2 pid 422: report", 40*time.Second, 1)},
		},
		{
			Entry: catalog.Entry{Name: "render:gpu", Kinds: catalog.Semaphore}, Subscribers: -1,
			Permits:       semaphore.Info{Limit: 3, Declared: 3, InUse: 2, Waiting: 3, Holders: []semaphore.Holder{{ID: holderID, Units: 2, Description: "render-2", Since: ago(2 * time.Hour), Remaining: 25 * time.Second}}},
			PermitWaiters: []lock.Waiter{waiter("render-4", 3*time.Second, 2)},
		},
		{
			Entry: catalog.Entry{Name: "orders:42", Kinds: catalog.Mutex}, Subscribers: 1,
			Lock: lock.Info{Holder: holderID, Description: "host-3 pid 9", Holds: 1, Remaining: 30 * time.Second, Since: ago(3 * time.Minute)},
		},
		{
			Entry: catalog.Entry{Name: hostile, Kinds: catalog.Mutex}, Subscribers: 0,
			Lock: lock.Info{Holder: holderID, Description: hostile, Holds: 1, Remaining: -1},
		},
		{Entry: catalog.Entry{Name: "broken", Kinds: catalog.Mutex}, Subscribers: -1, Err: errors.New("WRONGTYPE \x1b[31mthe hash at this key is not a mutex")},
		{
			Entry: catalog.Entry{Name: "名前:テスト:" + strings.Repeat("長い", 20), Kinds: catalog.Mutex}, Subscribers: 0,
			Lock: lock.Info{Holder: holderID, Description: strings.Repeat("説明", 30), Holds: 1, Remaining: time.Second, Since: ago(time.Second)},
		},
	}
	return topReading{states: states, now: noon, at: noon, took: 5 * time.Millisecond}
}

// newFixedTop is a model after its first reading. Without newReader, it must not read again.
func newFixedTop(t *testing.T) *topModel {
	t.Helper()
	f := &topFlags{sort: sortWaiters, interval: durationFlag{value: time.Second}}
	m := newTopModel(f, "", "127.0.0.1:6379")
	m.now, m.ctx = noon, t.Context()
	m.Init()
	m.Update(fixedReading())
	return m
}

// ownStyles are the sequences that top writes itself. Any other one came from Redis.
var ownStyles = regexp.MustCompile(`\x1b\[(?:1|2|7|33|1;31|1;4)?m`)

// screen returns the text of the screen. It fails unless each line fits.
func screen(t *testing.T, m *topModel) string {
	t.Helper()
	content := m.View().Content
	lines := strings.Split(content, "\n")
	require.Len(t, lines, m.height)
	for i, line := range lines {
		require.LessOrEqual(t, ansi.StringWidth(line), m.width, "line %d: %q", i, line)
		lines[i] = strings.TrimRight(ownStyles.ReplaceAllString(line, ""), " ")
	}
	text := strings.Join(lines, "\n") + "\n"
	for _, r := range text {
		require.False(t, r != '\n' && r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u202e', "%q in %q", r, text)
	}
	return text
}

func press(m *topModel, keys ...string) (cmd tea.Cmd) {
	named := map[string]tea.Key{
		"enter": {Code: tea.KeyEnter}, "esc": {Code: tea.KeyEscape}, "up": {Code: tea.KeyUp}, "down": {Code: tea.KeyDown}, "backspace": {Code: tea.KeyBackspace},
		"pgdown": {Code: tea.KeyPgDown}, "ctrl+c": {Code: 'c', Mod: tea.ModCtrl}, "ctrl+u": {Code: 'u', Mod: tea.ModCtrl}, "end": {Code: tea.KeyEnd}, "home": {Code: tea.KeyHome},
	}
	for _, name := range keys {
		key, ok := named[name]
		if !ok {
			key = tea.Key{Code: []rune(name)[0], Text: name}
		}
		_, cmd = m.Update(tea.KeyPressMsg(key))
	}
	return cmd
}

// firstColumn returns the beginnings of the rows.
func firstColumn(t *testing.T, m *topModel) (names []string) {
	t.Helper()
	lines := strings.Split(screen(t, m), "\n")
	for _, line := range lines[linesAbove : len(lines)-2] {
		if line != "" {
			names = append(names, strings.Fields(line[1:])[0])
		}
	}
	return names
}

func TestTheScreenOfTop(t *testing.T) {
	m := newFixedTop(t)
	requireGolden(t, "top-80x24.txt", screen(t, m))
	m.Update(tea.WindowSizeMsg{Width: 120, Height: 24})
	requireGolden(t, "top-120x24.txt", screen(t, m))
	m.Update(tea.WindowSizeMsg{Width: 40, Height: 10})
	requireGolden(t, "top-40x10.txt", screen(t, m))
}

func TestTheScreenOfOneName(t *testing.T) {
	m := newFixedTop(t)
	press(m, "/", "n", "i", "g", "enter", "enter")
	requireGolden(t, "top-name-from-list.txt", screen(t, m))
	one := fixedReading()
	one.query, one.states = topQuery{"reports:nightly"}, one.states[:1]
	crashed := waiter("host-9 pid 3: report", 30*time.Second, 1)
	crashed.HeartbeatLeft = 0
	one.states[0].Waiters = append(one.states[0].Waiters, crashed)
	m.Update(one)
	requireGolden(t, "top-name-80x24.txt", screen(t, m))
	press(m, "i")
	require.Contains(t, screen(t, m), waiterID)
	m.Update(tea.WindowSizeMsg{Width: 40, Height: 10})
	press(m, "end")
	requireGolden(t, "top-name-40x10.txt", screen(t, m))
}

func TestHostileNamesAreHarmlessOnTheScreen(t *testing.T) {
	m := newFixedTop(t)
	press(m, "n", "down")
	hostile := fixedReading().states[3]
	require.Equal(t, hostile.Name, m.shown[m.cursorNow()].state.Name)
	press(m, "enter")
	require.Contains(t, screen(t, m), `evil\x1b[2J\u202e\nname`)
	one := fixedReading()
	one.query, one.states = topQuery{hostile.Name}, []catalog.State{hostile}
	one.states[0].Kinds |= catalog.FairQueue | catalog.Semaphore
	bad := waiter(hostile.Name, time.Second, 1)
	bad.ID = hostile.Name
	one.states[0].Waiting, one.states[0].Waiters = 1, []lock.Waiter{bad}
	one.states[0].Permits = semaphore.Info{Limit: 1, InUse: 1, Waiting: 1, Holders: []semaphore.Holder{{ID: hostile.Name, Description: hostile.Name, Units: 1}}}
	one.states[0].PermitWaiters = []lock.Waiter{bad}
	m.Update(one)
	screen(t, m)
	press(m, "i", "end")
	screen(t, m)
	m.Update(topReading{query: one.query, err: errors.New(hostile.Name)})
	screen(t, m)
	press(m, "esc", "/")
	m.Update(tea.PasteMsg{Content: hostile.Name})
	screen(t, m)
	press(m, "enter")
	screen(t, m)
	m.address, m.pattern = hostile.Name, hostile.Name
	press(m, "esc")
	require.Contains(t, screen(t, m), `  evil\x1b`)
}

// Sizes that no terminal should have must not end the program.
func TestAnySizeWorks(t *testing.T) {
	for width := 1; width < 130; width += 3 {
		for _, height := range []int{1, 2, 3, 4, 5, 10, 60} {
			m := newFixedTop(t)
			m.Update(tea.WindowSizeMsg{Width: width, Height: height})
			screen(t, m)
			press(m, "end", "enter")
			screen(t, m)
			press(m, "esc", "/", "x")
			screen(t, m)
		}
	}
}

func TestTopSorts(t *testing.T) {
	m := newFixedTop(t)
	require.Equal(t, []string{"render:gpu", "reports:nightly", "orders:42"}, firstColumn(t, m)[:3])
	press(m, "o")
	require.Equal(t, []string{"reports:nightly", "render:gpu", "orders:42"}, firstColumn(t, m)[:3])
	press(m, "h")
	require.Equal(t, []string{"render:gpu", "orders:42", "reports:nightly"}, firstColumn(t, m)[:3])
	press(m, "n")
	require.Equal(t, []string{"broken", `evil\x1b[2J\u202e\nna…`, "orders:42", "render:gpu", "reports:nightly"}, firstColumn(t, m)[:5])
	press(m, "w")
	require.Equal(t, "render:gpu", firstColumn(t, m)[0])
}

// selected returns the beginning of the row with the mark.
func selected(t *testing.T, m *topModel) string {
	t.Helper()
	for line := range strings.Lines(screen(t, m)) {
		if strings.HasPrefix(line, ">") {
			return strings.Fields(line[1:])[0]
		}
	}
	return ""
}

func TestTheMarkStaysWithItsName(t *testing.T) {
	m := newFixedTop(t)
	require.Equal(t, "render:gpu", selected(t, m))
	press(m, "o")
	require.Equal(t, "reports:nightly", selected(t, m), "the first, until somebody moves")
	press(m, "down", "down")
	require.Equal(t, "orders:42", selected(t, m))
	press(m, "n")
	require.Equal(t, "orders:42", selected(t, m))
	without := fixedReading()
	without.states = append(without.states[:2], without.states[3:]...)
	m.Update(without)
	require.Equal(t, "render:gpu", selected(t, m), "the mark stays where it was")
	press(m, "up", "up", "up", "up")
	require.Equal(t, "broken", selected(t, m))
	without.states = nil
	m.Update(without)
	require.Empty(t, selected(t, m))
	require.Contains(t, screen(t, m), "Nobody holds or waits")
	press(m, "down", "enter", "end")
}

func TestALongListScrolls(t *testing.T) {
	m := newFixedTop(t)
	long := fixedReading()
	for i := range 100 {
		s := long.states[2]
		s.Name = "orders:" + string(rune('a'+i/10)) + string(rune('0'+i%10))
		long.states = append(long.states, s)
	}
	m.Update(long)
	press(m, "n", "end", "home", "pgdown")
	require.Contains(t, firstColumn(t, m), selected(t, m))
	for _, key := range []string{"end", "up", "pgdown", "home", "down"} {
		press(m, key)
		require.NotEmpty(t, selected(t, m), key)
	}
	press(m, "end")
	require.Len(t, firstColumn(t, m), m.bodyHeight(), "the last screen is full")
}

func TestTopFilters(t *testing.T) {
	m := newFixedTop(t)
	press(m, "/", "R", "E", "n", "q")
	require.Contains(t, screen(t, m), "/REnq_")
	require.Contains(t, screen(t, m), "No name and no holder")
	press(m, "backspace")
	require.Equal(t, []string{"render:gpu"}, firstColumn(t, m), "small and capital letters are alike, and q is a letter here")
	press(m, "enter")
	require.Contains(t, screen(t, m), "filter: REn")
	press(m, "esc")
	require.Len(t, firstColumn(t, m), 6)
	press(m, "/", "h", "o", "s", "t", "-", "3")
	require.Equal(t, []string{"orders:42"}, firstColumn(t, m), "the holder counts too")
	press(m, "ctrl+u")
	m.Update(tea.PasteMsg{Content: "gpu"})
	require.Equal(t, []string{"render:gpu"}, firstColumn(t, m))
	press(m, "esc")
	require.Len(t, firstColumn(t, m), 6)
	m.Update(tea.PasteMsg{Content: "gpu"})
	require.Len(t, firstColumn(t, m), 6, "a paste is no command")
}

// reader counts the readings under way. A reading ends when the test says so.
type reader struct {
	queries chan topQuery
	answers chan topReading
}

func newReader(m *topModel) *reader {
	r := &reader{make(chan topQuery, 10), make(chan topReading, 10)}
	m.read = func(ctx context.Context, q topQuery) topReading {
		r.queries <- q
		select {
		case answer := <-r.answers:
			answer.query = q
			return answer
		case <-ctx.Done():
			return topReading{query: q, err: ctx.Err()}
		}
	}
	return r
}

func TestOneReadingIsUnderWay(t *testing.T) {
	m := newFixedTop(t)
	r := newReader(m)
	_, cmd := m.Update(topDueRead(m.due))
	require.NotNil(t, cmd)
	done := make(chan tea.Msg, 1)
	go func() { done <- cmd() }()
	require.Equal(t, topQuery{}, <-r.queries)

	_, again := m.Update(topDueRead(m.due))
	require.Nil(t, again, "one is under way")
	press(m, "down") // keys work meanwhile
	require.NotEqual(t, "render:gpu", selected(t, m))

	// Another screen cuts the reading off, and its own begins when that has ended.
	require.Nil(t, press(m, "enter"))
	cutOff := (<-done).(topReading)
	require.ErrorIs(t, cutOff.err, context.Canceled)
	_, cmd = m.Update(cutOff)
	require.NotNil(t, cmd)
	require.NotContains(t, screen(t, m), "canceled")
	go func() { done <- cmd() }()
	require.Equal(t, topQuery{"reports:nightly"}, <-r.queries)
	one := fixedReading()
	one.states = one.states[:1]
	r.answers <- one
	m.Update(<-done)
	require.Equal(t, noon, m.one.at)
	require.False(t, m.underWay)
	stale := topDueRead(m.due)
	cmd = press(m, "esc")
	require.NotNil(t, cmd, "the list is read again")
	r.answers <- fixedReading()
	_, cmd = m.Update(cmd())
	require.NotNil(t, cmd)
	_, cmd = m.Update(stale)
	require.Nil(t, cmd, "the time of an earlier reading begins nothing")
	_, cmd = m.Update(topDueRead(m.due))
	require.NotNil(t, cmd)
}

func TestAnOutageShowsTheLastReading(t *testing.T) {
	m := newFixedTop(t)
	newReader(m)
	m.Update(topDueRead(m.due))
	m.Update(topClock(noon.Add(7 * time.Second)))
	require.Contains(t, screen(t, m), "Redis is slow: reading for 7s, the screen is 7s old")
	m.Update(topReading{at: noon.Add(8 * time.Second), err: errors.New("dial tcp: \x1b[31mrefused")})
	text := screen(t, m)
	require.Contains(t, text, `no reading for 8s, this is the last one: dial tcp: \x1b[31mrefused`)
	require.Contains(t, text, "reports:nightly")
	m.Update(topClock(noon.Add(3 * time.Minute)))
	require.Contains(t, screen(t, m), "no reading for 3m0s")
	m.Update(topDueRead(m.due))
	good := fixedReading()
	good.at = noon.Add(4 * time.Minute)
	m.Update(good)
	require.Contains(t, screen(t, m), "read in 5ms, every 1s\n")
	m.Update(topClock(good.at.Add(5 * time.Second)))
	require.Contains(t, screen(t, m), "5s ago")
}

func TestASlowServerGetsPauses(t *testing.T) {
	m := newFixedTop(t)
	for took, pause := range map[time.Duration]time.Duration{
		0: time.Second, 250 * time.Millisecond: time.Second, 500 * time.Millisecond: 2 * time.Second, 20 * time.Second: 10 * time.Second,
	} {
		require.Equal(t, pause, m.pause(&topReading{took: took}))
	}
	m.interval = time.Minute
	require.Equal(t, time.Minute, m.pause(&topReading{took: 20 * time.Second}))
}

func TestReadingsShowWhetherTheHolderLives(t *testing.T) {
	m := newFixedTop(t)
	press(m, "o", "enter")
	read := func(after, left time.Duration, holder string) string {
		one := fixedReading()
		one.query, one.states, one.now = topQuery{"reports:nightly"}, one.states[:1], noon.Add(after)
		one.states[0].Lock.Remaining, one.states[0].Lock.Holder = left, holder
		m.Update(one)
		_, text, _ := strings.Cut(screen(t, m), "alive:       ")
		text, _, _ = strings.Cut(text, "\n")
		return text
	}
	require.Equal(t, "not known yet: no renewal for 0.0s", read(0, 20*time.Second, holderID))
	require.Equal(t, "not known yet: no renewal for 5.0s", read(5*time.Second, 15*time.Second, holderID))
	require.Equal(t, "yes: it renewed its lease, seen 0.0s ago", read(6*time.Second, 29*time.Second, holderID))
	require.Equal(t, "yes: it renewed its lease, seen 2.0s ago", read(8*time.Second, 27*time.Second, holderID))
	require.Equal(t, "no renewal for 15s: the holder has crashed, is paused or is cut …", read(21*time.Second, 14*time.Second, holderID))
	require.Equal(t, "not known yet: no renewal for 0.0s", read(22*time.Second, 30*time.Second, waiterID), "another holder")
	require.Equal(t, "unknown: the lease has no end", read(9*time.Second, -1, waiterID))
	require.Empty(t, read(9*time.Second, 0, ""))
}

func TestHowTopEnds(t *testing.T) {
	for key, code := range map[string]int{"q": 0, "ctrl+c": 130} {
		m := newFixedTop(t)
		cmd := press(m, key)
		require.Equal(t, tea.QuitMsg{}, cmd())
		require.Equal(t, code, exitCode(m.result))
	}
	m := newFixedTop(t)
	press(m, "/")
	require.Equal(t, tea.QuitMsg{}, press(m, "ctrl+c")())
	_, cmd := m.Update(topSignal(15))
	require.Equal(t, tea.QuitMsg{}, cmd())
	require.Equal(t, 143, exitCode(m.result))

	m = newTopModel(&topFlags{}, "", "")
	refused := errors.New("NOPERM")
	_, cmd = m.Update(topReading{err: refused})
	require.Equal(t, tea.QuitMsg{}, cmd(), "the first reading says what is wrong")
	require.Equal(t, refused, m.result)
}
