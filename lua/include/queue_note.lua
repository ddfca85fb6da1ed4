-- Notes that a waiter lives, the first of two rounds over the waiters of one call:
-- none is taken for dead before all are noted. known is what the call knows of this
-- queue; its grace is that of before the first note, and its ranks hold while nobody
-- leaves the queue. The answer, if that is all there is to say: the waiter has no place
-- any more, or the note was refused.
local function queue_note(at, member, heartbeat_ms, now_ms, known)
  local rank = redis.call('ZRANK', KEYS[at + 3], member)
  if not rank then
    local removed = redis.call('ZSCORE', KEYS[at + 4], member)
    known.refused = writes_refused(at)
    return known.refused and {-1} or removed and tonumber(removed) < 0 and {3} or {0}
  end
  if not known.grace_ms then
    known.grace_ms, known.more = queue_grace(at, now_ms)
    known.ranks = {}
  end
  known.ranks[member] = rank
  known.refused = queue_beat(at, member, heartbeat_ms, now_ms)
  return known.refused and {-1}
end
