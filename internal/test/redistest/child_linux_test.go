package redistest_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

const victimEnv = "REDISTEST_VICTIM"

// Goal: no server outlives its test binary. Method: run this binary again, with a server of its
// own, and kill it so that it cannot clean up.
func TestServerDiesWithATestBinaryThatIsKilled(t *testing.T) {
	if os.Getenv(victimEnv) != "" {
		fmt.Println(redistest.Start(t).Addr())
		select {}
	}
	redistest.Start(t) // skips if there is no server
	victim := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	victim.Env = append(os.Environ(), victimEnv+"=1")
	out, err := victim.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, victim.Start())
	addr, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	addr = addr[:len(addr)-1]
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	require.NoError(t, conn.Close())

	require.NoError(t, victim.Process.Kill())
	_ = victim.Wait()
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	}, time.Minute, 5*time.Millisecond)
}
