package stage

import (
	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testhook"
)

// NamesInUse is the number of names for which the client has a lock state.
func NamesInUse(c *redlatch.Client) int { return testhook.Of(c).NamesInUse() }

// FairWaiting is the number of goroutines that wait in queues of fair mutexes, or are about to.
func FairWaiting(c *redlatch.Client) int { return testhook.Of(c).FairWaiting() }

// PermitsInUse is the number of permits that the client has or waits for.
func PermitsInUse(c *redlatch.Client) int { return testhook.Of(c).PermitsInUse() }

// InCluster reports whether the client takes its server for a cluster.
func InCluster(c *redlatch.Client) bool { return testhook.Of(c).Session.Cluster() }
