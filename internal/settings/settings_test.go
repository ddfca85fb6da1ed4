package settings

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// docs/guarantees.md promises these numbers.
func TestMarginIsATenthWithinBounds(t *testing.T) {
	for lease, margin := range map[time.Duration]time.Duration{
		20 * time.Millisecond:  10 * time.Millisecond,
		MinLease:               10 * time.Millisecond,
		500 * time.Millisecond: 50 * time.Millisecond,
		10 * time.Second:       time.Second,
		1000 * time.Second:     time.Second,
		time.Hour:              3600 * time.Millisecond,
	} {
		require.Equal(t, margin, (&Lock{Lease: lease}).Margin(), lease)
	}
}
