-- What a member of a queue says: the acquisition that it will become, the units
-- it wants, its heartbeat and its lease in ms, and what it says of itself. Nothing
-- when the member is no waiter.
local function queue_waiter(member)
  local acquisition, units, heartbeat_ms, lease_ms, about = string.match(member, '^(%S+) (%d+) (%d+) (%d+) ?(.*)$')
  return acquisition, tonumber(units), tonumber(heartbeat_ms), tonumber(lease_ms), about
end
