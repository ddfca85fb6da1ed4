-- clock: the server's clock.

-- The server's clock in microseconds since 1970, as a number and as a text. Lua has the number exactly,
-- because it is below 2^53. Commands get the text: Redis takes long to turn such a number into one.
local function server_time_us()
  local t = redis.call('TIME')
  local text = string.format('%s%06d', t[1], t[2])
  return tonumber(text), text
end
