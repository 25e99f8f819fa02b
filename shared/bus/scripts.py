"""The Redis scripts. Each checks all it can before its first write: a script that stops keeps its writes."""

from __future__ import annotations

from typing import Final

# Those with ``allow-oom`` keep the cluster together, or free memory: they also run at Redis's ``maxmemory``, in the
# reserve between it and what the machine has. Without it a full Redis could neither trim its logs nor have a leader.

# Take the lease: when it is free, held by an earlier life of this very instance (which the new token fences out), or
# held by a process whose last sign of life the caller has watched for as long as the holder asked to be waited for.
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

# One batch: refuse an old leader, and one that has read entries or made commits which Redis has lost since (what is
# lost is an end of the log, so the last entry stands for all; its id alone does not: behind a clock that went back ids
# grow by their counter, and an entry that came since may have been given it); check every target, write the effects,
# last of all move the committed id. Renews the lease. Nothing after the checks can fail halfway.
# KEYS lease, beat, state, clock, inbox
# ARGV holder, ttl_ms, hold_ms, committed before, committed, SHA-1 of that entry's data, number of marks,
#   then (field, value) a mark of the clock, then (op, stream, data, max_entries) an effect
#   op: add | add-existing | drop
COMMIT: Final = f"""#!lua flags=allow-oom
{_FENCE}
if (redis.call('HGET', KEYS[3], 'committed') or '0-0') ~= ARGV[4] then
  return redis.error_reply('BEHIND commits were lost')
end
if ARGV[5] ~= '' then
  local read, data = redis.call('XRANGE', KEYS[5], ARGV[5], ARGV[5])[1], ''
  for i = 1, read and #read[2] or 0, 2 do
    if read[2][i] == 'm' then data = read[2][i + 1] end
  end
  if not read or redis.sha1hex(data) ~= ARGV[6] then return redis.error_reply('BEHIND entries were lost') end
end
local first = 8 + 2 * tonumber(ARGV[7])
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
for i = 8, first - 1, 2 do
  redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1])
  redis.call('SET', KEYS[4], ARGV[i + 1])
end
if ARGV[5] ~= '' then redis.call('HSET', KEYS[3], 'committed', ARGV[5]) end
return redis.call('TIME')
"""

# Keep a snapshot and trim the log up to it. Refused where Redis has lost commits, whose effects are in the snapshot.
# KEYS lease, state, inbox   ARGV holder, id, state, clock, committed, then fields of marks that the snapshot covers
SNAPSHOT: Final = f"""#!lua flags=allow-oom
{_FENCE}
if (redis.call('HGET', KEYS[2], 'committed') or '0-0') ~= ARGV[5] then
  return redis.error_reply('BEHIND commits were lost')
end
redis.call('HSET', KEYS[2], 'id', ARGV[2], 'state', ARGV[3], 'clock', ARGV[4])
for i = 6, #ARGV do redis.call('HDEL', KEYS[2], ARGV[i]) end
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
# What names no attempt that could be announced goes to the dead letters instead, and others come for it: fewer than
# were asked for still mean that the group is empty.
# KEYS group, queue, dead letters
# ARGV consumer group, consumer, count, node, epoch, gid, payload prefix, max dead letters, max bytes of one, number
#   -> list of (entry id, entry data, payload or false, request id, attempt)
PULL: Final = r"""#!lua flags=allow-oom
if redis.call('EXISTS', KEYS[1]) == 0 then return {} end
for i = 2, 3 do
  local kind = redis.call('TYPE', KEYS[i]).ok
  if kind ~= 'stream' and kind ~= 'none' then
    return redis.error_reply('WRONGTYPE ' .. KEYS[i] .. ' is a ' .. kind .. ', not a stream')
  end
end

local function is_utf8(text)
  if not string.find(text, '[\128-\255]') then return true end
  for _, character in ipairs({
    '[\194-\223][\128-\191]',
    '\224[\160-\191][\128-\191]', '[\225-\236\238\239][\128-\191][\128-\191]', '\237[\128-\159][\128-\191]',
    '\240[\144-\191][\128-\191][\128-\191]', '[\241-\243][\128-\191][\128-\191][\128-\191]',
    '\244[\128-\143][\128-\191][\128-\191]',
  }) do
    text = string.gsub(text, character, '.')
  end
  return not string.find(text, '[\128-\255]')
end

local function fault_of(enqueued)
  if type(enqueued) ~= 'table' then return 'is no map' end
  local id, attempt = enqueued.request_id, enqueued.attempt
  if type(id) ~= 'string' or not is_utf8(id) then return 'names no request' end
  if type(attempt) ~= 'number' or attempt < 0 or attempt > 2147483647 or attempt ~= math.floor(attempt) then
    return 'names no attempt'
  end
end

redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0')
local taken, requests = {}, {}
while #taken < tonumber(ARGV[3]) do
  local count = tonumber(ARGV[3]) - #taken
  local reply = redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', count, 'STREAMS', KEYS[1], '>')
  if not reply then break end
  for _, entry in ipairs(reply[1][2]) do
    local data = ''
    for i = 1, #entry[2], 2 do
      if entry[2][i] == 'm' then data = entry[2][i + 1] end
    end
    local is_read, enqueued = pcall(cmsgpack.unpack, data)
    local fault = is_read and fault_of(enqueued) or not is_read and tostring(enqueued)
    if fault then
      redis.call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[8], '*', 'stream', KEYS[1], 'id', entry[1],
        'm', string.sub(data, 1, tonumber(ARGV[9])), 'reason', 'undecodable: ' .. fault)
      redis.call('XACK', KEYS[1], ARGV[1], entry[1])
      redis.call('XDEL', KEYS[1], entry[1])
    else
      local id, attempt = enqueued.request_id, enqueued.attempt
      local payload = redis.pcall('GET', ARGV[7] .. id)
      if type(payload) == 'table' then payload = false end
      requests[#requests + 1] = {request_id = id, attempt = attempt}
      taken[#taken + 1] = {entry[1], data, payload, id, attempt}
    end
  end
end
if #taken > 0 then
  redis.call('XADD', KEYS[2], '*', 'm', cmsgpack.pack({
    type = 'pulled', node = ARGV[4], epoch = ARGV[5], group = ARGV[6], requests = requests,
    number = tonumber(ARGV[10])
  }))
end
return taken
"""

# A new request: its payload, which expires, and its entry, both or neither. The one script that a full Redis refuses.
# The entry comes first: only that can fail, where the key is of another type, and nothing has been done then.
# What is asked of the KV manager about it goes along; that it could not be asked is no reason to refuse a request.
# KEYS payload, queue, inbox of the KV manager where it is asked
# ARGV payload, its seconds to live, entry, question, max entries   -> what went wrong with the question, or nothing
SUBMIT: Final = """#!lua
redis.call('XADD', KEYS[2], '*', 'm', ARGV[3])
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
if KEYS[3] then
  local reply = redis.pcall('XADD', KEYS[3], 'MAXLEN', '~', ARGV[5], '*', 'm', ARGV[4])
  if type(reply) == 'table' then return reply.err end
end
"""

# What the cluster says to itself, in one step. A key of another type costs its own write only: the others are done.
# KEYS one a write   ARGV (op, data, option) a write   -> list of what went wrong
#   op: add | add-existing (option: max entries, 0 for as many as come) | ack (data: entry, option: consumer group)
#     | delete | set (option: seconds to live)
WRITE: Final = """#!lua flags=allow-oom
local faults = {}
for i, key in ipairs(KEYS) do
  local op, data, option = ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i]
  local function try(...)
    local reply = redis.pcall(...)
    if type(reply) == 'table' and reply.err then faults[#faults + 1] = key .. ': ' .. reply.err end
  end
  if op == 'ack' then
    try('XACK', key, option, data)
    try('XDEL', key, data)
  elseif op == 'delete' then
    try('DEL', key)
  elseif op == 'set' then
    try('SET', key, data, 'EX', option)
  else
    local command = {'XADD', key}
    if op == 'add-existing' then command[3] = 'NOMKSTREAM' end
    for _, part in ipairs(option == '0' and {'*', 'm', data} or {'MAXLEN', '~', option, '*', 'm', data}) do
      command[#command + 1] = part
    end
    try(unpack(command))
  end
end
return faults
"""

# What a gateway's process has taken of keys' buckets since it told last; it hears what is left for it, and gets half of
# that as an advance, which others leave alone until it tells again, or for as long as an advance holds. A bucket is
# filled up by the time that has passed on Redis's clock, if that went forwards. One that is not here (expired, or lost
# with a Redis), or is no bucket, is as full as the process says.
# KEYS buckets   ARGV process, ms that an advance holds, spare s of a bucket's life, most s of it,
#   then (a minute's worth, taken, level that the process knows, advance that it keeps, whether it wants one) a bucket
#   -> list of (free, advance)
TELL_RATES: Final = """#!lua flags=allow-oom
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local answers = {}
for i, key in ipairs(KEYS) do
  local size, taken, level, keeps = unpack(ARGV, 5 * i, 5 * i + 3)
  size = tonumber(size)
  local is_read, bucket = pcall(cjson.decode, redis.pcall('GET', key))
  if is_read and type(bucket) == 'table' and bucket.told_ms then
    local passed_ms = math.max(0, now - bucket.told_ms)
    bucket.level = math.min(size, bucket.level + passed_ms * size / 60000) - taken
  else
    bucket = {level = tonumber(level), advances = {}}
  end
  bucket.told_ms = now
  local free = bucket.level
  for process, advance in pairs(bucket.advances) do
    if process == ARGV[1] or math.abs(now - advance.given_ms) > tonumber(ARGV[2]) then
      bucket.advances[process] = nil
    else
      free = free - advance.amount
    end
  end
  local amount = 0
  if ARGV[5 * i + 4] == '1' then amount = math.max(tonumber(keeps), free / 2, 0) end
  if amount > 0 then bucket.advances[ARGV[1]] = {amount = amount, given_ms = now} end
  local full_s = math.ceil((size - bucket.level) * 60 / size)
  redis.call('SET', key, cjson.encode(bucket), 'EX', math.min(full_s + ARGV[3], tonumber(ARGV[4])))
  answers[i] = {string.format('%.6f', free), string.format('%.6f', amount)}
end
return answers
"""

_DROP_RESPONSE: Final = """
local function drop(member)
  local id, size = string.match(member, '^(.*):(%d+)$')
  redis.call('DEL', ARGV[1] .. id)
  redis.call('ZREM', KEYS[1], member)
  redis.call('INCRBY', KEYS[2], -size)
end
"""

# Keep an answer for some time, in the place of those that end first where all have no room. Of those whose time is over
# some are counted out each time: so many that none stay, since each call brings one.
# KEYS index, bytes   ARGV prefix of their keys, id, value, ms to keep it, most bytes of all, most to be counted out
KEEP_RESPONSE: Final = f"""#!lua
{_DROP_RESPONSE}
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local size, most, left = #ARGV[3], tonumber(ARGV[5]), tonumber(ARGV[6])
while true do
  local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
  if not first[1] then break end
  local is_over = tonumber(first[2]) <= now and left > 0
  if not is_over and tonumber(redis.call('GET', KEYS[2]) or 0) + size <= most then break end
  drop(first[1])
  left = left - 1
end
redis.call('SET', ARGV[1] .. ARGV[2], ARGV[3], 'PX', ARGV[4])
redis.call('ZADD', KEYS[1], now + ARGV[4], ARGV[2] .. ':' .. size)
redis.call('INCRBY', KEYS[2], size)
return 1
"""

# What was kept under an id; nil where nothing is.
# KEYS answer
FIND_RESPONSE: Final = """#!lua flags=no-writes,allow-oom
return redis.call('GET', KEYS[1])
"""

# Keep it no longer.
# KEYS index, bytes   ARGV prefix, id -> whether it was there
FORGET_RESPONSE: Final = f"""#!lua flags=allow-oom
{_DROP_RESPONSE}
local size = redis.call('STRLEN', ARGV[1] .. ARGV[2])
if size == 0 then return 0 end
drop(ARGV[2] .. ':' .. size)
return 1
"""

# Keep what could not be read, as evidence.
# KEYS dead letters   ARGV max dead letters, then (field, value) of the letter
BURY: Final = """#!lua flags=allow-oom
local letter = {'XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*'}
for i = 2, #ARGV do letter[#letter + 1] = ARGV[i] end
return redis.call(unpack(letter))
"""
