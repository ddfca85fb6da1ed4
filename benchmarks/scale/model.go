package main

// The model adds up the costs, and says how much of its time a master works.

// share is the part of a core that a master may use, so that a burst or a failover finds room.
const share = 0.5

// replicas is how many replicas each master has. The broadcast of a message reaches them too.
const replicas = 1

// work is what programs do together.
type work struct {
	turns float64 // locks and unlocks per second
	held  float64 // locks that are held, with the default lease
}

// turn is the cost of a lock and an unlock for all nodes together.
func (c costs) turn(nodes int) float64 {
	if nodes == 1 {
		return c.Turn.Server
	}
	return c.Cluster.Server + c.Broadcast*float64(nodes-1)
}

// nodes is how many nodes a cluster of so many masters has.
func nodes(masters int) int {
	if masters == 1 {
		return 1 // without a cluster, nothing is broadcast
	}
	return masters * (1 + replicas)
}

// load is the part of a core that each master uses. A turn costs one master its scripts, and each
// node a share of the broadcast.
func (c costs) load(masters int, w work) float64 {
	renewals := w.held / (lease / 3).Seconds()
	if masters == 1 {
		return (w.turns*c.Turn.Server + renewals*c.Renewal.Server) / 1e6
	}
	broadcast := w.turns * c.Broadcast * float64(nodes(masters)-1) / float64(masters)
	return ((w.turns*c.Cluster.Server+renewals*c.ClusterRenewal.Server)/float64(masters) + broadcast) / 1e6
}

// most returns how many turns per second the masters carry, with so many held locks.
func (c costs) most(masters int, held float64) float64 {
	left := share - c.load(masters, work{0, held})
	return max(0, left/c.load(masters, work{1, 0}))
}

// broadcastShare is the part of the masters' work for turns that the broadcast is.
func (c costs) broadcastShare(masters int) float64 {
	all := c.load(masters, work{1, 0})
	if masters == 1 {
		return 0
	}
	return 1 - c.Cluster.Server/float64(masters)/1e6/all
}

// masters returns how many masters carry the work, 0 if no number does: one server, or a cluster of
// three or more.
func (c costs) masters(w work) int {
	for _, n := range []int{1, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48, 64, 100} {
		if c.load(n, w) <= share {
			return n
		}
	}
	return 0
}
