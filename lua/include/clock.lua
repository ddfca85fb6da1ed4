-- clock: the server's clock.

-- The server's clock in microseconds since 1970. Lua has it exactly, because it is below 2^53.
local function server_time_us()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end
