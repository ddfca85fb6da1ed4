//go:build unix

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

func TestTheUserAnswersOnATerminal(t *testing.T) {
	t.Parallel()
	scene := newScene(t)
	waiters, _, err := scene.locks.FairMutex("door").Queue(t.Context(), 0, 1)
	require.NoError(t, err)
	waiterID := waiters[0].ID
	release := "release door --expected " + scene.hold.ID()
	answer := func(command, question, keys, code string) *screenSession {
		t.Helper()
		s := startOnScreen(t, scene.env(), `"$redlatch" `+command+`; echo "code $?"`)
		s.awaitScreen(question)
		s.awaitScreen("? [y/N]")
		s.press(keys)
		s.awaitScreen("code " + code)
		return s
	}
	const question = `Take the mutex "door" away from `
	for _, keys := range []string{"n\n", "\n", "yo\n", "\x04"} {
		s := answer(release, question, keys, "1")
		s.awaitScreen("redlatch: nothing was changed")
	}
	interrupted := startOnScreen(t, scene.env(), `trap 'echo trapped' INT; "$redlatch" `+release+`; echo "code $?"`)
	interrupted.awaitScreen("? [y/N]")
	interrupted.press("\x03")
	interrupted.awaitScreen("code 130")
	answer("remove-waiter door "+waiterID, "Remove the waiter "+waiterID, "n\n", "1")
	select {
	case <-scene.hold.Lost():
		t.Fatal("something was released")
	default:
	}
	_, waiting, err := scene.locks.FairMutex("door").Queue(t.Context(), 0, 1)
	require.NoError(t, err)
	require.Equal(t, 1, waiting)

	s := answer("release render --expected "+scene.permit.ID(), `Take 2 units of the semaphore "render" away from `, "yes\n", "0")
	s.awaitScreen("released " + scene.permit.ID())
	answer("remove-waiter door "+waiterID, "Remove the waiter ", "Y\n", "0").awaitScreen("removed " + waiterID)
	answer(release, question, "y\n", "0").awaitScreen("released " + scene.hold.ID())
}

func TestAQuestionWithHostileTextIsHarmless(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	const hostile = "a\x1b[31m\u202eb\n[y/N] yes"
	require.NoError(t, rdb.HSet(t.Context(), "door", holderID, 1, "redlatch:about", hostile).Err())
	require.NoError(t, rdb.Expire(t.Context(), "door", time.Hour).Err())
	s := startOnScreen(t, []string{"REDIS_URL=" + server.URL()}, `"$redlatch" release door --expected `+holderID+`; "$redlatch" remove-waiter door $'x\e[31m\u202e'; echo "code $?"`)
	s.awaitScreen("Take the mutex")
	s.awaitScreen(")? [y/N]")
	s.press("n\n")
	s.awaitScreen("Remove the waiter")
	s.press("n\n")
	s.awaitScreen("code 1")
	require.NotContains(t, s.out.String(), "\x1b[31m")
	require.NotContains(t, s.out.String(), "\u202e")
	require.Contains(t, s.out.String(), `a\x1b[31m\u202eb\n[y/N] yes`)
	require.Contains(t, s.out.String(), `x\x1b[31m\u202e`)
}
