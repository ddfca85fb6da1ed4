package redlatch

// NamesInUse is how many names the client knows something of.
func NamesInUse(c *Client) int { return c.mutexes.Len() }
