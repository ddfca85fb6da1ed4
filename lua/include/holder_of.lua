-- Who has the lock, from the HGETALL of its hash: acquisition, holds, and what
-- the holder says of itself. Nothing when the hash is empty; holds are nil when it
-- has a field that counts nothing, and so is no mutex.
local function holder_of(fields)
  local acquisition, holds, about = false, 0, ''
  for i = 1, #fields, 2 do
    if fields[i] == 'redlatch:about' then
      about = fields[i + 1]
    else
      acquisition, holds = fields[i], holds and tonumber(fields[i + 1])
    end
  end
  return acquisition, holds, about
end
