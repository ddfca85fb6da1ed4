-- alone: grant, transfer and release of a lock for which nobody waits in a queue.

-- The server makes each function anew in each call, and needs more time for the functions of a script
-- than for its commands. So the common case has functions of its own, which call no others. Where they
-- do not succeed, the scripts go on with the functions for all cases. A reply that is a table takes the
-- server about a microsecond more than a number or a text. So scripts answer the common case with one.

-- Makes the server's time the fence, if the last fence is smaller and Redis keeps it for long enough already.
-- Returns whether it did so, and the reply of the first SET for grow_fence.
local function fence_alone(now_us, now_text, keep_ms)
  local stored = redis.pcall('SET', KEYS[2], now_text, 'KEEPTTL', 'GET')
  local last = keep_ms > 0 and type(stored) == 'string' and tonumber(stored)
  if not last or last < 0 or last >= now_us or last % 1 ~= 0 then
    return false, stored
  end
  local left_ms = redis.pcall('PTTL', KEYS[2])
  return type(left_ms) == 'number' and (left_ms < 0 or left_ms >= keep_ms), stored
end

-- Gives a free lock without a queue to an acquisition. Returns whether it did so, with now_us as the
-- fence, and the reply of the first SET for grow_fence.
local function grant_alone(acquisition, description, lease_ms, now_us, now_text, keep_ms)
  local grown, stored = fence_alone(now_us, now_text, keep_ms)
  if not grown then
    return false, stored
  end
  local written
  if description == '' then
    written = redis.pcall('HSET', KEYS[1], acquisition, '1')
  else
    written = redis.pcall('HSET', KEYS[1], acquisition, '1', 'redlatch:about', description)
  end
  return type(written) == 'number' and redis.pcall('PEXPIRE', KEYS[1], lease_ms) == 1, stored
end

-- Frees the lock of an acquisition if its queue, whose key has that number, is empty, and notifies those
-- who wait without a queue. Returns how many clients received the message, -1 if the user may not publish.
-- If there is more to do, or if the key of the queue was left out, it returns nil and the replies so far: of
-- HEXISTS, of ZCARD and of DEL, false or nil if it did not send that command.
local function release_alone(acquisition, queue, channel, in_cluster)
  local mine = redis.pcall('HEXISTS', KEYS[1], acquisition)
  local length = mine == 1 and KEYS[queue] and redis.pcall('ZCARD', KEYS[queue])
  local deleted = length == 0 and redis.pcall('DEL', KEYS[1])
  if deleted ~= 1 or in_cluster ~= 0 then
    return nil, mine, length, deleted
  end
  local receivers = redis.pcall('PUBLISH', channel, '0')
  return type(receivers) == 'number' and receivers or -1
end
