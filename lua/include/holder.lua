-- holder: the acquisition that has a lock.
-- include errors

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

-- Gives a lock the rest of its lease again, because Redis refused what came after a new lease. left_ms is a reply
-- of PTTL. Returns the refusal.
local function restore_lease(at, left_ms, refused)
  if type(left_ms) == 'number' and left_ms > 0 then
    redis.pcall('PEXPIRE', KEYS[at + 1], left_ms)
  end
  return refused
end

-- Takes a lock from the second of two holders, because Redis refused to remove the first. Otherwise both
-- would have it, and nobody could release it. Redis refuses HDEL, so this writes the hash anew, for a lease.
local function remove_second(at, second, lease_ms)
  local fields = redis.pcall('HGETALL', KEYS[at + 1])
  if refusal(fields) or refusal(redis.pcall('DEL', KEYS[at + 1])) then
    return
  end
  for i = 1, #fields, 2 do
    if fields[i] ~= second then
      redis.pcall('HSET', KEYS[at + 1], fields[i], fields[i + 1])
    end
  end
  redis.pcall('PEXPIRE', KEYS[at + 1], lease_ms)
end
