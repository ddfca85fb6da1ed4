-- errors: what Redis refuses.

-- The error to return if Redis refused a pcall, else nil. Redis 6.2 writes the place in the script
-- before some codes. This function removes it, because callers look at the code.
local function refusal(reply)
  if type(reply) == 'table' and reply.err then
    return redis.error_reply((string.gsub(reply.err, '^@user_script:%s*%d+:%s*%-?', '')))
  end
  return nil
end

-- The error to return for what the pcall of Lua caught: a table, or a text in Redis before 7.
local function caught(raised)
  return refusal(type(raised) == 'table' and raised or {err = raised})
end

-- Whether a pcall found a key of another type. Such a key is nobody's lock.
local function is_other_type(reply)
  return type(reply) == 'table' and reply.err ~= nil and string.sub(reply.err, 1, 9) == 'WRONGTYPE'
end

-- The refusal of a server that takes no writes, or nil if it takes them. A replica may lack what
-- its master has, so a script says that something is gone only after this check. The write changes
-- nothing, because no hash has that field. If the key has another type, the server takes writes,
-- because otherwise it would refuse before it looks at the key.
local function writes_refused(at)
  local reply = redis.pcall('HDEL', KEYS[at + 1], '')
  if is_other_type(reply) then
    return nil
  end
  return refusal(reply)
end
