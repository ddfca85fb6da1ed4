// Package barecalls has scripts that make the Redis calls of the plain mutex and of the semaphore,
// without any logic. A script with the server's clock as its fence, the check of the queue and a
// lease makes at least these calls. So benchmarks compare the real scripts with them.
//
// They are no locks: they check nothing that they read.
package barecalls

import "github.com/redis/go-redis/v9"

var (
	// Acquire gets a free lock. KEYS: lock, fence, queue. ARGV: acquisition, lease in ms,
	// description.
	Acquire = redis.NewScript(`local t = redis.call('TIME') redis.call('EXISTS', KEYS[1], KEYS[3])
redis.call('SET', KEYS[2], string.format('%s%06d', t[1], t[2]), 'KEEPTTL', 'GET') redis.call('PTTL', KEYS[2])
redis.call('HSET', KEYS[1], ARGV[1], '1', 'redlatch:about', ARGV[3]) redis.call('PEXPIRE', KEYS[1], ARGV[2]) return 1`)

	// Release frees the lock. KEYS: lock, queue. ARGV: acquisition, channel.
	Release = redis.NewScript(`redis.call('HEXISTS', KEYS[1], ARGV[1]) redis.call('DEL', KEYS[1])
redis.call('ZCARD', KEYS[2]) redis.call('PUBLISH', ARGV[2], '0') return 1`)

	// Transfer hands the lock to another goroutine of the client. KEYS: lock, fence. ARGV: the
	// acquisition that ends, the one that begins, lease in ms.
	Transfer = redis.NewScript(`local t = redis.call('TIME') redis.call('HEXISTS', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[3]) redis.call('SET', KEYS[2], string.format('%s%06d', t[1], t[2]), 'KEEPTTL', 'GET')
redis.call('PTTL', KEYS[2]) redis.call('HSET', KEYS[1], ARGV[2], '1') redis.call('HDEL', KEYS[1], ARGV[1]) return 1`)

	// AcquirePermit gets a unit of a semaphore. KEYS: permits, descriptions, queue, heartbeats.
	// ARGV: acquisition, end of the lease in ms, description.
	AcquirePermit = redis.NewScript(`local t = redis.call('TIME') redis.call('EXISTS', KEYS[3], KEYS[4])
redis.call('ZRANGE', KEYS[1], '0', '4', 'WITHSCORES') redis.call('ZADD', KEYS[1], 'NX', ARGV[2], ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], string.format('%s%06d 1 %s', t[1], t[2], ARGV[3]))
redis.call('PTTL', KEYS[1]) redis.call('PEXPIRE', KEYS[2], '3600000') return 1`)

	// ReleasePermit gives it back. KEYS: permits, descriptions, queue. ARGV: acquisition.
	ReleasePermit = redis.NewScript(`redis.call('TIME') redis.call('ZRANGE', KEYS[1], '-2', '-1', 'WITHSCORES')
redis.call('ZREM', KEYS[1], ARGV[1]) redis.call('ZCARD', KEYS[3]) redis.call('HDEL', KEYS[2], ARGV[1]) return 1`)
)
