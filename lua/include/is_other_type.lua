-- Whether a pcall met a key of another type: then it is nobody's lock any more.
local function is_other_type(reply)
  return type(reply) == 'table' and reply.err ~= nil and string.sub(reply.err, 1, 9) == 'WRONGTYPE'
end
