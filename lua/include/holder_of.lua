-- Who has the lock, from the HGETALL of its hash: acquisition, holds, and what
-- the holder says of itself. Nothing when the hash is empty. Holds are nil when a field
-- is not of the form <id>:<n> or counts nothing: then the hash is no mutex.
local function holder_of(fields)
  local acquisition, holds, about = false, 0, ''
  for i = 1, #fields, 2 do
    if fields[i] == 'redlatch:about' then
      about = fields[i + 1]
    else
      local is_hold = string.match(fields[i], '^[^:]+:%-?%d+$')
      acquisition, holds = fields[i], is_hold and holds and tonumber(fields[i + 1])
    end
  end
  return acquisition, holds, about
end
