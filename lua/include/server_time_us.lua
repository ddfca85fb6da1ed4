-- The server's clock in microseconds since 1970. Exact: it stays below 2^53.
local function server_time_us()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end
