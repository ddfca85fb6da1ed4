-- The error of a stored fence that is no number, or cannot grow.
local function bad_fence()
  return redis.error_reply('BADFENCE the stored fence of this lock cannot be counted up')
end
