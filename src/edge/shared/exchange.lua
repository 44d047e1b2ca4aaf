-- One exchange, as a whole: writes entries, and reads what is new. All keys are in one hash slot.
--
-- meta   id, the number of the last entry (seq), how many there are (entries)
-- log    field -> number           field: "<process> <key>"
-- text   field -> "<number> <moment> <value>"
-- over   field -> the moment at which it is forgotten, in microseconds of this server's clock
-- peers  process -> the moment until which it counts as there
local meta, log, text, over, peers = unpack(KEYS)
local peer, present, store, since, fresh_id, max_entries, max_records, max_peers, channel = unpack(ARGV)
local FIRST = 10 -- of the entries: key, value, microseconds
local MAX_ID, MAX_FIELD, MAX_TEXT, DAY = 64, 1024, 160, 24 * 3600 * 1000

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local function whole(n) return string.format('%.0f', n) end

-- What was evicted, or written by others, has left the parts with different numbers of entries: then it begins again.
local known = redis.pcall('HMGET', meta, 'id', 'seq', 'entries')
local id, seq, entries = known[1], tonumber(known[2] or ''), tonumber(known[3] or '')
local is_whole = id and #id <= MAX_ID and seq and seq >= 0 and seq < 2 ^ 53
    and entries == redis.pcall('ZCARD', log)
    and entries == redis.pcall('HLEN', text) and entries == redis.pcall('ZCARD', over)
if not is_whole then
    redis.call('UNLINK', meta, log, text, over)
    id, seq, entries = fresh_id, 0, 0
elseif store == id and tonumber(since) > seq then
    -- An older copy: what it lacks is told again.
    id = fresh_id
end

local function forget(field)
    redis.call('ZREM', log, field)
    redis.call('ZREM', over, field)
    entries = entries - redis.call('HDEL', text, field)
end
for _, field in ipairs(redis.call('ZRANGEBYSCORE', over, '-inf', whole(now), 'LIMIT', 0, 1000)) do
    forget(field)
end
redis.call('ZREMRANGEBYSCORE', peers, '-inf', whole(now))
redis.call('ZADD', peers, whole(now + present), peer)

local keep = DAY
local refused = 0
for at = FIRST, #ARGV, 3 do
    local field = peer .. ' ' .. ARGV[at]
    forget(field)
    if entries >= tonumber(max_entries) then
        refused = refused + 1
    else
        -- By the clock, so that what is written after a loss has a higher number than what was lost.
        seq = math.max(seq + 1, now)
        entries = entries + 1
        local until_ = now + ARGV[at + 2]
        redis.call('ZADD', log, whole(seq), field)
        redis.call('ZADD', over, whole(until_), field)
        redis.call('HSET', text, field, whole(seq) .. ' ' .. whole(until_) .. ' ' .. ARGV[at + 1])
        keep = math.max(keep, ARGV[at + 2] / 1000)
    end
end
redis.call('HSET', meta, 'id', id, 'seq', whole(seq), 'entries', entries)
if #ARGV >= FIRST or not is_whole then
    for _, key in ipairs({meta, log, text, over}) do
        redis.call('PEXPIRE', key, whole(keep + DAY))
    end
    redis.call('PUBLISH', channel, '')
end
redis.call('PEXPIRE', peers, DAY)

local from = '-inf'
if store == id then from = '(' .. since end
local fields = redis.call('ZRANGEBYSCORE', log, from, '+inf', 'LIMIT', 0, max_records + 1)
local more = #fields > tonumber(max_records) and 1 or 0
if more == 1 then table.remove(fields) end
local texts = #fields > 0 and redis.call('HMGET', text, unpack(fields)) or {}
local records, last = {}, seq
for n, field in ipairs(fields) do
    if more == 1 and n == #fields then last = redis.call('ZSCORE', log, field) end
    if texts[n] and #field <= MAX_FIELD and #texts[n] <= MAX_TEXT then
        records[#records + 1] = field
        records[#records + 1] = texts[n]
    end
end
local names = {}
for _, name in ipairs(redis.call('ZRANGE', peers, 0, max_peers - 1)) do
    if #name <= MAX_TEXT then names[#names + 1] = name end
end
return {id, whole(last), more, whole(now), refused, names, records}
