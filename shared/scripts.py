"""The Redis scripts. Each checks all it can before its first write: a script that stops keeps its writes."""

from __future__ import annotations

from typing import Final

# Those with ``allow-oom`` keep the cluster together, or free memory: they also run at Redis's ``maxmemory``, in the
# reserve between it and what the machine has. Without it a full Redis could neither trim its logs nor have a leader.

# Take the lease: when it is free, held by an earlier life of this very instance (which the new token fences out), or
# held by somebody whose last sign of life the caller has watched for as long as the holder asked to be waited for.
# No expiry decides that: it would go by Redis's wall clock, which may step.
# KEYS lease, fence, beat   ARGV instance, ttl_ms, hold_ms, sign that was watched long enough or ''
#   -> {1, "instance#token", 0}, or {0, the holder's newest sign of life, hold_ms that it asked for}
ACQUIRE: Final = """#!lua flags=allow-oom
local held = redis.call('GET', KEYS[1])
if held and string.match(held, '^(.*)#%d+$') ~= ARGV[1] then
  local sign = held .. ' ' .. (redis.call('HGET', KEYS[3], 'n') or '0')
  if sign ~= ARGV[4] then
    return {0, sign, tonumber(redis.call('HGET', KEYS[3], 'hold_ms') or ARGV[3])}
  end
end
local holder = ARGV[1] .. '#' .. redis.call('INCR', KEYS[2])
redis.call('SET', KEYS[1], holder, 'PX', ARGV[2])
redis.call('HINCRBY', KEYS[3], 'n', 1)
redis.call('HSET', KEYS[3], 'hold_ms', ARGV[3])
return {1, holder, 0}
"""

# Give the lease back, if it is still ours.
# KEYS lease   ARGV holder
RELEASE: Final = """#!lua flags=allow-oom
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
"""

_FENCE: Final = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return redis.error_reply('FENCED lost the lease') end
"""

_RENEW: Final = """
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('HINCRBY', KEYS[2], 'n', 1)
redis.call('HSET', KEYS[2], 'hold_ms', ARGV[3])
"""

# A sign of life without a commit.
# KEYS lease, beat   ARGV holder, ttl_ms, hold_ms: for how long a standby that hears nothing more is to wait
RENEW: Final = f"""#!lua flags=allow-oom
{_FENCE}
{_RENEW}
return 1
"""

# One batch: refuse an old leader, and one that knows of commits which Redis has lost; check every target, write the
# effects, last of all move the committed id. Renews the lease. Nothing after the checks can fail halfway.
# KEYS lease, beat, state, clock   ARGV holder, ttl_ms, hold_ms, committed before, committed, number of marks, then
#   (field, value) a mark of the clock, then (op, stream, data, max_entries) an effect; op: add | add-existing | drop
COMMIT: Final = f"""#!lua flags=allow-oom
{_FENCE}
if (redis.call('HGET', KEYS[3], 'committed') or '0-0') ~= ARGV[4] then
  return redis.error_reply('BEHIND commits were lost')
end
local first = 7 + 2 * tonumber(ARGV[6])
for i = first, #ARGV, 4 do
  local kind = redis.call('TYPE', ARGV[i + 1]).ok
  if ARGV[i] ~= 'drop' and kind ~= 'stream' and kind ~= 'none' then
    return redis.error_reply('WRONGTYPE ' .. ARGV[i + 1] .. ' is a ' .. kind .. ', not a stream')
  end
end
for i = first, #ARGV, 4 do
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
{_RENEW}
for i = 7, first - 1, 2 do
  redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1])
  redis.call('SET', KEYS[4], ARGV[i + 1])
end
if ARGV[5] ~= '' then redis.call('HSET', KEYS[3], 'committed', ARGV[5]) end
return redis.call('TIME')
"""

# Keep a snapshot and trim the log up to it.
# KEYS lease, state, inbox   ARGV holder, id, state, clock, then fields of marks that the snapshot covers
SNAPSHOT: Final = f"""#!lua flags=allow-oom
{_FENCE}
redis.call('HSET', KEYS[2], 'id', ARGV[2], 'state', ARGV[3], 'clock', ARGV[4])
for i = 5, #ARGV do redis.call('HDEL', KEYS[2], ARGV[i]) end
return redis.call('XTRIM', KEYS[3], 'MINID', ARGV[2])
"""

# Set aside an entry that a core cannot handle, so that every replay leaves it out as well.
# KEYS lease, state, dead letters   ARGV holder, id, inbox, data, reason, max dead letters
SET_ASIDE: Final = f"""#!lua flags=allow-oom
{_FENCE}
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
