package redlatchui

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type deadlines struct {
	*httptest.ResponseRecorder
	last time.Time
}

func (d *deadlines) SetWriteDeadline(t time.Time) error { d.last = t; return nil }

// Close comes just before a write sets its deadline. The write must not get ten seconds again.
func TestAWriteAfterTheEndOfALivePageGetsNoTime(t *testing.T) {
	w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	s := &events{w: w, control: http.NewResponseController(w)}
	require.NoError(t, s.comment("live"))
	require.True(t, w.last.After(time.Now()))
	s.abort()
	_ = s.comment("heartbeat")
	require.False(t, w.last.After(time.Now()))
}
