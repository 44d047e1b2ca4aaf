-- One exchange, as a whole: writes registers, and reads what is new. All keys are in one hash slot.
--
-- meta   id, the number of the last write (seq), how many registers there are (entries)
-- log    key -> the number of its last write
-- text   key -> "<version> <moment> <value>"
-- over   key -> the moment at which it is forgotten, in microseconds of this server's clock
-- peers  process -> the moment until which it counts as present
local meta, log, text, over, peers = unpack(KEYS)
local peer, present, store, since, fresh_id, max_entries, max_records, max_step, channel = unpack(ARGV)
local FIRST = 10 -- of the entries: key, version, value, microseconds
local MAX_ID, MAX_KEY, MAX_TEXT, DAY = 64, 512, 160, 24 * 3600 * 1000

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local function whole(n) return string.format('%.0f', n) end

-- What was evicted, or written by others, has left the parts with different numbers of registers: then it begins again.
local known = redis.pcall('HMGET', meta, 'id', 'seq', 'entries')
local id, seq, entries = known[1], tonumber(known[2] or ''), tonumber(known[3] or '')
local is_whole = id and #id <= MAX_ID and seq and seq >= 0 and seq < 2 ^ 53
    and entries == redis.pcall('ZCARD', log)
    and entries == redis.pcall('HLEN', text) and entries == redis.pcall('ZCARD', over)
    and #redis.call('ZRANGEBYSCORE', log, '(' .. whole(seq), '+inf', 'LIMIT', 0, 1) == 0
if not is_whole then
    redis.call('UNLINK', meta, log, text, over)
    id, seq, entries = fresh_id, 0, 0
elseif store == id and tonumber(since) > seq then
    -- An older copy: what it lacks is told again.
    id = fresh_id
end
-- A key of another type is no list of processes.
if type(redis.pcall('ZCARD', peers)) ~= 'number' then redis.call('UNLINK', peers) end

local function forget(key)
    redis.call('ZREM', log, key)
    redis.call('ZREM', over, key)
    entries = entries - redis.call('HDEL', text, key)
end
for _, key in ipairs(redis.call('ZRANGEBYSCORE', over, '-inf', whole(now), 'LIMIT', 0, 1000)) do
    forget(key)
end
redis.call('ZREMRANGEBYSCORE', peers, '-inf', whole(now))
redis.call('ZADD', peers, whole(now + present), peer)

-- What was not replaced is read.
local keys = {}
for at = FIRST, #ARGV, 4 do
    local key, version = ARGV[at], tonumber(ARGV[at + 1])
    local before = redis.call('HMGET', text, key)[1]
    local ahead = before and (tonumber(before:match('^(%d+) ') or '') or 0) - version
    if ahead and ahead >= 0 and ahead <= tonumber(max_step) then
        keys[#keys + 1] = key
    elseif before or entries < tonumber(max_entries) then
        forget(key)
        -- By the clock, so that what is written after a loss has a higher number than what was lost.
        seq = math.max(seq + 1, now)
        entries = entries + 1
        local until_ = now + ARGV[at + 3]
        redis.call('ZADD', log, whole(seq), key)
        redis.call('ZADD', over, whole(until_), key)
        redis.call('HSET', text, key, ARGV[at + 1] .. ' ' .. whole(until_) .. ' ' .. ARGV[at + 2])
    end
end
redis.call('HSET', meta, 'id', id, 'seq', whole(seq), 'entries', entries)
if #ARGV >= FIRST or not is_whole then
    -- Longer than any register is kept.
    for _, key in ipairs({meta, log, text, over}) do
        redis.call('PEXPIRE', key, 8 * DAY)
    end
    redis.call('PUBLISH', channel, '')
end
redis.call('PEXPIRE', peers, DAY)

local from = '-inf'
if store == id then from = '(' .. since end
local new = redis.call('ZRANGEBYSCORE', log, from, '+inf', 'LIMIT', 0, max_records + 1)
local more, last = 0, seq
if #new > tonumber(max_records) then
    table.remove(new)
    more, last = 1, redis.call('ZSCORE', log, new[#new])
end
for _, key in ipairs(new) do keys[#keys + 1] = key end
local texts = #keys > 0 and redis.call('HMGET', text, unpack(keys)) or {}
local records = {}
for n, key in ipairs(keys) do
    if texts[n] and #key <= MAX_KEY and #texts[n] <= MAX_TEXT then
        records[#records + 1] = key
        records[#records + 1] = texts[n]
    end
end
return {id, whole(last), more, whole(now), redis.call('ZCARD', peers), records}
