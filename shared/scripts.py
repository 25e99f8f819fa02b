"""The Redis scripts. Each checks all it can before its first write: a script that stops keeps its writes."""

from __future__ import annotations

from typing import Final

# Take the lease: when it is free, or held by an earlier life of this very instance (which the new token fences out).
# KEYS lease, fence   ARGV instance, lease_ms   -> "instance#token" or nil
ACQUIRE: Final = """
local held = redis.call('GET', KEYS[1])
if held and string.match(held, '^(.*)#%d+$') ~= ARGV[1] then return false end
local holder = ARGV[1] .. '#' .. redis.call('INCR', KEYS[2])
redis.call('SET', KEYS[1], holder, 'PX', ARGV[2])
return holder
"""

# Give the lease back, if it is still ours.
# KEYS lease   ARGV holder
RELEASE: Final = """
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
"""

# One batch: refuse an old leader, check every target, write the effects, last of all move the committed id.
# Renews the lease. Nothing after the checks can fail halfway: a full memory refuses the first write already.
# KEYS lease, state   ARGV holder, lease_ms, committed, then (op, stream, data, max_entries) an effect
#   op: add | add-existing | drop
COMMIT: Final = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return redis.error_reply('FENCED lost the lease') end
for i = 4, #ARGV, 4 do
  local kind = redis.call('TYPE', ARGV[i + 1]).ok
  if ARGV[i] ~= 'drop' and kind ~= 'stream' and kind ~= 'none' then
    return redis.error_reply('WRONGTYPE ' .. ARGV[i + 1] .. ' is a ' .. kind .. ', not a stream')
  end
end
for i = 4, #ARGV, 4 do
  local op, stream, data, max = ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3])
  if op == 'drop' then
    redis.call('DEL', stream)
  elseif op == 'add' or redis.call('EXISTS', stream) == 1 then
    if max > 0 then
      redis.call('XADD', stream, 'MAXLEN', '~', max, '*', 'm', data)
    else
      redis.call('XADD', stream, '*', 'm', data)
    end
  end
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
if ARGV[3] ~= '' then redis.call('HSET', KEYS[2], 'committed', ARGV[3]) end
return redis.call('TIME')
"""

# Keep a snapshot and trim the log up to it.
# KEYS lease, state, inbox   ARGV holder, id, state, then marks of entries set aside that the snapshot covers
SNAPSHOT: Final = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return redis.error_reply('FENCED lost the lease') end
redis.call('HSET', KEYS[2], 'id', ARGV[2], 'state', ARGV[3])
for i = 4, #ARGV do redis.call('HDEL', KEYS[2], ARGV[i]) end
return redis.call('XTRIM', KEYS[3], 'MINID', ARGV[2])
"""

# Set aside an entry that a core cannot handle, so that every replay leaves it out as well.
# KEYS lease, state, dead letters   ARGV holder, id, inbox, data, reason, max dead letters
SET_ASIDE: Final = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return redis.error_reply('FENCED lost the lease') end
redis.call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[6], '*',
  'stream', ARGV[3], 'id', ARGV[2], 'm', ARGV[4], 'reason', ARGV[5])
redis.call('HSET', KEYS[2], 'aside:' .. ARGV[2], ARGV[5])
return 1
"""

# A node takes entries of a group and says so in one step: neither can exist without the other, so when the node dies
# the queue manager knows exactly what was lost. A group that is gone gives nothing and is not made again.
# KEYS group, queue   ARGV consumer group, consumer, count, node, epoch, gid, payload prefix
#   -> list of (entry id, entry data, payload or false)
PULL: Final = """
if redis.call('EXISTS', KEYS[1]) == 0 then return {} end
local kind = redis.call('TYPE', KEYS[2]).ok
if kind ~= 'stream' and kind ~= 'none' then
  return redis.error_reply('WRONGTYPE ' .. KEYS[2] .. ' is a ' .. kind .. ', not a stream')
end
redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0')
local reply = redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', ARGV[3], 'STREAMS', KEYS[1], '>')
if not reply then return {} end
local taken, requests = {}, {}
for i, entry in ipairs(reply[1][2]) do
  local enqueued = cmsgpack.unpack(entry[2][2])
  requests[i] = {request_id = enqueued.request_id, attempt = enqueued.attempt}
  taken[i] = {entry[1], entry[2][2], redis.call('GET', ARGV[7] .. enqueued.request_id)}
end
redis.call('XADD', KEYS[2], '*', 'm', cmsgpack.pack(
  {type = 'pulled', node = ARGV[4], epoch = ARGV[5], group = ARGV[6], requests = requests}))
return taken
"""
