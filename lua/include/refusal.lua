-- The error to return when a pcall was refused, else nil. Redis 6.2 puts the
-- place in the script before some codes; callers decide by the code alone.
local function refusal(reply)
  if type(reply) == 'table' and reply.err then
    return redis.error_reply((string.gsub(reply.err, '^@user_script:%s*%d+:%s*%-?', '')))
  end
  return nil
end
