"""The Redis scripts of responses in the background: which process follows which, and what has come of each.

A response has one follower, a gateway's process, which alone writes its log. A process that shows no sign of life is
struck from the followers; what it followed is then taken by another, which goes on where the log ends.
"""

from __future__ import annotations

from typing import Final

from shared.bus.kept_scripts import KEEPING

# A new one, or one that Redis has lost, with the log as far as it is.
# KEYS responses in the background, record, log
# ARGV id, follower, tenant, request, life, status, number of the next event, log, ms to live, most in all, of a tenant
#   -> ok | full | tenant_full
CREATE: Final = """#!lua
if redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[10]) then return 'full' end
local num = 0
for _, told in ipairs(redis.call('HVALS', KEYS[1])) do
  if string.match(told, '^%S+ (.*)$') == ARGV[3] then num = num + 1 end
end
if num >= tonumber(ARGV[11]) then return 'tenant_full' end
redis.call('HSET', KEYS[2], 'tenant', ARGV[3], 'request', ARGV[4], 'life', ARGV[5], 'status', ARGV[6], 'next', ARGV[7])
redis.call('SET', KEYS[3], ARGV[8], 'PX', ARGV[9])
redis.call('PEXPIRE', KEYS[2], ARGV[9])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' ' .. ARGV[3])
return 'ok'
"""

# How a response stands to one that says it follows it: ok; ended (cancelled or removed: it is struck out); taken by
# another; lost, with the end that Redis has lost.
_STANDING: Final = """
local function standing(background, record, id, follower)
  local told = redis.call('HGET', background, id)
  local is_there = redis.call('EXISTS', record) == 1
  if not told and not is_there then return 'lost' end
  if not told or string.match(told, '^(%S+)') ~= follower then return 'taken' end
  if is_there then return 'ok' end
  redis.call('HDEL', background, id)
  return 'ended'
end
"""

# More events and tokens, behind those that are there.
# KEYS responses in the background, record, log
# ARGV id, follower, bytes of the log so far, more of it, number of the next event, ms to live
#   -> ok | ended | taken | lost, or how many bytes are there where these are others
APPEND: Final = f"""#!lua
{_STANDING}
local found = standing(KEYS[1], KEYS[2], ARGV[1], ARGV[2])
if found ~= 'ok' then return found end
local num_bytes = redis.call('STRLEN', KEYS[3])
if num_bytes ~= tonumber(ARGV[3]) then return num_bytes end
redis.call('APPEND', KEYS[3], ARGV[4])
redis.call('HSET', KEYS[2], 'status', 'in_progress', 'next', ARGV[5])
redis.call('PEXPIRE', KEYS[2], ARGV[6])
redis.call('PEXPIRE', KEYS[3], ARGV[6])
return 'ok'
"""

# The last events, and the answer, which is kept as others are. Done again it does nothing.
# KEYS index of answers, their bytes, responses in the background, record, log
# ARGV prefix of answers, prefix of logs, id, answer, ms to keep it, most bytes of all, most to be counted out,
#   follower, bytes of the log so far, more of it   -> as APPEND
END: Final = f"""#!lua
{KEEPING}
{_STANDING}
if redis.call('EXISTS', ARGV[1] .. ARGV[3]) == 1 and redis.call('EXISTS', KEYS[4]) == 0 then return 'ok' end
local found = standing(KEYS[3], KEYS[4], ARGV[3], ARGV[8])
if found ~= 'ok' then return found end
local num_bytes = redis.call('STRLEN', KEYS[5])
if num_bytes ~= tonumber(ARGV[9]) then return num_bytes end
redis.call('APPEND', KEYS[5], ARGV[10])
redis.call('DEL', KEYS[4])
redis.call('HDEL', KEYS[3], ARGV[3])
keep(ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]))
return 'ok'
"""

# The end of one that is cancelled, by any gateway that is asked. Its follower finds no record and stops.
# KEYS and ARGV as END, but for the follower   -> ok; ended; or how many bytes the log has, where it has grown
CANCEL: Final = f"""#!lua
{KEEPING}
if redis.call('EXISTS', KEYS[4]) == 0 then return 'ended' end
local num_bytes = redis.call('STRLEN', KEYS[5])
if num_bytes ~= tonumber(ARGV[8]) then return num_bytes end
redis.call('APPEND', KEYS[5], ARGV[9])
redis.call('DEL', KEYS[4])
keep(ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]))
return 'ok'
"""

# Nothing of one that has not ended is kept any longer. Its follower finds no record and stops.
# KEYS record, log   -> whether it was there
REMOVE: Final = """#!lua flags=allow-oom
local is_there = redis.call('DEL', KEYS[1])
if is_there == 1 then redis.call('DEL', KEYS[2]) end
return is_there
"""

# What is known of a response that has not ended.
# KEYS record, log   -> list of tenant (nil where there is none), request, status, number of the next event, log's bytes
FIND: Final = """#!lua flags=no-writes,allow-oom
local found = redis.call('HMGET', KEYS[1], 'tenant', 'request', 'status', 'next')
found[5] = redis.call('STRLEN', KEYS[2])
return found
"""

# A piece of a log, and whether more may come.
# KEYS record, log   ARGV first byte, last byte
READ: Final = """#!lua flags=no-writes,allow-oom
return {redis.call('GETRANGE', KEYS[2], ARGV[1], ARGV[2]), redis.call('EXISTS', KEYS[1])}
"""

# A sign of life of a follower, which hears how those stand that it follows; they live on.
# KEYS followers, responses in the background   ARGV follower, prefix of records, prefix of logs, ms to live, ids
#   -> list of standings
SIGN: Final = f"""#!lua flags=allow-oom
{_STANDING}
redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
local found = {{}}
for i = 5, #ARGV do
  local record = ARGV[2] .. ARGV[i]
  found[#found + 1] = standing(KEYS[2], record, ARGV[i], ARGV[1])
  redis.call('PEXPIRE', record, ARGV[4])
  redis.call('PEXPIRE', ARGV[3] .. ARGV[i], ARGV[4])
end
return found
"""

# The followers, with signs of life, and responses that none of them follows: those of a process that is no follower any
# more, and those that the process that asks is said to follow and does not know of.
# KEYS followers, responses in the background   ARGV most of them, follower, ids that it follows
#   -> {follower, signs …}, {id …}
LOOK: Final = """#!lua flags=no-writes,allow-oom
local followers = redis.call('HGETALL', KEYS[1])
local lives, known, orphans = {}, {}, {}
for i = 1, #followers, 2 do lives[followers[i]] = followers[i] ~= ARGV[2] end
for i = 3, #ARGV do known[ARGV[i]] = true end
local told = redis.call('HGETALL', KEYS[2])
for i = 1, #told, 2 do
  if #orphans >= tonumber(ARGV[1]) then break end
  if not known[told[i]] and not lives[string.match(told[i + 1], '^(%S+)')] then orphans[#orphans + 1] = told[i] end
end
return {followers, orphans}
"""

# A follower follows no more: it leaves, or its signs of life have not changed for long.
# KEYS followers   ARGV follower, signs that were seen, or '' for any
STRIKE: Final = """#!lua flags=allow-oom
if ARGV[2] == '' or redis.call('HGET', KEYS[1], ARGV[1]) == ARGV[2] then redis.call('HDEL', KEYS[1], ARGV[1]) end
return 1
"""

# Follow a response that no process follows: another life of it begins.
# KEYS followers, responses in the background, record, log   ARGV id, follower
#   -> {life, tenant, request, status, number of the next event, log}, or nil
CLAIM: Final = """#!lua flags=allow-oom
local told = redis.call('HGET', KEYS[2], ARGV[1])
if not told then return nil end
local before, tenant = string.match(told, '^(%S+) (.*)$')
if before ~= ARGV[2] and redis.call('HEXISTS', KEYS[1], before) == 1 then return nil end
if redis.call('EXISTS', KEYS[3]) == 0 then
  redis.call('HDEL', KEYS[2], ARGV[1])
  return nil
end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2] .. ' ' .. tenant)
local life = redis.call('HINCRBY', KEYS[3], 'life', 1)
local found = redis.call('HMGET', KEYS[3], 'tenant', 'request', 'status', 'next')
return {life, found[1], found[2], found[3], found[4], redis.call('GET', KEYS[4]) or ''}
"""
