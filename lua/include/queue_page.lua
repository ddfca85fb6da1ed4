-- A part of a queue, in order: from a rank, or behind a ticket where one is given. Waiters
-- with the same ticket never stand in two parts, so a part may be longer than asked for. A
-- flat list of members and their tickets.
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
