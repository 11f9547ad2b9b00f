//! The firewall in front of the inspection (`firewall.enabled`): what no rule accepts is dropped, packet by packet and state by state.

use weir_packet::build::Frame;
use weir_sensor::config::{SIMULATE, SensorConfig};
use weir_sensor::rules::Dialect;
use weir_sensor::settings::Settings;
use weir_sensor::worker::Engine;

use super::bed::{ANSWER, CLIENT, Folder, How, Left, SERVER, Tape, counts, sense_tape, web};
use super::schema::hold;

/// Runs a sensor with rules of the firewall, and others of the inspection.
fn run(tape: &Tape, firewall: &str, rules: &str) -> Left {
    let folder = Folder::new();
    let file = folder.0.join("firewall.rules");
    std::fs::write(&file, firewall).expect("written");
    let mut how = How::rules(rules)
        .set(&format!("{SIMULATE}=yes"))
        .set("firewall.enabled=yes")
        .set(&format!("firewall.rule-files.0={}", file.display()))
        .set("outputs.0.eve-log.types.drop.alerts=yes")
        .set("outputs.0.eve-log.types.drop.flows=all")
        .set("outputs.1.fast.enabled=yes");
    for kind in ["flow", "http", "dns", "alert", "stats"] {
        how = how.set(&format!("outputs.0.eve-log.types.{kind}.enabled=yes"));
    }
    let left = sense_tape(tape, &how);
    // Each packet is accepted or blocked by the firewall, and what is accepted by the inspection.
    let count = |name| count(&left, name);
    let (accepted, blocked) = (count("firewall.accepted"), count("firewall.blocked"));
    assert_eq!(accepted + blocked, left.summary.ledger.read);
    assert_eq!(count("ips.accepted") + count("ips.blocked"), accepted);
    for (side, all) in [("firewall", blocked), ("ips", count("ips.blocked"))] {
        let reasons = left.summary.counters.iter();
        let prefix = format!("{side}.drop_reason.");
        let reasons = reasons.filter(|(name, _)| name.starts_with(&prefix));
        assert_eq!(reasons.map(|(_, n)| n).sum::<u64>(), all, "{side}");
    }
    hold(left.eve.iter());
    left
}

fn count(left: &Left, name: &str) -> u64 {
    left.summary.counters.get(name).copied().unwrap_or_default()
}

/// Frames by their numbers, with the reason why each was dropped.
fn drops(left: &Left) -> Vec<(u64, &str)> {
    let records = left.of("drop").into_iter();
    records
        .map(|r| {
            let number = r["pcap_cnt"].as_u64().expect("a number");
            (number, r["drop"]["reason"].as_str().expect("a reason"))
        })
        .collect()
}

fn alerts(left: &Left) -> Vec<(u64, usize)> {
    counts(&left.of("alert"))
}

/// A session of the web: its request is the fourth frame, its answer the sixth.
fn session(path: &str) -> Tape {
    let mut tape = Tape::default();
    let request = format!("GET {path} HTTP/1.1\r\nHost: h\r\nUser-Agent: curl\r\n\r\n");
    web(&mut tape, 2000, &request, ANSWER);
    tape
}

/// Accepts all packets, and nothing of transactions.
const PACKETS: &str = "accept:hook tcp:all any any -> any any (sid:100;)\n";

#[test]
fn packets_that_no_rule_accepts_are_dropped() {
    let mut tape = Tape::default();
    for port in [4001, 4002, 4001, 4003, 4003] {
        tape.push(
            &Frame::new()
                .ip4(CLIENT, SERVER)
                .udp(4000, port)
                .payload(b"x"),
        );
    }
    let rules = "accept:packet,alert udp:all any any -> any 4001 (sid:1;)\n\
        drop:flow udp:flow_start any any -> any 4003 (alert; sid:2;)\n\
        accept:packet udp:all any any -> any 4003 (sid:3;)\n";
    let left = run(&tape, rules, "");
    assert_eq!(
        drops(&left),
        [
            (2, "firewall default packet policy"),
            (4, "firewall rules"),
            (5, "firewall flow drop")
        ]
    );
    assert_eq!(alerts(&left), [(1, 2), (2, 1)]);
    let blocked = left.of("alert");
    let blocked = blocked.iter().map(|a| a["alert"]["action"].as_str());
    let blocked: Vec<_> = blocked.flatten().collect();
    assert_eq!(blocked, ["allowed", "allowed", "blocked"]);
    // Without a rule nothing passes.
    assert_eq!(drops(&run(&tape, "# none\n", "")).len(), 5);
}

#[test]
fn each_state_of_a_transaction_is_accepted_by_a_rule() {
    let tape = session("/good");
    let states = [
        "request_started",
        "request_line",
        "request_headers",
        "request_body",
        "request_trailer",
        "request_complete",
        "response_started",
        "response_line",
        "response_headers",
        "response_body",
        "response_trailer",
        "response_complete",
    ];
    let rules = |left_out: Option<usize>| {
        let mut text = PACKETS.to_owned();
        for (n, state) in states.iter().enumerate() {
            if Some(n) != left_out {
                text +=
                    &format!("accept:hook,alert http1:{state} any any -> any any (sid:{n}1;)\n");
            }
        }
        text
    };
    let left = run(&tape, &rules(None), "");
    assert!(drops(&left).is_empty());
    // Each once, though the session has more packets than these states.
    let all: Vec<(u64, usize)> = (0..12).map(|n| (n * 10 + 1, 1)).collect();
    assert_eq!(alerts(&left), all);
    assert_eq!(left.of("http").len(), 1);
    assert!(left.of("flow")[0]["flow"].get("action").is_none());
    // Of a state without a rule the packet that brings it there is dropped, with its flow; what was before it has been accepted.
    for missing in 0..12 {
        let left = run(&tape, &rules(Some(missing)), "");
        let first = if missing < 6 { 4 } else { 6 };
        assert_eq!(drops(&left)[0], (first, "firewall default app policy"));
        assert!(
            drops(&left)[1..]
                .iter()
                .all(|d| d.1 == "firewall flow drop")
        );
        assert_eq!(alerts(&left), all[..missing], "{}", states[missing]);
        assert_eq!(left.of("flow")[0]["flow"]["action"], "drop");
    }
}

#[test]
fn a_rule_may_accept_what_is_before_and_behind_its_state() {
    let rules = |action: &str| {
        format!(
            "{PACKETS}{action} http1:<request_headers any any -> any any (http.user_agent; content:\"curl\"; sid:1;)\n"
        )
    };
    let tape = session("/good");
    // All states of the transaction, in both directions.
    let left = run(&tape, &rules("accept:tx,alert"), "");
    assert_eq!((drops(&left).len(), alerts(&left)), (0, vec![(1, 1)]));
    // Those before its own, and no more.
    let left = run(&tape, &rules("accept:hook,alert"), "");
    assert_eq!(drops(&left)[0], (4, "firewall default app policy"));
    // The flow: it says so.
    let left = run(&tape, &rules("accept:flow"), "");
    assert_eq!((drops(&left).len(), alerts(&left)), (0, vec![]));
    assert_eq!(left.of("flow")[0]["flow"]["action"], "accept");
    // Where it does not hold, the states before it are accepted and its own is not.
    let text = rules("accept:flow,alert").replace("curl", "wget");
    let left = run(&tape, &text, "");
    assert_eq!(drops(&left)[0], (4, "firewall default app policy"));
}

#[test]
fn the_inspection_sees_what_the_firewall_accepts() {
    let tape = session("/bad");
    let accept = |passed: &str| {
        format!("{PACKETS}accept:flow{passed} http1:request_started any any -> any any (sid:1;)\n")
    };
    let found = "alert http any any -> any any (http.uri; content:\"/bad\"; sid:9;)\n";
    assert_eq!(alerts(&run(&tape, &accept(""), found)), [(9, 1)]);
    // A rule of the firewall may let pass by it what it accepts.
    assert_eq!(alerts(&run(&tape, &accept(",pass:flow"), found)), []);
    assert_eq!(alerts(&run(&tape, &accept(",pass:packet"), found)), []);
    // What it does not accept is not inspected.
    assert_eq!(alerts(&run(&tape, PACKETS, found)), []);
    // The inspection may drop what the firewall accepts, and passes nothing by the firewall.
    let left = run(&tape, &accept(""), &found.replace("alert", "drop:flow"));
    assert_eq!(drops(&left)[0], (4, "rules"));
    assert_eq!(drops(&left)[1], (5, "flow drop"));
    let left = run(&tape, PACKETS, &found.replace("alert", "pass:flow"));
    assert_eq!(drops(&left)[0], (4, "firewall default app policy"));
    // A scope is the rule's word: one about transactions may drop its packet alone.
    let left = run(&tape, &accept(""), &found.replace("alert", "drop:packet"));
    assert_eq!(drops(&left), [(4, "rules")]);
}

#[test]
fn bits_of_transactions_are_of_one_alone() {
    let mut tape = Tape::default();
    let ask = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").into_bytes();
    let (first, second) = (ask("/a"), ask("/b"));
    let answer = ANSWER.as_bytes();
    tape.session(
        (CLIENT, 2000),
        (SERVER, 80),
        &[&first, answer, &second, answer],
    );
    let rules = "alert http any any -> any any (http.uri; content:\"/a\"; xbits:set,one,track tx; sid:1;)\n\
        alert http any any -> any any (http.stat_code; content:\"200\"; xbits:isset,one,track tx; sid:2;)\n\
        alert http any any -> any any (http.stat_code; content:\"200\"; xbits:isnotset,one,track tx; sid:3;)\n";
    for workers in [1, 2, 4] {
        let left = sense_tape(&tape, &How::rules(rules).workers(workers));
        let found: Vec<_> = (left.of("alert").iter())
            .map(|a| (a["alert"]["signature_id"].as_u64(), a["tx_id"].as_u64()))
            .collect();
        let expected = [(1, 0), (2, 0), (3, 1)];
        assert_eq!(found, expected.map(|(sid, tx)| (Some(sid), Some(tx))));
    }
}

/// Before flows and streams what no rule drops goes on; what one drops has told neither anything.
#[test]
fn packets_are_dropped_before_flows_and_streams() {
    let tape = session("/good");
    let rules = |early: &str| format!("{early}accept:packet tcp:all any any -> any any (sid:1;)\n");
    let open = "accept:hook tcp:pre_stream any any -> any any (sid:2;)\n\
        accept:hook tcp:pre_flow any any -> any any (sid:3;)\n";
    assert!(drops(&run(&tape, &rules(open), "")).is_empty());
    // No packet has made a flow.
    let flow = "drop:packet tcp:pre_flow any any -> any 80 (tcp.flags:S; alert; sid:4;)\n\
        drop:packet tcp:pre_flow any any <> any any (sid:5;)\n";
    let left = run(&tape, &rules(flow), "");
    assert_eq!(drops(&left)[0], (1, "firewall pre_flow hook"));
    assert_eq!(drops(&left).len() as u64, left.summary.ledger.read);
    assert_eq!((alerts(&left), left.of("flow").len()), (vec![(4, 1)], 0));
    // A flow, of which the stream has seen no beginning.
    let stream = "drop:packet tcp:pre_stream any any -> any 80 (flow:to_server; tcp.flags:S; alert; sid:6;)\n";
    let left = run(&tape, &rules(stream), "");
    assert_eq!(drops(&left)[0], (1, "firewall pre_stream hook"));
    assert_eq!(alerts(&left), [(6, 1)]);
    assert_eq!(left.of("alert")[0]["alert"]["action"], "blocked");
    assert_eq!((left.of("flow").len(), left.of("http").len()), (1, 0));
    let once = count(&left, "firewall.drop_reason.pre_stream_hook");
    assert_eq!((once, count(&left, "firewall.blocked")), (1, 1));
    // Accepted as a whole, or with its flow: the tables behind are not asked.
    for scope in ["packet", "flow"] {
        let early = format!("accept:{scope} tcp:pre_stream any any -> any any (sid:7;)\n");
        let left = run(&tape, &early, "");
        assert_eq!((drops(&left).len(), left.of("http").len()), (0, 1));
    }
    let left = run(
        &tape,
        "accept:packet tcp:pre_flow any any -> any any (sid:8;)\n",
        "",
    );
    assert!(drops(&left).is_empty());
}

#[test]
fn rules_of_the_firewall_say_what_they_decide_and_when() {
    let folder = Folder::new();
    let file = folder.0.join("firewall.rules");
    let mut settings = Settings::default();
    for one in [
        &format!("{SIMULATE}=yes"),
        "firewall.enabled=yes",
        &format!("firewall.rule-files.0={}", file.display()),
    ] {
        settings.set(one).expect(one);
    }
    let config = SensorConfig::from_settings(&settings).expect("a configuration");
    for (head, reason) in [
        ("accept tcp:all", "the scope is missing"),
        ("pass:flow tcp:all", "begins with `accept`"),
        ("alert tcp:all", "begins with `accept`"),
        ("accept:hook tcp", "PROTOCOL:HOOK"),
        ("accept:tx tcp:all", "has none"),
        ("drop:hook tcp:all", "`drop:packet` or `drop:flow`"),
        ("drop:flow,pass:flow tcp:all", "is not passed"),
        ("accept:hook,drop:flow tcp:all", "beside its decision"),
        ("accept:hook tcp:<all", "states of a transaction"),
        ("accept:hook tcp:<pre_stream", "states of a transaction"),
        ("accept:hook http:request_started", "several protocols"),
        ("accept:hook dns:request_line", "has no hook"),
    ] {
        std::fs::write(&file, format!("{head} any any -> any any (sid:1;)\n")).expect("written");
        let (engine, book, _) =
            Engine::load(&config, Dialect::Suricata, &[], Default::default(), None).expect("rules");
        let refused: Vec<String> = (book.loaded.refused.iter())
            .map(|r| r.reason.clone())
            .collect();
        assert_eq!((engine.rules(), refused.len()), (0, 1), "{head}");
        assert!(refused[0].contains(reason), "{head}: {}", refused[0]);
    }
    // Beside the traffic nothing can be dropped.
    let mut settings = Settings::default();
    settings.set("firewall.enabled=yes").expect("a setting");
    let error = SensorConfig::from_settings(&settings).expect_err("refused");
    assert!(error.to_string().contains("--simulate-ips"), "{error}");
    // Nor can what is read only when it is acknowledged.
    for one in [&format!("{SIMULATE}=yes"), "stream.inline=no"] {
        settings.set(one).expect(one);
    }
    let error = SensorConfig::from_settings(&settings).expect_err("refused");
    assert!(error.to_string().contains("firewall"), "{error}");
}
