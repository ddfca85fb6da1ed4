-- notify: messages to those who wait.
-- include errors

-- Notifies those who wait without a queue that the lock is free. Returns how many clients received
-- it: on a single server all, in a cluster those of one node. Returns -1 if the user may not
-- publish. That must not become an error, because the lock is free by now. Redis before 7 does not
-- know SPUBLISH, and there Redisson does not listen to it either. Redisson reads '00'
-- as the number 0. Our clients listen to both channels, and ignore '00', because '0' comes too.
local function notify_free(channel, in_cluster)
  if in_cluster == 1 then
    redis.pcall('SPUBLISH', channel, '00')
  end
  local receivers = redis.pcall('PUBLISH', channel, '0')
  if refusal(receivers) then
    return -1
  end
  return receivers
end

-- Notifies the client of one waiter, and nobody else, that the state of the waiter changed. The
-- message is a hint, after which the client asks Redis. Returns how many clients received it: 0 if
-- the client has not subscribed yet, -1 if the user may not publish. Services with sharded channels only
-- refuse a channel of another slot. There the client listens to a channel in the slot of the queue.
local function notify_waiter(prefix, acquisition, queue)
  local channel = string.format('%s%s', prefix, string.match(acquisition, '^[^:]*'))
  local receivers = redis.pcall('PUBLISH', channel, acquisition)
  if refusal(receivers) then
    channel = string.format('%s:%s', channel, string.match(queue, '{.*}') or '')
    receivers = redis.pcall('PUBLISH', channel, acquisition)
  end
  if refusal(receivers) then
    return -1
  end
  return receivers
end
