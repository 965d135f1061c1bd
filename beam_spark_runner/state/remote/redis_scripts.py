"""The scripts that a Redis server executes, each as a whole.

A group has seven keys, whose names begin with a *base* that is the same for all of them: ``base``,
a hash of packs, of which the field with the empty name is the tag; ``base:o``, a hash of outlying
values; ``base:p``, one of their further pieces; ``base:n``, a sorted set of their names;
``base:c``, ``base:e`` and ``base:h``, sorted sets of due times and holds. All members have the
score 0, so that they are in the order of bytes. A member of an index is a name and a value; no name
is the beginning of another one, and no value begins with the greatest byte.

The first keys of a script are bases. In a Cluster, all other keys of the groups follow, so that a
node executes it only if it has all of them, or none of them exists elsewhere.

A tag is text: the complete version, the version that is being applied, its mode, the number of its
next chunk, and the numbers of packs, outlying values, members of the three indexes, and further
pieces, each followed by a vertical bar.
"""

_TAG = """
local SUFFIXES = {k = '', o = ':o', n = ':n', c = ':c', e = ':e', h = ':h', p = ':p'}
local COUNTED = {k = 5, o = 6, c = 7, e = 8, h = 9, p = 10}
local COUNTS = 6
local function parts_of(tag)
  local parts = {}
  for part in string.gmatch(tag or '||||0|0|0|0|0|0|', '([^|]*)|') do
    parts[#parts + 1] = part
  end
  for i = 5, 4 + COUNTS do parts[i] = tonumber(parts[i]) end
  return parts
end
local function text_of(parts)
  return table.concat(parts, '|') .. '|'
end
local function groups_in(keys)
  local bases = {}
  for _, key in ipairs(keys) do
    if string.sub(key, -1) == '}' then bases[#bases + 1] = key end
  end
  return bases
end
local function sizes_of(base)
  local packs = redis.call('HLEN', base)
  if redis.call('HEXISTS', base, '') == 1 then packs = packs - 1 end
  local outlying = redis.call('HLEN', base .. ':o')
  if redis.call('ZCARD', base .. ':n') ~= outlying then outlying = -1 end
  return {packs, outlying, redis.call('ZCARD', base .. ':c'), redis.call('ZCARD', base .. ':e'),
    redis.call('ZCARD', base .. ':h'), redis.call('HLEN', base .. ':p')}
end
"""

_CHANGE = """
local function number_in(coded)
  local a, b, c, d = string.byte(coded, 1, 4)
  return ((a * 256 + b) * 256 + c) * 256 + d
end
local function coded_number(number)
  local function digit(unit) return math.floor(number / unit) % 256 end
  return string.char(digit(16777216), digit(65536), digit(256), digit(1))
end
local function remove_pieces(base, parts, name, value)
  if parts[COUNTED.p] <= 0 then return end
  local old = redis.call('HGET', base .. ':o', name)
  for number = (value and number_in(value) or 0) + 1, old and number_in(old) or 0 do
    parts[COUNTED.p] = parts[COUNTED.p]
      - redis.call('HDEL', base .. ':p', name .. coded_number(number))
  end
end
local function change(base, parts, letter, name, value, is_removed)
  local difference
  if letter == 'k' then
    if is_removed then difference = -redis.call('HDEL', base, name)
    else difference = redis.call('HSET', base, name, value) end
  elseif letter == 'p' then
    difference = redis.call('HSET', base .. ':p', name, value)
  elseif letter == 'o' then
    remove_pieces(base, parts, name, not is_removed and value)
    if is_removed then
      difference = -redis.call('HDEL', base .. ':o', name)
      redis.call('ZREM', base .. ':n', name)
    else
      difference = redis.call('HSET', base .. ':o', name, value)
      redis.call('ZADD', base .. ':n', 0, name)
    end
  else
    local set = base .. ':' .. letter
    if is_removed then
      difference = -redis.call('ZREMRANGEBYLEX', set, '[' .. name, '(' .. name .. '\\255')
    else difference = redis.call('ZADD', set, 0, name .. value) end
  end
  local place = COUNTED[letter]
  parts[place] = parts[place] + difference
end
local function change_all(base, parts, first)
  for i = first, #ARGV, 3 do
    local letter = ARGV[i]
    local kept = string.lower(letter)
    change(base, parts, kept, ARGV[i + 1], ARGV[i + 2], kept ~= letter)
  end
end
"""

OPEN = (
    _TAG
    + """
local opened = {}
for number, base in ipairs(groups_in(KEYS)) do
  local set = base .. ':'
  local tag, packs = redis.call('HGET', base, ''), redis.call('HLEN', base)
  if packs <= (tag and 1 or 0)
      and redis.call('EXISTS', set .. 'o', set .. 'n', set .. 'c', set .. 'e', set .. 'h',
        set .. 'p') == 0 then
    opened[number] = {tag}
  else
    local found = {tag, sizes_of(base)}
    for _, letter in ipairs({'c', 'e', 'h'}) do
      found[#found + 1] = redis.call('ZRANGE', set .. letter, 0, 0)
    end
    opened[number] = found
  end
end
return opened
"""
)
"""Returns of each group the tag, the sizes of the six structures (-1: it is damaged), and first
members; only the tag of a group that is empty."""

VALUES = """
local values = KEYS[1] .. ':' .. ARGV[1]
return {redis.call('HGET', KEYS[1], ''), redis.call('HLEN', values),
  redis.call('HMGET', values, unpack(ARGV, 2))}
"""
"""Returns the tag, the number of all outlying values or pieces, and some by their names."""

KNOWN = """
local values, known = KEYS[1] .. ':o', {}
for number, name in ipairs(ARGV) do known[number] = redis.call('HEXISTS', values, name) end
return {redis.call('HGET', KEYS[1], ''), redis.call('HLEN', values), known}
"""
"""Returns the tag, the number of all outlying values, and which of some names they have."""

NAMES = (
    _TAG
    + """
local set = KEYS[1] .. ':' .. ARGV[1]
return {redis.call('HGET', KEYS[1], ''), redis.call('ZCARD', set),
  redis.call('ZRANGEBYLEX', set, ARGV[2], ARGV[3], 'LIMIT', 0, ARGV[4])}
"""
)
"""Returns the tag, the number of all members of a sorted set, and some in their order."""

PACKS_FROM = """
return {redis.call('HGET', KEYS[1], ''), redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', 4000)}
"""
"""Returns the tag, and a page of packs with its cursor."""

APPLY = (
    _TAG
    + _CHANGE
    + """
local expected, version, mode = ARGV[1], ARGV[2], ARGV[3]
local index, is_last = tonumber(ARGV[4]), ARGV[5] == '1'
local function apply(base)
  local parts = parts_of(redis.call('HGET', base, ''))
  if parts[1] == version then return 1 end
  if parts[1] ~= expected then return 0 end
  local following = 0
  if parts[2] == version then
    if parts[3] == mode then following = tonumber(parts[4]) end
  elseif parts[2] ~= '' then
    local epoch = tonumber(string.match(version, '^(%d+)'))
    if tonumber(string.match(parts[2], '^(%d+)')) >= epoch then return 0 end
  end
  if index > following then return 0 end
  change_all(base, parts, 6)
  parts[2], parts[3], parts[4] = version, mode, math.max(following, index + 1)
  if is_last then parts[1], parts[2], parts[3], parts[4] = version, '', '', '' end
  redis.call('HSET', base, '', text_of(parts))
  return 1
end
local accepted = {}
for number, base in ipairs(groups_in(KEYS)) do accepted[number] = apply(base) end
return accepted
"""
)
"""Applies a chunk to groups: to one, or to several if it changes nothing; returns 1 for each that
has accepted it.
"""

ADD = (
    _TAG
    + _CHANGE
    + """
local base, number = KEYS[1], tonumber(ARGV[2])
local parts = parts_of(redis.call('HGET', base, ''))
if (tonumber(parts[4]) or 0) ~= number then return 0 end
change_all(base, parts, 3)
parts[4] = number + 1
redis.call('HSET', base, '', text_of(parts))
for _, suffix in pairs(SUFFIXES) do redis.call('EXPIRE', base .. suffix, ARGV[1]) end
return 1
"""
)
"""Makes changes of new content, under the base of temporary names, which expire.

Returns 1; 0: the changes that precede them are lost.
"""

FINISH = (
    _TAG
    + """
local base, new = KEYS[1], KEYS[2]
local function remove(from)
  for _, suffix in pairs(SUFFIXES) do redis.call('UNLINK', from .. suffix) end
end
local function epoch_of(version) return tonumber(string.match(version, '^(%d+)') or '-1') end
local parts, sizes, is_whole = parts_of(redis.call('HGET', base, '')), sizes_of(base), true
for place = 1, COUNTS do is_whole = is_whole and sizes[place] == parts[place + 4] end
local there, mine = epoch_of(parts[1]), epoch_of(ARGV[1])
if there > mine or (there == mine and is_whole) then
  remove(new)
  return 0
end
local fresh, made = parts_of(redis.call('HGET', new, '')), sizes_of(new)
local is_lost = (tonumber(fresh[4]) or 0) ~= tonumber(ARGV[2])
for place = 1, COUNTS do is_lost = is_lost or made[place] ~= fresh[place + 4] end
if is_lost then
  remove(new)
  return -1
end
fresh[1], fresh[4] = ARGV[1], ''
remove(base)
for _, suffix in pairs(SUFFIXES) do
  if redis.call('EXISTS', new .. suffix) == 1 then
    redis.call('RENAME', new .. suffix, base .. suffix)
    redis.call('PERSIST', base .. suffix)
  end
end
if ARGV[1] ~= '' then redis.call('HSET', base, '', text_of(fresh)) end
return 1
"""
)
"""Replaces a group by new content, unless it has become as new meanwhile.

Returns -1 if some of the new content is lost.
"""

DROP = (
    _TAG
    + """
for _, suffix in pairs(SUFFIXES) do redis.call('UNLINK', KEYS[1] .. suffix) end
return 1
"""
)
"""Removes a group."""
