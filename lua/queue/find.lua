-- find: look for a waiter in a part of the queue. For operators.
--
-- KEYS[1]  zset  redlatch:queue:{name}    waiter -> ticket
-- KEYS[2]  zset  redlatch:alive:{name}    waiter -> end of its heartbeat, server ms
--
-- ARGV[1]  string  -  the acquisition that the waiter would become
-- ARGV[2]  string  -  the ticket behind which to begin; empty for the front
-- ARGV[3]  int     -  how many to look at; a few more where the next have the ticket of the last
--
-- Returns
--   {1, waiter}    this is how it stands in the queue
--   {2, behind}    not in this part: go on behind this ticket
--   {0}            not in this part, which is the last
--
-- Guarantees  changes nothing; a waiter that stays is found; only a server that takes writes says
--             that it is not in a part.
-- Twice       the same.
-- Cost        one round trip, O(log n + looked at).
-- include errors queue

local acquisition, behind, most = ARGV[1], ARGV[2], tonumber(ARGV[3])

local _, refused = queue_length(-2)
if refused then
  return refused
end
local page = queue_page(-2, 0, behind, most)
for i = 1, #page, 2 do
  if parse_waiter(page[i]) == acquisition then
    return {1, page[i]}
  end
end
refused = writes_refused(0)
if refused then
  return refused
end
if #page < 2 * most then
  return {0}
end
return {2, page[#page]}
