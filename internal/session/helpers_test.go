package session_test

import (
	"time"
)

const waitTimeout = 2 * time.Second
