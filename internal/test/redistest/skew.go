package redistest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// skewSource is a library that a server is preloaded with. The wall clock of the server is that of
// the system plus an offset in microseconds.
const skewSource = `
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
static long long offset;
__attribute__((constructor)) static void start(void) { offset = atoll(getenv("REDISTEST_SKEW")); }
int gettimeofday(struct timeval *tv, void *tz) {
	static int (*real)(struct timeval *, void *);
	if (!real) real = dlsym(RTLD_NEXT, "gettimeofday");
	int r = real(tv, tz);
	long long us = tv->tv_sec * 1000000LL + tv->tv_usec + offset;
	tv->tv_sec = us / 1000000;
	tv->tv_usec = us % 1000000;
	return r;
}
`

// StartSkewed is Start with a server whose wall clock is ahead of that of the system, or behind it
// if ahead is negative. It needs gcc, and skips the test without it unless servers are required.
func StartSkewed(t testing.TB, ahead time.Duration, args ...string) *Server {
	t.Helper()
	dir := t.TempDir()
	source, library, script := filepath.Join(dir, "skew.c"), filepath.Join(dir, "skew.so"), filepath.Join(dir, "server")
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("redistest: a server with another clock: %v", err)
		}
	}
	if _, err := exec.LookPath("gcc"); err != nil && os.Getenv("REDLATCH_REQUIRE_SERVER") == "" {
		t.Skip("left out: no gcc, which builds the clock of a server")
	}
	check(os.WriteFile(source, []byte(skewSource), 0o600))
	out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", library, source, "-ldl").CombinedOutput()
	if err != nil {
		check(fmt.Errorf("%w: %s", err, out))
	}
	b := findBinary(t)
	check(os.WriteFile(script, fmt.Appendf(nil, "#!/bin/sh\nREDISTEST_SKEW=%d LD_PRELOAD=%s exec %s \"$@\"\n", ahead.Microseconds(), library, b.path), 0o700))
	b.path = script
	s := &Server{t: t, binary: b, dir: t.TempDir(), args: args}
	t.Cleanup(s.end)
	if err := s.startOnFreePort(); err != nil {
		t.Fatal(err)
	}
	return s
}
