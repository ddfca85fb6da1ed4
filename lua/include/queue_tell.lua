-- Tells one waiter's client, and nobody else, what became of it. How many heard
-- it: 0 when the client does not listen yet; -1 when it may not be told.
local function queue_tell(prefix, acquisition, number)
  local channel = string.format('%s%s', prefix, string.match(acquisition, '^[^:]*'))
  local heard = redis.pcall('PUBLISH', channel, string.format('%s %.0f', acquisition, number))
  if refusal(heard) then
    return -1
  end
  return heard
end
