package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/catalog"
	"github.com/redlatch/redlatch/internal/display"
)

type topFlags struct {
	listFlags
	once     bool
	sort     string
	interval durationFlag
}

const (
	defaultInterval  = time.Second
	shortestInterval = 100 * time.Millisecond
	longestInterval  = time.Hour
)

const topLong = `Show who holds and who waits, refreshed on the whole screen. PATTERN is a glob as in redlatch ls.

Keys: up and down, or k and j, move; enter opens a name, and esc goes back; / filters; w, o, h and n sort by waiters, oldest
wait, time held and name; q quits.

If Redis does not answer, the last reading stays on the screen, with its age. One reading is under way at a time, and
the pause after it is four times as long as it took, from --interval to ten seconds. So top does not keep a slow Redis busy.

Without a terminal, use --once for a table, or --json. Both read once.`

func newTopCommand(a *app) *cobra.Command {
	f := &topFlags{interval: durationFlag{value: defaultInterval}}
	cmd := &cobra.Command{
		Use:   "top [PATTERN]",
		Short: "Watch who holds and who waits, on the whole screen",
		Long:  topLong,
		Example: `  redlatch top
  redlatch top 'orders:*' --sort oldest
  redlatch top --once | head -n 20`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.top(cmd.Context(), f, append(args, "")[0])
		},
	}
	f.register(cmd)
	flags := cmd.Flags()
	flags.BoolVarP(&f.all, "all", "a", false, "also names that were used lately, and that nobody holds or waits for")
	flags.BoolVar(&f.once, "once", false, "print a table, and end")
	flags.BoolVar(&f.json, "json", false, "write JSON, and end")
	flags.StringVar(&f.sort, "sort", sortWaiters, "`ORDER`: "+strings.Join(sortOrders, ", "))
	flags.Var(&f.interval, "interval", "time between two readings")
	return cmd
}

// The orders of rows.
const (
	sortWaiters = "waiters"
	sortOldest  = "oldest"
	sortHeld    = "held"
	sortName    = "name"
)

var sortOrders = []string{sortWaiters, sortOldest, sortHeld, sortName}

func (f *topFlags) check(isTerminal bool) error {
	switch {
	case f.limit < 1:
		return usageErrorf("--limit must be at least 1, not %d", f.limit)
	case !slices.Contains(sortOrders, f.sort):
		return usageErrorf("--sort must be one of %s, not %s", strings.Join(sortOrders, ", "), quoted(f.sort))
	case f.interval.value < shortestInterval || f.interval.value > longestInterval:
		return usageErrorf("--interval must be from %s to %s, not %s", shortestInterval, longestInterval, f.interval.value)
	case !f.once && !f.json && !isTerminal:
		return usageErrorf("top needs a terminal that can show a whole screen: use --once for a table, or --json")
	}
	return nil
}

// top is redlatch top.
func (a *app) top(ctx context.Context, f *topFlags, pattern string) error {
	const noCursor = "dumb" // such as the shell of Emacs
	if err := f.check(isTerminal(a.in) && isTerminal(a.out) && a.getenv("TERM") != noCursor); err != nil {
		return err
	}
	if f.once || f.json {
		return a.topOnce(ctx, f, pattern)
	}
	// The warnings of the client would damage the screen, and say nothing that the screen does not.
	c, err := a.connect(ctx, 0, redlatch.WithLogger(newLogger(discard{})))
	if err != nil {
		return err
	}
	defer c.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := newTopModel(f, pattern, c.server.base.Host+unixPath(c.server.base))
	m.read = func(reading context.Context, q topQuery) topReading { return a.readTop(reading, c, f, pattern, q) }
	m.ctx, m.onKey = ctx, a.keyPressed
	return a.runTop(ctx, m)
}

type discard struct{}

// Write drops the text.
func (discard) Write(p []byte) (int, error) { return len(p), nil }

// runTop shows the model until the user or a signal ends it. The terminal is then as it was.
func (a *app) runTop(ctx context.Context, m *topModel) error {
	const framesPerSecond = 30 // a key shows within 33 ms, also over a slow line
	program := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(a.in), tea.WithOutput(a.out), tea.WithFPS(framesPerSecond), tea.WithoutSignalHandler())
	signals, stop := make(chan os.Signal, 1), make(chan struct{})
	defer close(stop)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	go func() {
		select {
		case s := <-signals:
			signal.Stop(signals) // another one kills, even if the terminal takes no output
			number, _ := s.(syscall.Signal)
			program.Send(topSignal(number))
		case <-stop:
			signal.Stop(signals)
		}
	}()
	_, err := program.Run()
	switch {
	case errors.Is(err, tea.ErrProgramPanic):
		return &exitError{exitSoftware, errors.New("this is a bug of redlatch top; the lines above say where")}
	case err != nil:
		return &exitError{exitUnavailable, fmt.Errorf("the terminal: %w", err)}
	}
	return m.result
}

// topQuery says what to read: the list, or one name.
type topQuery struct{ name string }

// topReading is what Redis said, or err.
type topReading struct {
	query     topQuery
	states    []catalog.State
	truncated bool
	now       time.Time // of the server
	at        time.Time // of this machine
	took      time.Duration
	err       error
}

// readTop reads once. It ends by itself, because the client of locks waits through an outage.
func (a *app) readTop(ctx context.Context, c *connection, f *topFlags, pattern string, q topQuery) topReading {
	ctx, cancel := context.WithTimeout(ctx, max(a.limits.reading, a.conn.timeout.value))
	defer cancel()
	const mostWaiters = 500
	begin := time.Now()
	r := topReading{query: q}
	if q.name != "" {
		s := catalog.New(c.rdb, c.locks).State(ctx, q.name, mostWaiters)
		r.states, r.now, r.err = []catalog.State{s}, c.now(ctx), s.Err
	} else {
		r.states, r.now, r.truncated, r.err = a.read(ctx, c, &f.listFlags, pattern)
	}
	r.at = time.Now()
	r.took = r.at.Sub(begin)
	if r.err == nil {
		r.err = firstUnavailable(ctx, r.states)
	}
	return r
}

// firstUnavailable returns the error of a reading that the end of its time, and so an outage, has
// cut off. An error of one name only, such as a name that redlatch refuses, stays with that name.
func firstUnavailable(ctx context.Context, states []catalog.State) error {
	if ctx.Err() == nil {
		return nil
	}
	for i := range states {
		if states[i].Err != nil {
			return states[i].Err
		}
	}
	return nil
}

// topOnce reads once, for scripts.
func (a *app) topOnce(ctx context.Context, f *topFlags, pattern string) error {
	c, err := a.connect(ctx, 0)
	if err != nil {
		return err
	}
	defer c.close()
	begin := time.Now()
	states, now, truncated, err := a.read(ctx, c, &f.listFlags, pattern)
	if err != nil {
		return err
	}
	took := time.Since(begin)
	if f.json {
		return writeJSON(a.out, topToJSON(states, f.sort, now, took, truncated))
	}
	if len(states) == 0 && !truncated {
		a.say("nobody holds or waits for a lock that top can see; see redlatch top --help for --all and --hashes")
		return nil
	}
	var cells [][]string
	for _, row := range sortRows(topRows(states, now), f.sort) {
		cells = append(cells, append([]string{display.Short(row.Name, 40)}, row.cells[1:]...))
	}
	if err := table(a.out, listHeader, cells); err != nil {
		return err
	}
	a.warnOfCut(&f.listFlags, truncated)
	return nil
}

// topRow is a mutex, or a semaphore.
type topRow struct {
	catalog.Row
	state   *catalog.State
	cells   []string // under listHeader
	waiters int      // in the queue, or else about how many clients wait for a plain mutex
	oldest  time.Duration
	held    time.Duration
}

func (r *topRow) key() string { return fmt.Sprint(r.Kind) + r.Name }

func topRows(states []catalog.State, now time.Time) (rows []topRow) {
	since := func(t time.Time) time.Duration {
		if t.IsZero() {
			return 0
		}
		return now.Sub(t)
	}
	for i := range states {
		for _, r := range states[i].Rows() {
			rows = append(rows, topRow{
				Row: r, state: &states[i], cells: listRow(&r, display.Safe(r.Name), now),
				waiters: r.Waiting + r.Listeners, oldest: since(r.Oldest), held: since(r.Since),
			})
		}
	}
	return rows
}

// sortRows puts the largest first, and equal ones in the order of their names.
func sortRows(rows []topRow, order string) []topRow {
	byWaiters := func(a, b *topRow) int { return cmp.Compare(b.waiters, a.waiters) }
	byOldest := func(a, b *topRow) int { return cmp.Compare(b.oldest, a.oldest) }
	slices.SortStableFunc(rows, func(a, b topRow) int {
		byName := cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.cells[1], b.cells[1]))
		switch order {
		case sortWaiters:
			return cmp.Or(byWaiters(&a, &b), byOldest(&a, &b), byName)
		case sortOldest:
			return cmp.Or(byOldest(&a, &b), byWaiters(&a, &b), byName)
		case sortHeld:
			return cmp.Or(cmp.Compare(b.held, a.held), byName)
		}
		return byName
	})
	return rows
}

// topJSON is the output of top --json: that of ls --json, with the order and two numbers for each
// name.
type topJSON struct {
	Time      time.Time     `json:"time"` // of the server
	Took      float64       `json:"took"` // seconds that the reading took
	Sort      string        `json:"sort"`
	Names     []topNameJSON `json:"names"`
	Truncated bool          `json:"truncated"`
}

type topNameJSON struct {
	nameJSON
	Waiters    int     `json:"waiters"`     // of the mutex and the semaphore
	OldestWait float64 `json:"oldest_wait"` // seconds; 0: nobody waits in a queue
}

func topToJSON(states []catalog.State, order string, now time.Time, took time.Duration, truncated bool) topJSON {
	out := topJSON{Time: now, Took: took.Seconds(), Sort: order, Names: []topNameJSON{}, Truncated: truncated}
	at := map[string]int{}
	for _, row := range sortRows(topRows(states, now), order) {
		i, known := at[row.state.Name]
		if !known {
			i = len(out.Names)
			at[row.state.Name] = i
			out.Names = append(out.Names, topNameJSON{nameJSON: toJSON(row.state, now)})
		}
		out.Names[i].Waiters += row.waiters
		out.Names[i].OldestWait = max(out.Names[i].OldestWait, row.oldest.Seconds())
	}
	return out
}
