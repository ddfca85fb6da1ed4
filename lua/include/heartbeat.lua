-- heartbeat: a waiter's heartbeat, with which it joins the queue and stays in it.
-- include errors queue grace

-- Writes the heartbeat of a waiter, and returns the refusal if there is one. It keeps the queue
-- for ten heartbeats and a minute, so that a server that stood still for that long loses no
-- waiter. It never shortens the life of the keys. If alone is true, the queue is not there yet and
-- has no life. PEXPIRE comes first, because Redis accepts it when it is out of memory. After it,
-- Redis accepts the rest too.
local function write_heartbeat(at, member, heartbeat_ms, now_ms, alone)
  local queue_ms, alive_ms, keep_ms = 0, 0, 60000 + 10 * heartbeat_ms
  if not alone then
    queue_ms, alive_ms = redis.pcall('PTTL', KEYS[at + 3]), redis.pcall('PTTL', KEYS[at + 4])
  end
  return refusal(queue_ms) or refusal(alive_ms)
    or refusal(redis.pcall('PEXPIRE', KEYS[at + 3], math.max(queue_ms, keep_ms)))
    or refusal(redis.pcall('ZADD', KEYS[at + 4], now_ms + heartbeat_ms, member))
    or refusal(redis.pcall('PEXPIRE', KEYS[at + 4], math.max(alive_ms, keep_ms)))
end

-- Puts a waiter into the queue. Returns its ticket; the refusal if there is one, and then nothing
-- has changed; and whether the waiter was not in the queue before. The waiter goes behind all
-- others, or to the place of an earlier ticket. A waiter that is in the queue keeps its place. If
-- alone is true, the queue is not there yet.
local function join_queue(at, member, ticket, now_us, alone)
  local had = not alone and redis.call('ZSCORE', KEYS[at + 3], member)
  if had then
    ticket = tonumber(had)
  elseif ticket == 0 then
    local last = alone and {} or redis.call('ZRANGE', KEYS[at + 3], -1, -1, 'WITHSCORES')
    ticket = math.max(tonumber(last[2] or 0) + 1, now_us)
  end
  local _, _, heartbeat_ms = parse_waiter(member)
  local refused = not had and refusal(redis.pcall('ZADD', KEYS[at + 3], ticket, member))
  refused = refused or write_heartbeat(at, member, heartbeat_ms, math.floor(now_us / 1000), alone)
  if refused and not had then
    remove_waiters(at, {member})
  end
  return ticket, refused, not had
end

-- Renews the heartbeat of a waiter. It is the first of two rounds over the waiters of one call, so
-- that the call renews all of them before it takes any for expired. The table known has what the
-- call knows of this queue: the grace of before the first heartbeat, and ranks, which are right
-- while nobody leaves the queue. Returns the answer if the second round is not needed: the waiter
-- has no place any more, or Redis refused its heartbeat.
local function renew_heartbeat(at, member, heartbeat_ms, now_ms, known)
  local rank = redis.call('ZRANK', KEYS[at + 3], member)
  if not rank then
    local removed = redis.call('ZSCORE', KEYS[at + 4], member)
    known.refused = writes_refused(at)
    return known.refused and {-1} or removed and tonumber(removed) < 0 and {3} or {0}
  end
  if not known.grace_ms then
    known.grace_ms, known.more = grace_end(at, now_ms)
    known.ranks = {}
  end
  known.ranks[member] = rank
  known.refused = write_heartbeat(at, member, heartbeat_ms, now_ms)
  return known.refused and {-1}
end
