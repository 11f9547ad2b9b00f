//! Scripts in rules and as outputs: what they see, what they may cost, and that they say the same for any number of workers.

use std::fs;

use weir_packet::build::Frame;
use weir_sensor::config::SensorConfig;
use weir_sensor::matcher;
use weir_sensor::rules::Dialect;
use weir_sensor::settings::Settings;
use weir_sensor::worker::Engine;

use super::bed::{ANSWER, CLIENT, Folder, How, Left, SERVER, Tape, sense_tape, sense_within, web};

const REQUEST: &str = "GET /a%20b HTTP/1.1\r\nHost: www.example.com\r\nX-Id: 7\r\n\r\n";

/// Two datagrams and two web pages.
fn tape() -> Tape {
    let mut tape = Tape::default();
    for port in [1000, 1001] {
        let frame = Frame::new().ip4(CLIENT, SERVER).udp(port, 4000);
        tape.push(&frame.payload(b"one two"));
    }
    for port in [41_000, 41_001] {
        web(&mut tape, port, REQUEST, ANSWER);
    }
    tape
}

fn how(rules: &str, scripts: &[(&'static str, &'static str)]) -> How {
    How {
        beside: scripts.to_vec(),
        ..How::rules(rules)
    }
}

/// Runs with one worker, and with several, which say the same.
fn sense(how: &How) -> Left {
    let left = sense_tape(&tape(), how);
    for workers in [2, 4] {
        let other = sense_tape(&tape(), &how.clone().workers(workers));
        assert_eq!(other.text, left.text, "{workers} workers");
    }
    left
}

fn failures(left: &Left) -> [u64; 4] {
    let kinds = [
        "errors",
        "blocked_function_errors",
        "instruction_limit_errors",
        "memory_limit_errors",
    ];
    kinds.map(|kind| left.summary.counters[&format!("detect.lua.{kind}")])
}

#[test]
fn a_script_decides_and_one_that_fails_does_not_hold() {
    let rules = "\
alert udp any any -> any any (msg:\"m\"; lua:yes.lua; sid:1;)
alert udp any any -> any any (msg:\"m\"; lua:!yes.lua; sid:2;)
alert udp any any -> any any (msg:\"m\"; lua:!no.lua; sid:3;)
alert udp any any -> any any (msg:\"m\"; lua:bad.lua; sid:4;)
alert udp any any -> any any (msg:\"m\"; lua:!bad.lua; sid:5;)
alert udp any any -> any any (msg:\"m\"; content:\"two\"; lua:yes.lua; lua:!no.lua; sid:6;)
alert udp any any -> any any (msg:\"m\"; content:\"three\"; lua:yes.lua; sid:7;)
";
    let left = sense(&how(
        rules,
        &[
            (
                "yes.lua",
                "function init() return {} end function match() return 1 end",
            ),
            (
                "no.lua",
                "function init() return {} end function match() return 0 end",
            ),
            (
                "bad.lua",
                "function init() return {} end function match() nothing() return 1 end",
            ),
        ],
    ));
    let mut sids = left.sids();
    sids.sort_unstable();
    assert_eq!(sids, [1, 1, 3, 3, 6, 6], "{}", left.text);
    assert_eq!(failures(&left), [4, 0, 0, 0]);
}

#[test]
fn what_a_script_may_cost_is_bounded() {
    let rules = "\
alert udp any any -> any any (msg:\"m\"; lua:long.lua; sid:1;)
alert udp any any -> any any (msg:\"m\"; lua:large.lua; sid:2;)
alert udp any any -> any any (msg:\"m\"; lua:catches.lua; sid:3;)
alert udp any any -> any any (msg:\"m\"; lua:files.lua; sid:4;)
alert udp any any -> any any (msg:\"m\"; lua:fine.lua; sid:5;)
";
    let scripts = [
        (
            "long.lua",
            "function init() return {} end function match() while true do end end",
        ),
        (
            "large.lua",
            "function init() return {} end function match() return #string.rep('x', 1000000) > 0 and 1 or 0 end",
        ),
        (
            "catches.lua",
            "function init() return {} end function match() pcall(error) return 1 end",
        ),
        (
            "files.lua",
            "function init() return {} end function match() io.open('/etc/passwd') return 1 end",
        ),
        (
            "fine.lua",
            "function init() return {} end function match() local s = 0 for i = 1, 1000 do s = s + i end return s == 500500 and 1 or 0 end",
        ),
    ];
    let left = sense(&how(rules, &scripts));
    assert_eq!(left.sids(), [5, 5], "{}", left.text);
    // `io` is not there at all, so that this is an error as any other.
    assert_eq!(failures(&left), [8, 2, 2, 2]);
    let tight = how(rules, &scripts).set("security.lua.max-instructions=500");
    assert_eq!(sense(&tight).sids(), [0_u64; 0]);
    let free = how(rules, &scripts)
        .set("security.lua.allow-restricted-functions=yes")
        .set("security.lua.max-bytes=8mb");
    let mut sids = sense(&free).sids();
    sids.sort_unstable();
    assert_eq!(sids, [2, 2, 3, 3, 4, 4, 5, 5]);
}

/// No metatable is within reach: with one, `__gc` runs where no instruction is counted, and `__close` goes on behind an error.
#[test]
fn a_script_reaches_no_metatable() {
    let rules = "\
alert udp any any -> any any (msg:\"m\"; lua:methods.lua; sid:1;)
alert udp any any -> any any (msg:\"m\"; lua:closes.lua; sid:2;)
alert udp any any -> any any (msg:\"m\"; lua:made.lua; sid:3;)
";
    let scripts = [
        (
            "methods.lua",
            "local packet = require('suricata.packet')
            function init() return {} end
            function match()
                local p = packet.get()
                return p:sp() and not p.__index and not p.__gc and not ('').__index and 1 or 0
            end",
        ),
        (
            "closes.lua",
            "local hash = require('suricata.hashlib')
            function init() return {} end
            function match()
                local h = hash.md5()
                h.__index.__close = function() while true do end end
                local x <close> = hash.md5()
                return 1
            end",
        ),
        (
            "made.lua",
            "local var = require('suricata.flowvar')
            local number = require('suricata.bytevar')
            local hash = require('suricata.hashlib')
            function init() return {} end
            function match()
                local all = { var.get('a'), number.get('b'), hash.md5(), hash.sha1(), hash.sha256() }
                for _, one in ipairs(all) do if one.__index then return 0 end end
                return #all == 5 and hash.md5():finalize_to_hex() == 'd41d8cd98f00b204e9800998ecf8427e' and 1 or 0
            end",
        ),
    ];
    let left = sense(&how(rules, &scripts));
    let mut sids = left.sids();
    sids.sort_unstable();
    assert_eq!(sids, [1, 1, 3, 3], "{}", left.text);
    // An error as any other: the method table is not there to be changed.
    assert_eq!(failures(&left), [2, 0, 0, 0]);
}

/// Loops within the interpreter's own functions count no instructions: none of them may be long without memory to show for it.
#[test]
fn functions_that_loop_within_are_bounded() {
    let rules = "\
alert udp any any -> any any (msg:\"m\"; lua:empty.lua; sid:1;)
alert udp any any -> any any (msg:\"m\"; lua:moves.lua; sid:2;)
alert udp any any -> any any (msg:\"m\"; lua:usual.lua; sid:3;)
alert udp any any -> any any (msg:\"m\"; lua:strings.lua; sid:4;)
alert udp any any -> any any (msg:\"m\"; lua:wrong.lua; sid:5;)
";
    let scripts = [
        (
            "empty.lua",
            "function init() return {} end
            function match() return string.rep('', 1 << 62) == '' and ('').rep('', 1 << 62, '') == '' and 1 or 0 end",
        ),
        (
            "moves.lua",
            "function init() return {} end
            function match() table.move({}, 1, 1 << 62, 1, {}) return 1 end",
        ),
        (
            "strings.lua",
            "function init() return {} end
            function match() table.move('x', 1, '4611686018427387904', 1, {}) return 1 end",
        ),
        (
            "wrong.lua",
            "function init() return {} end
            function match() table.move({}, 1, 'x', 1) return 1 end",
        ),
        (
            "usual.lua",
            "function init() return {} end
            function match()
                local text = string.rep('ab', 3) .. ('x'):rep(2, '-') .. string.rep(7, '2') .. string.rep('', 3, ',')
                local up = table.move({ 1, 2, 3 }, 1, 3, 2)
                local down = table.move({ 1, 2, 3 }, 2, 3, 1)
                local into = { 9 }
                local same = table.move({ 1, 2 }, 1, 2, 2, into) == into
                local list = table.concat(up, ',') .. ';' .. table.concat(down, ',') .. ';' .. table.concat(into, ',')
                return same and text == 'abababx-x77,,' and list == '1,1,2,3;2,3,3;9,1,2' and 1 or 0
            end",
        ),
    ];
    let left = sense(&how(rules, &scripts));
    let mut sids = left.sids();
    sids.sort_unstable();
    assert_eq!(sids, [1, 1, 3, 3], "{}", left.text);
    assert_eq!(failures(&left), [6, 0, 4, 0]);
}

#[test]
fn a_script_sees_what_is_inspected() {
    let rules = "\
alert udp any any -> any any (msg:\"datagram\"; priority:2; lua:packet.lua; sid:1;)
alert http1:response_complete any any -> any any (msg:\"m\"; flow:to_client; lua:http.lua; sid:2;)
alert udp any any -> any any (msg:\"m\"; lua:payload.lua; sid:3;)
alert tcp any any -> any any (msg:\"m\"; flow:to_server; lua:stream.lua; sid:4;)
alert udp any any -> any any (msg:\"m\"; byte_extract:1,0,first; lua:number.lua; sid:5;)
";
    let left = sense(&how(
        rules,
        &[
            (
                "packet.lua",
                r#"
local packet, rule, hash = require("suricata.packet"), require("suricata.rule"), require("suricata.hashlib")
local base64 = require "suricata.base64"
function init() return {} end
function match()
    local p, r = packet.get(), rule.get_rule()
    local version, source, destination, protocol, sp, dp = p:tuple()
    assert(version == 4 and source == "192.168.1.10" and destination == "198.51.100.80")
    assert(protocol == 17 and sp == p:sp() and dp == 4000 and p:dp() == 4000)
    assert(p:payload() == "one two" and #p:packet() > 42)
    assert(p:pcap_cnt() == sp - 999)
    assert(p:timestring_iso8601():find("^2024%-01%-01T00:00:00"))
    assert(p:timestring_legacy():find("^01/01/2024%-00:00:00"))
    assert(p:timestamp() == 1704067200)
    assert(r:sid() == 1 and r:gid() == 1 and r:msg() == "datagram" and r:action() == "alert")
    assert(select(2, r:class()) == 2)
    assert(hash.md5_hexdigest("abc") == "900150983cd24fb0d6963f7d28e17f72")
    local h = hash.sha1()
    h:update("a") h:update("bc")
    assert(h:finalize_to_hex() == "a9993e364706816aba3e25717850c26c9cd0d89d")
    assert(base64.encode("hi") == "aGk=" and base64.encode_nopad("hi") == "aGk")
    assert(base64.decode("aGk=") == "hi" and base64.decode_nopad("aGk") == "hi")
    assert(base64.decode("!") == nil)
    return 1
end"#,
            ),
            (
                "http.lua",
                r#"
local http, flow = require("suricata.http"), require("suricata.flow")
function init() return {} end
function match()
    local tx, f = http.get_tx(), flow.get()
    assert(tx:request_line() == "GET /a%20b HTTP/1.1" and tx:response_line() == "HTTP/1.1 200 OK")
    assert(tx:request_header("x-id") == "7" and tx:request_header("none") == nil)
    assert(tx:response_headers()["Server"] == "test")
    assert(tx:request_uri_raw() == "/a%20b" and tx:request_uri_normalized() == "/a b")
    assert(tx:request_host() == "www.example.com")
    assert(tx:request_headers_raw():find("X%-Id: 7"))
    local body, first, last = tx:response_body()
    assert(body[1] == "hello" and first == 0 and last == 5)
    assert(f:app_layer_proto() == "http")
    local version, source = f:tuple()
    assert(version == 4 and source == "192.168.1.10")
    local to_server, bytes = f:stats()
    assert(to_server >= 4 and bytes > 0 and f:id() > 0 and type(f:has_alerts()) == "boolean")
    return 1
end"#,
            ),
            (
                "payload.lua",
                "function init() return {payload = true, packet = tostring(true)} end \
                 function match(a) return a.payload == 'one two' and #a.packet > 42 and 1 or 0 end",
            ),
            (
                "stream.lua",
                "function init() return {stream = true} end \
                 function match(a) return a.stream:find('X%-Id') and 1 or 0 end",
            ),
            (
                "number.lua",
                "local bytevar = require 'suricata.bytevar' \
                 function init(sig) bytevar.map(sig, 'first') return {} end \
                 function thread_init() first = bytevar.get('first') end \
                 function match() return first:value() == 111 and 1 or 0 end",
            ),
        ],
    ));
    let mut sids = left.sids();
    sids.sort_unstable();
    assert_eq!(sids, [1, 1, 2, 2, 3, 3, 4, 4, 5, 5], "{}", left.text);
    assert_eq!(failures(&left), [0; 4]);
}

#[test]
fn scripts_share_variables_and_counters_with_rules() {
    let rules = "\
alert http any any -> any any (msg:\"m\"; http.request_line; content:\"GET\"; lua:set.lua; sid:1;)
alert http any any -> any any (msg:\"m\"; http.response_line; content:\"200\"; flowint:seen,==,2; lua:get.lua; sid:2;)
";
    let left = sense(&how(
        rules,
        &[
            (
                "set.lua",
                r#"
local vars, ints = require("suricata.flowvar"), require("suricata.flowint")
function init() vars.register("name") ints.register("seen") return {} end
function thread_init() name, seen = vars.get("name"), ints.get("seen") end
function match()
    assert(name:value() == nil and seen:value() == nil)
    name:set("value", 3)
    assert(seen:incr() == 1 and seen:incr() == 2 and seen:incr() == 3 and seen:decr() == 2)
    return 1
end"#,
            ),
            (
                "get.lua",
                "local vars = require('suricata.flowvar') \
                 function init() return {} end \
                 function thread_init() name = vars.get('name') end \
                 function match() return name:value() == 'val' and 1 or 0 end",
            ),
        ],
    ));
    let mut sids = left.sids();
    sids.sort_unstable();
    assert_eq!(sids, [1, 1, 2, 2], "{}", left.text);
    let second = left
        .of("alert")
        .into_iter()
        .find(|a| a["alert"]["signature_id"] == 2);
    let metadata = &second.expect("an alert")["metadata"];
    assert_eq!(metadata["flowvars"][0]["name"], "val");
    assert_eq!(metadata["flowints"]["seen"], 2);
}

#[test]
fn a_transform_is_a_script() {
    let rules = "\
alert http any any -> any any (msg:\"m\"; http.uri; luaxform:up.lua, bytes 2 ,x; content:\"/A\"; bsize:2; sid:1;)
alert http any any -> any any (msg:\"m\"; http.uri; luaxform:none.lua; content:\"/a b\"; sid:2;)
alert http any any -> any any (msg:\"m\"; http.uri; luaxform:one.lua; content:\"/A B\"; sid:3;)
alert http any any -> any any (msg:\"m\"; http.uri; luaxform:bad.lua; content:\"/a b\"; sid:4;)
";
    let left = sense(&how(
        rules,
        &[
            (
                "up.lua",
                "function transform(input, args) \
                 assert(#args == 2 and args[1] == ' bytes 2 ' and args[2] == 'x') \
                 return input:upper(), 2 end",
            ),
            ("none.lua", "function transform(input) return nil, 0 end"),
            (
                "one.lua",
                "function transform(input) return input:upper() end",
            ),
            ("bad.lua", "function transform(input) return input.x.y end"),
        ],
    ));
    let mut sids = left.sids();
    sids.sort_unstable();
    assert_eq!(sids, [1, 1, 2, 2, 4, 4], "{}", left.text);
}

/// Runs with outputs that are scripts; what each wrote.
fn outputs(workers: usize, scripts: &[(&'static str, &'static str)]) -> (Left, Vec<String>) {
    let folder = Folder::new();
    let path = folder.0.join("tape.pcap");
    fs::write(&path, tape().pcap()).expect("written");
    let rule = "alert udp any any -> any any (msg:\"m\"; content:\"one\"; sid:9; rev:2;)\n";
    let mut how = how(rule, scripts)
        .workers(workers)
        .set("outputs.0.eve-log.enabled=yes")
        .set("outputs.1.fast.enabled=yes")
        .set("outputs.2.lua.enabled=yes")
        .set(&format!("outputs.2.lua.scripts-dir={}", folder.0.display()));
    for (at, (name, _)) in scripts.iter().enumerate() {
        how = how.set(&format!("outputs.2.lua.scripts.{at}={name}"));
    }
    let left = sense_within(&folder, &[path], &how);
    let read = |(name, _): &(&str, &str)| {
        fs::read_to_string(folder.0.join(format!("{name}.log"))).unwrap_or_default()
    };
    (left, scripts.iter().map(read).collect())
}

#[test]
fn outputs_are_scripts() {
    let scripts = [
        (
            "http",
            r#"
local http, config, packet = require("suricata.http"), require("suricata.config"), require("suricata.packet")
function init() return {protocol = "http"} end
function setup() file = assert(io.open(config.log_path() .. "/http.log", "w")) end
function log()
    local _, _, _, _, sp = packet.get():tuple()
    file:write(sp, " ", http.get_tx():request_line(), "\n")
end
function deinit() file:write("end\n") file:close() end"#,
        ),
        (
            "alerts",
            r#"
local rule, config, packet = require("suricata.rule"), require("suricata.config"), require("suricata.packet")
function init() return {type = "packet", filter = "alerts"} end
function setup() file = assert(io.open(config.log_path() .. "/alerts.log", "w")) end
function log()
    local r = rule.get_rule()
    file:write(r:sid(), " ", r:rev(), " ", packet.get():sp(), "\n")
end
function deinit() file:close() end"#,
        ),
        (
            "flows",
            r#"
local config, flow = require("suricata.config"), require("suricata.flow")
function init() return {type = "flow"} end
function setup() file = assert(io.open(config.log_path() .. "/flows.log", "w")) end
function log() file:write(flow.get():app_layer_proto(), " ", tostring(flow.get():has_alerts()), "\n") end
function deinit() file:close() end"#,
        ),
        (
            "stats",
            r#"
local config = require("suricata.config")
function init() return {type = "stats"} end
function setup() file = assert(io.open(config.log_path() .. "/stats.log", "w")) end
function log(args)
    for _, row in ipairs(args) do
        if row.name == "decoder.pkts" then file:write(row.value, "\n") end
    end
end
function deinit() file:close() end"#,
        ),
        (
            "streams",
            r#"
local config = require("suricata.config")
function init() return {type = "streaming", filter = "tcp"} end
function setup() file = assert(io.open(config.log_path() .. "/streams.log", "w")) end
function log(args)
    local s = args.stream
    file:write(#s.data, " ", tostring(s.open), " ", tostring(s.close), " ", tostring(s.toserver), "\n")
end
function deinit() file:close() end"#,
        ),
        (
            "files",
            r#"
local config, files = require("suricata.config"), require("suricata.file")
function init() return {type = "file"} end
function setup() file = assert(io.open(config.log_path() .. "/files.log", "w")) end
function log()
    local f = files.get_file()
    file:write(f:name(), " ", f:size(), " ", f:magic(), " ", f:md5(), " ", f:get_state(), "\n")
end
function deinit() file:close() end"#,
        ),
        (
            "fails",
            "function init() return {type = 'flow'} end function log() error('x') end",
        ),
    ];
    let (left, wrote) = outputs(1, &scripts);
    let frames = tape().frames.len();
    let line = "GET /a%20b HTTP/1.1";
    let streams =
        "55 true false true\n83 true false false\n0 false true true\n0 false true false\n";
    let file =
        "/a b 5 ASCII text, with no line terminators 5d41402abc4b2a76b9719d911017c592 CLOSED\n";
    let expected = [
        format!("41000 {line}\n41001 {line}\nend\n"),
        "9 2 1000\n9 2 1001\n".to_owned(),
        String::new(),
        format!("{frames}\n"),
        String::new(),
        file.repeat(2),
        String::new(),
    ];
    for (at, expected) in expected.iter().enumerate().filter(|(_, e)| !e.is_empty()) {
        assert_eq!(&wrote[at], expected, "{}", scripts[at].0);
    }
    let lines = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let flows = ["failed true", "failed true", "http false", "http false"];
    assert_eq!(lines(&wrote[2]), flows);
    assert_eq!(lines(&wrote[4]), lines(&streams.repeat(2)));
    assert_eq!(left.summary.counters["output.lua_errors"], 4);
    for workers in [2, 4] {
        let (other, also) = outputs(workers, &scripts);
        assert_eq!(also, wrote, "{workers} workers");
        assert_eq!(other.text, left.text);
    }
}

#[test]
fn what_is_no_script_is_refused_with_its_reason() {
    let folder = Folder::new();
    for (name, text) in [
        ("syntax.lua", "function init() return {} en"),
        ("noinit.lua", "function match() return 1 end"),
        ("nomatch.lua", "function init() return {} end"),
        (
            "notable.lua",
            "function init() return 1 end function match() return 1 end",
        ),
        (
            "asks.lua",
            "function init() return {['http.uri'] = true} end function match() return 1 end",
        ),
        ("loops.lua", "while true do end"),
        (
            "number.lua",
            "local b = require('suricata.bytevar') function init(s) b.map(s, 'x') return {} end function match() return 1 end",
        ),
        ("none.lua", "require('suricata.nothing')"),
        (
            "fine.lua",
            "function init() return {} end function match() return 1 end",
        ),
    ] {
        fs::write(folder.0.join(name), text).expect("written");
    }
    let refusals = |names: &[&str], set: &str| -> Vec<String> {
        let rules = folder.0.join("test.rules");
        let lines = names.iter().zip(1..);
        let lines = lines.map(|(name, sid)| {
            format!("alert udp any any -> any any (msg:\"m\"; lua:{name}; sid:{sid};)\n")
        });
        fs::write(&rules, lines.collect::<String>()).expect("written");
        let mut settings = Settings::default();
        settings.set(set).expect("a setting");
        let config = SensorConfig::from_settings(&settings).expect("right");
        let engine = matcher::Engine::Prefilter;
        let loaded = Engine::load(&config, Dialect::Suricata, &[rules], engine, None);
        let (_, book, _) = loaded.expect("rules");
        let refused = book.loaded.refused.iter();
        refused.map(|r| r.reason.clone()).collect()
    };
    let names = [
        "syntax.lua",
        "noinit.lua",
        "nomatch.lua",
        "notable.lua",
        "asks.lua",
        "loops.lua",
        "number.lua",
        "none.lua",
        "absent.lua",
        "../fine.lua",
        "fine.lua",
    ];
    let reasons = refusals(&names, "security.lua.allow-rules=yes");
    let parts = [
        "near 'en'",
        "no function `init`",
        "no function `match`",
        "returns no table",
        "asks for `http.uri`",
        "more than 500000 instructions",
        "asks for `x`, which the rule does not extract",
        "no library `suricata.nothing`",
        "no script absent.lua beside the rules",
        "below the folder of rules only",
    ];
    assert_eq!(reasons.len(), parts.len(), "{reasons:#?}");
    for (reason, part) in reasons.iter().zip(parts) {
        assert!(reason.contains(part), "{reason}: {part}");
    }
    let off = refusals(&["fine.lua"], "security.lua.allow-rules=no");
    assert_eq!(off.len(), 1);
    assert!(off[0].contains("turned off"), "{off:?}");
}
