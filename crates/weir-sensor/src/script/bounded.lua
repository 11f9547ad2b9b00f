-- Functions of the language whose own loops count no instructions and take no memory for what they are asked. Here what
-- they do is bounded as all else is. Results and errors are those of the language.
local rep, error, type, tointeger, most = string.rep, error, type, math.tointeger, math.maxinteger
local unbounded_move = table.move

-- Nothing, any number of times, is nothing.
function string.rep(s, n, separator)
    if s == "" and (separator == nil or separator == "") then n = n and tointeger(n) and 1 or n end
    return rep(s, n, separator)
end

-- Places without values take no memory: a move of many of them is counted, step by step.
function table.move(from, first, last, to, into)
    local f, l, t = tointeger(first), tointeger(last), tointeger(to)
    local target = into == nil and from or into
    -- A string may be moved from, as it has fields; nothing but a table is moved to.
    local movable = type(target) == "table" and (type(from) == "table" or type(from) == "string")
    if not (movable and f and l and t) then
        -- Not a move, but an error with the words of the language.
        return unbounded_move(from, first, last, to, into)
    end
    into = target
    if l < f then return into end
    if f <= 0 and l >= most + f then error("too many elements to move", 2) end
    if t > most - (l - f) then error("destination wrap around", 2) end
    if t > l or t <= f or into ~= from then
        for n = 0, l - f do into[t + n] = from[f + n] end
    else
        for n = l - f, 0, -1 do into[t + n] = from[f + n] end
    end
    return into
end
