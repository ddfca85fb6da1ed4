-- queue: the waiters of a queue, in the order of their tickets.
-- include errors

-- The parts of a waiter, as the queue has it: the acquisition that it will become, the units that
-- it wants, its heartbeat and its lease in ms, and its description. Returns nothing if the member
-- is no waiter.
local function parse_waiter(member)
  local acquisition, units, heartbeat_ms, lease_ms, description =
    string.match(member, '^(%S+) (%d+) (%d+) (%d+) ?(.*)$')
  return acquisition, tonumber(units), tonumber(heartbeat_ms), tonumber(lease_ms), description
end

-- Whether a queue has waiters, live or expired, from the ZCARD of its key, and the refusal if
-- there is one. A key of another type is nobody's queue.
local function has_queue(length)
  if is_other_type(length) then
    return false
  end
  local refused = refusal(length)
  return not refused and length > 0, refused
end

-- How many waiters the queue has, expired ones included, and the refusal if one of its keys has
-- another type or must not be read.
local function queue_length(at)
  local length, alive = redis.pcall('ZCARD', KEYS[at + 3]), redis.pcall('ZCARD', KEYS[at + 4])
  return length, refusal(length) or refusal(alive)
end

-- A part of a queue, in order: from a rank, or behind a ticket if one is given. It is a flat list
-- of waiters and tickets. Waiters with the same ticket are never in two parts, so a part may be
-- longer than show.
local function queue_page(at, skip, behind, show)
  local page
  if behind == '' then
    page = redis.call('ZRANGE', KEYS[at + 3], skip, skip + show - 1, 'WITHSCORES')
  else
    local from = string.format('(%s', behind)
    page = redis.call('ZRANGEBYSCORE', KEYS[at + 3], from, '+inf', 'WITHSCORES', 'LIMIT', 0, show)
  end
  local ticket, last = page[#page], page[#page - 1]
  local same = ticket and redis.call('ZRANGEBYSCORE', KEYS[at + 3], ticket, ticket, 'WITHSCORES') or {}
  local missing = false
  for i = 1, #same do
    if missing then
      page[#page + 1] = same[i]
    end
    missing = missing or i % 2 == 0 and same[i - 1] == last
  end
  return page
end

-- The queues that this call has emptied, by their key.
local emptied = {}

-- Whether this call has emptied the queue. Then a script must not read it again: a node of a cluster that
-- gives the slot away refuses to read a key that has vanished.
local function is_emptied(at)
  return emptied[KEYS[at + 3]]
end

-- Removes waiters from the queue, and returns the refusal if there is one. With the last waiter it
-- removes the grace, so that nothing is left.
local function remove_waiters(at, members)
  local length = redis.pcall('ZCARD', KEYS[at + 3])
  local removed = redis.pcall('ZREM', KEYS[at + 3], unpack(members))
  local refused = refusal(removed)
  if refused then
    return refused
  end
  if removed == length then
    emptied[KEYS[at + 3]] = true
    members[#members + 1] = 'grace'
  end
  return refusal(redis.pcall('ZREM', KEYS[at + 4], unpack(members)))
end
