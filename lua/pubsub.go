package lua

import "context"

var echoScript = newScript("pubsub/echo.lua")

// Echo publishes a text on channel, as scripts do that release a lock in the slot of key. It
// returns how many clients received it: on a single server all, in a cluster those of one node. One
// round trip.
func Echo(ctx context.Context, rdb Redis, key, channel any, text string) (receivers int64, err error) {
	v, err := echoScript.run(ctx, rdb, []any{key}, channel, text)
	r := readReply(echoScript, v, err)
	if r.int(0) != 1 {
		r.unexpected()
	}
	receivers = r.int(1)
	return receivers, r.err
}
