-- The error of a hash that has something else than holds in it.
local function not_mutex()
  return redis.error_reply('WRONGTYPE the hash at this key is not a mutex')
end
