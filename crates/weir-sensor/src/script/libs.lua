-- The libraries that scripts `require`. `q(WHAT, ...)` asks the sensor about what is inspected right now (host.rs);
-- an object is a name for it and holds nothing, so that one kept from an earlier call is about the present one.
-- `before` is the `require` of the language, where scripts have one.
local q, before = ...
local setmetatable, error = setmetatable, error
local concat, gmatch, match = table.concat, string.gmatch, string.match

-- A metatable of methods, each of which asks for KIND.NAME with what it is given. It is apart from the table of methods,
-- so that no script reaches it: `__gc` would run where no instructions are counted, `__close` behind an error.
local function methods(kind, names)
    local all = {}
    for name in gmatch(names, "%S+") do
        local what = kind .. "." .. name
        all[name] = function(_, ...) return q(what, ...) end
    end
    return { __index = all }, all
end

-- A function that returns an object of KIND, or nil and why there is none.
local function getter(kind, names)
    local class = methods(kind, names)
    return function()
        local there, why = q(kind)
        if not there then return nil, why end
        return setmetatable({}, class)
    end
end

local libs = {}

function libs.packet()
    return {
        get = getter("packet", "timestamp timestring_legacy timestring_iso8601 tuple sp dp payload packet pcap_cnt"),
    }
end

function libs.flow()
    return {
        get = getter("flow",
            "timestamps timestring_legacy timestring_iso8601 tuple app_layer_proto has_alerts id stats"),
    }
end

function libs.rule()
    return { get_rule = getter("rule", "sid gid rev action msg class") }
end

function libs.http()
    return {
        get_tx = getter("http", [[request_header response_header request_line response_line request_headers_raw
            response_headers_raw request_uri_raw request_uri_normalized request_headers response_headers request_body
            response_body request_host]]),
    }
end

function libs.dns()
    return {
        get_tx = getter("dns", "answers authorities queries rcode rcode_string recursion_desired rrname txid"),
    }
end

function libs.tls()
    return {
        get_tx = getter("tls", [[get_client_version get_server_version get_client_cert_chain get_client_cert_info
            get_client_cert_not_after get_client_cert_not_before get_client_serial get_sni get_client_sni
            get_server_cert_info get_server_cert_chain get_server_cert_not_after get_server_cert_not_before
            get_server_serial]]),
    }
end

function libs.ja3()
    return {
        enable_ja3 = function() end,
        get_tx = getter("ja3", "ja3_get_hash ja3_get_string ja3s_get_hash ja3s_get_string"),
    }
end

function libs.ssh()
    return {
        enable_hassh = function() end,
        get_tx = getter("ssh", [[server_proto client_proto server_software client_software client_hassh
            client_hassh_string server_hassh server_hassh_string]]),
    }
end

function libs.smtp()
    return { get_tx = getter("smtp", "get_mime_field get_mime_list get_mail_from get_rcpt_list") }
end

function libs.ntp()
    return { get_tx = getter("ntp", "version mode stratum reference_id") }
end

function libs.file()
    return {
        get_file = getter("file", "file_id tx_id name size magic md5 sha1 sha256 get_state is_stored"),
    }
end

-- A message of DNP3 as the record has it, by the names of this library.
local function message(said)
    if not said then return nil end
    local application = said.application or {}
    return {
        done = true,
        complete = application.complete or false,
        link_header = { src = said.src, dst = said.dst },
        application_header = { function_code = application.function_code },
        objects = application.objects or {},
        indicators = said.iin and said.iin.bits,
    }
end

function libs.dnp3()
    return {
        get_tx = function()
            local record, why = q("dnp3")
            if not record then return nil, why end
            return {
                tx_num = record.tx_num,
                is_request = record.request ~= nil,
                request = message(record.request),
                response = message(record.response),
            }
        end,
    }
end

function libs.flowvar()
    local class, own = methods("flowvar", "")
    function own.value(self) return q("flowvar.value", self.name) end
    function own.set(self, value, length) return q("flowvar.set", self.name, value, length) end
    return {
        register = function(name) q("flowvar.register", name) end,
        get = function(name) return setmetatable({ name = name }, class) end,
    }
end

function libs.flowint()
    local class, own = methods("flowint", "")
    function own.value(self) return q("flowint.value", self.name) end
    function own.set(self, value) return q("flowint.set", self.name, value) end
    function own.incr(self) return q("flowint.add", self.name, 1) end
    function own.decr(self) return q("flowint.add", self.name, -1) end
    return {
        register = function(name) q("flowint.register", name) end,
        get = function(name)
            q("flowint.known", name)
            return setmetatable({ name = name }, class)
        end,
    }
end

function libs.bytevar()
    local class, own = methods("bytevar", "")
    function own.value(self) return q("bytevar.value", self.name) end
    return {
        map = function(_, name) q("bytevar.map", name) end,
        get = function(name) return setmetatable({ name = name }, class) end,
    }
end

function libs.hashlib()
    local lib = {}
    for name in gmatch("md5 sha1 sha256", "%S+") do
        local own = {}
        local class = { __index = own }
        -- Parts wait for the end: what they take counts as the script's memory.
        function own.update(self, bytes) self[#self + 1] = bytes end
        function own.finalize(self) return q("hash." .. name, concat(self)) end
        function own.finalize_to_hex(self) return q("hash." .. name .. ".hex", concat(self)) end
        lib[name] = function() return setmetatable({}, class) end
        lib[name .. "_digest"] = function(bytes) return q("hash." .. name, bytes) end
        local hex = function(bytes) return q("hash." .. name .. ".hex", bytes) end
        lib[name .. "_hexdigest"], lib[name .. "_hex_digest"] = hex, hex
    end
    return lib
end

libs.hashing = libs.hashlib

function libs.base64()
    local function of(what) return function(bytes) return q("base64." .. what, bytes) end end
    return {
        encode = of("encode"),
        decode = of("decode"),
        encode_nopad = of("encode_nopad"),
        decode_nopad = of("decode_nopad"),
    }
end

function libs.log()
    local lib = {}
    for level in gmatch("error warning notice info perf config debug", "%S+") do
        lib[level] = function(text) q("log", level, text) end
    end
    return lib
end

-- Sets are filled by rules, in the order of packets; a script runs before that order is known.
function libs.dataset()
    local no = function() return nil, "scripts have no sets: use the keyword `dataset`" end
    return { new = no, get = no }
end

function libs.config()
    return { log_path = function() return q("config.log_path") end }
end

-- Which thread it is, a script shall not depend on: it is always the first.
function libs.util()
    return { thread_info = function() return { id = 1, name = "W#01" } end }
end

-- `require`: each library is made once.
local made = {}
return function(name)
    local short = match(name, "^suricata%.(.+)$")
    if short and libs[short] then
        if not made[short] then
            q("require", short)
            made[short] = libs[short]()
        end
        return made[short]
    end
    if before then return before(name) end
    error("there is no library `" .. name .. "`", 2)
end
