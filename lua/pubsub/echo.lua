-- echo: publish a message that the client that sends it listens for.
--
-- KEYS[1]  string  <prefix>redlatch-echo:<client id>  never stored; its slot chooses the node that publishes
--
-- ARGV[1]  channel  -  of the echoes of this client
-- ARGV[2]  string   -  text of the message
--
-- Returns
--   {1, receivers}    published; and how many clients of this node received it
--
-- Guarantees  changes nothing.
-- Twice       a second message.
-- Cost        one round trip, O(receivers), and in a cluster a message to each node.

local channel, text = ARGV[1], ARGV[2]
local receivers = redis.call('PUBLISH', channel, text)
return {1, receivers}
