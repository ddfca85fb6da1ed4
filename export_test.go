package redlatch

// NamesInUse is the number of names for which the client has a lock state.
func NamesInUse(c *Client) int { return c.registry.Len() }

// FairWaiting is the number of goroutines that wait in queues, or are about to.
func FairWaiting(c *Client) int { return c.fair.(interface{ Waiting() int }).Waiting() }

// PermitsInUse is the number of permits that the client has or waits for.
func PermitsInUse(c *Client) int { return c.semaphores.(interface{ Len() int }).Len() }

// InCluster reports whether the client takes its server for a cluster.
func InCluster(c *Client) bool { return c.session.Cluster() }
