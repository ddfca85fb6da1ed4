-- holder: the acquisition that has a lock.

-- The holder of a lock, from the HGETALL of its hash: acquisition, holds and description. The
-- acquisition is false if the hash is empty. The holds are nil if a field has not the form
-- <id>:<n> or its value is no number: then the hash is no mutex.
local function holder_of(fields)
  local acquisition, holds, description = false, 0, ''
  for i = 1, #fields, 2 do
    if fields[i] == 'redlatch:about' then
      description = fields[i + 1]
    else
      local is_hold = string.match(fields[i], '^[^:]+:%-?%d+$')
      acquisition, holds = fields[i], is_hold and holds and tonumber(fields[i + 1])
    end
  end
  return acquisition, holds, description
end

-- The error of a hash that has other fields than those of a mutex.
local function not_mutex()
  return redis.error_reply('WRONGTYPE the hash at this key is not a mutex')
end
