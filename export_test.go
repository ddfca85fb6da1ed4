package redlatch

// NamesInUse is how many names the client knows something of.
func NamesInUse(c *Client) int { return c.book.Len() }

// FairWaiting is how many goroutines wait in queues, or are about to.
func FairWaiting(c *Client) int { return c.fair.Waiting() }

// PermitsInUse is how many permits the client has, and waits for.
func PermitsInUse(c *Client) int { return c.permits.Len() }

// InCluster says whether the client takes its server for a cluster.
func InCluster(c *Client) bool { return c.session.Cluster() }
