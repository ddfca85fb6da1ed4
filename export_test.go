package redlatch

import "github.com/redlatch/redlatch/internal/testhook"

// NamesInUse is the number of names for which the client has a lock state.
func NamesInUse(c *Client) int { return testhook.Of(c).NamesInUse() }

// FairWaiting is the number of goroutines that wait in queues, or are about to.
func FairWaiting(c *Client) int { return testhook.Of(c).FairWaiting() }

// PermitsInUse is the number of permits that the client has or waits for.
func PermitsInUse(c *Client) int { return testhook.Of(c).PermitsInUse() }

// InCluster reports whether the client takes its server for a cluster.
func InCluster(c *Client) bool { return testhook.Of(c).Session.Cluster() }
