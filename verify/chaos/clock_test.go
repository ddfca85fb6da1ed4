//go:build unix

package chaos_test

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/stretchr/testify/require"
)

// shim is a library that the server is preloaded with. Its wall clock is that of the system plus an
// offset in microseconds. It reads the offset from a file, which may change while the server runs.
const shim = `
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
static volatile long long *offset;
__attribute__((constructor)) static void map(void) {
	int fd = open(getenv("CHAOS_CLOCK"), O_RDONLY);
	if (fd < 0) abort();
	offset = mmap(0, 8, PROT_READ, MAP_SHARED, fd, 0);
	if (offset == MAP_FAILED) abort();
}
int gettimeofday(struct timeval *tv, void *tz) {
	static int (*real)(struct timeval *, void *);
	if (!real) real = dlsym(RTLD_NEXT, "gettimeofday");
	int r = real(tv, tz);
	long long us = tv->tv_sec * 1000000LL + tv->tv_usec + *offset;
	tv->tv_sec = us / 1000000;
	tv->tv_usec = us % 1000000;
	return r;
}
`

// clock is the wall clock of one server.
type clock struct {
	c      *course
	file   string
	offset time.Duration
}

// steppedStand is a stand with a server whose clock can be set.
func (c *course) steppedStand(args ...string) (*stand, *clock) {
	c.Helper()
	dir := c.TempDir()
	source, library := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	require.NoError(c, os.WriteFile(source, []byte(shim), 0o600))
	out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", library, source, "-ldl").CombinedOutput()
	require.NoError(c, err, "%s", out)
	k := &clock{c: c, file: filepath.Join(dir, "offset")}
	k.write()
	c.Setenv("CHAOS_CLOCK", k.file)
	c.Setenv("LD_PRELOAD", library)
	defer os.Unsetenv("LD_PRELOAD")
	return c.stand(args...), k
}

// step sets the clock forward or back.
func (k *clock) step(d time.Duration) {
	k.offset += d
	k.write()
}

func (k *clock) write() {
	k.c.Helper()
	f, err := os.OpenFile(k.file, os.O_CREATE|os.O_WRONLY, 0o600) // never truncated, because it is mapped
	require.NoError(k.c, err)
	defer f.Close()
	_, err = f.Write(binary.NativeEndian.AppendUint64(nil, uint64(k.offset.Microseconds())))
	require.NoError(k.c, err)
}
