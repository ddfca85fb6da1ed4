-- How many are in the queue, the dead included; or the refusal, when one of its
-- keys is of another type or may not be read.
local function queue_length(at)
  local length, alive = redis.pcall('ZCARD', KEYS[at + 3]), redis.pcall('ZCARD', KEYS[at + 4])
  return length, refusal(length) or refusal(alive)
end
