"""The Redis scripts of what is kept for clients of the Responses API: answers, and conversations."""

from __future__ import annotations

from typing import Final

# What a kept answer has in Redis: itself, and the log of its events where it was made in the background.
# KEYS index, bytes   ARGV prefix of answers, prefix of logs
KEEPING: Final = """
local function size_of(id)
  return redis.call('STRLEN', ARGV[1] .. id) + redis.call('STRLEN', ARGV[2] .. id)
end
local function drop(id, size)
  redis.call('DEL', ARGV[1] .. id, ARGV[2] .. id)
  if redis.call('ZREM', KEYS[1], id .. ':' .. size) == 1 then redis.call('INCRBY', KEYS[2], -size) end
end
local function keep(id, value, keep_ms, most, left)
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local log = redis.call('STRLEN', ARGV[2] .. id)
  local size = #value + log
  if redis.call('EXISTS', ARGV[1] .. id) == 1 then
    local before = size_of(id)
    if redis.call('ZREM', KEYS[1], id .. ':' .. before) == 1 then redis.call('INCRBY', KEYS[2], -before) end
  end
  while true do
    local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
    if not first[1] then break end
    local is_over = tonumber(first[2]) <= now and left > 0
    if not is_over and tonumber(redis.call('GET', KEYS[2]) or 0) + size <= most then break end
    drop(string.match(first[1], '^(.*):(%d+)$'))
    left = left - 1
  end
  redis.call('SET', ARGV[1] .. id, value, 'PX', keep_ms)
  if log > 0 then redis.call('PEXPIRE', ARGV[2] .. id, keep_ms) end
  redis.call('ZADD', KEYS[1], now + keep_ms, id .. ':' .. size)
  redis.call('INCRBY', KEYS[2], size)
end
"""

# Keep an answer for some time, in the place of those that end first where all have no room. Of those whose time is over
# some are counted out each time: so many that none stay, since each call brings one.
# KEYS index, bytes
# ARGV prefix of answers, prefix of logs, id, value, ms to keep it, most bytes of all, most to be counted out
KEEP_RESPONSE: Final = f"""#!lua
{KEEPING}
keep(ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]))
return 1
"""

# What was kept under an id; nil where nothing is.
# KEYS answer
FIND_RESPONSE: Final = """#!lua flags=no-writes,allow-oom
return redis.call('GET', KEYS[1])
"""

# Keep it no longer.
# KEYS index, bytes   ARGV prefix of answers, prefix of logs, id -> whether it was there
FORGET_RESPONSE: Final = f"""#!lua flags=allow-oom
{KEEPING}
if redis.call('EXISTS', ARGV[1] .. ARGV[3]) == 0 then return 0 end
drop(ARGV[3], size_of(ARGV[3]))
return 1
"""

# What has locked a conversation, as "process operation"; nothing where neither that process nor that operation, which
# may be a response in the background, lives any more.
_LOCKED: Final = """
local function holder_of(lock, followers, background)
  local held = redis.call('GET', lock)
  if not held then return nil end
  local process, operation = string.match(held, '^(%S+) (.*)$')
  local lives = redis.call('HEXISTS', followers, process) + redis.call('HEXISTS', background, operation)
  if lives == 0 then return nil end
  return operation
end
"""

# Take a conversation for one operation.
# KEYS lock, conversation, followers, responses in the background   ARGV process, operation, ms
#   -> what is kept of it, nil where nothing is, 0 where another one works on it
LOCK_CONVERSATION: Final = f"""#!lua flags=allow-oom
{_LOCKED}
local value = redis.call('GET', KEYS[2])
if not value then return nil end
local holder = holder_of(KEYS[1], KEYS[3], KEYS[4])
if holder and holder ~= ARGV[2] then return 0 end
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2], 'PX', ARGV[3])
return value
"""

# Keep a conversation as it is now; the operation that writes has locked it.
# KEYS index, bytes, lock
# ARGV prefix of answers, prefix of logs, id, value, ms to keep it, most bytes of all, most to be counted out, operation
#   -> 1; 0 where it was removed meanwhile; -1 where the lock is another one's
WRITE_CONVERSATION: Final = f"""#!lua
{KEEPING}
local held = redis.call('GET', KEYS[3])
if not held or string.match(held, '^%S+ (.*)$') ~= ARGV[8] then return -1 end
if redis.call('EXISTS', ARGV[1] .. ARGV[3]) == 0 then return 0 end
keep(ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]))
redis.call('PEXPIRE', KEYS[3], ARGV[5])
return 1
"""

# Give it back, if it is still this operation's.
# KEYS lock   ARGV operation
UNLOCK_CONVERSATION: Final = """#!lua flags=allow-oom
local held = redis.call('GET', KEYS[1])
if held and string.match(held, '^%S+ (.*)$') == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
"""
