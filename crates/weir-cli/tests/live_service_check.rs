//! `weir service check` beside a balancer that carries real HTTP: connections of the host and of others to servers are not taken for answers to
//! clients, and servers are killed, drained and started under load in every mode, with checks of TCP and HTTP. `live_farm` has the bed.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::live_bed::root;
use crate::live_farm::{Asked, Checking, Farm, Load, SERVICE, SERVICE6, ask, connect, get};
use serde_json::json;

const ALL: [usize; 3] = [0, 1, 2];

#[test]
fn checks_of_a_nat_service_leave_its_servers_up() {
    if !root("checks_of_a_nat_service_leave_its_servers_up") {
        return;
    }
    let farm = Farm::new("checked");
    let keys = "mode = \"nat\"\ncheck = { kind = \"http\", path = \"/id\", interval = \"100ms\", timeout = \"500ms\" }";
    let both = |servers: &[usize]| {
        farm.service("192.0.2.1", keys, servers) + &farm.service("2001:db8::80", keys, servers)
    };
    farm.write(&both(&ALL));
    farm.apply();
    let (began, checking) = (Instant::now(), Checking::start(&farm));
    for service in [SERVICE, SERVICE6] {
        let names: BTreeSet<String> = (0..60)
            .map(|n| {
                std::thread::sleep(Duration::from_millis(25));
                get(&farm.client, service).unwrap_or_else(|e| panic!("request {n}: {e}"))
            })
            .collect();
        assert_eq!(names.len(), 3, "{service}: {names:?}");
    }
    // Twice as long as it takes to find that a server does not answer.
    assert!(began.elapsed() > 2 * STATED);
    assert_eq!(checking.since(began), []);
    // The host itself, and a client that asks servers by their own addresses.
    for (at, name) in ["one", "two", "three"].into_iter().enumerate() {
        for to in [farm.at(at), farm.at6(at)] {
            for from in [&farm.edge, &farm.client] {
                let said = get(from, &to).unwrap_or_else(|e| panic!("{to}: {e}"));
                assert_eq!(said, name, "{to}");
            }
        }
    }
    if let Ok(printed) = farm.edge.output(
        "curl",
        &["-s", "-m", "5", "-w", " %{http_code}", "http://10.2.1.2/id"],
    ) {
        assert_eq!(printed, "one 200");
    }
    // A client on the servers' side, which is no server any more: of the service, and of a server.
    farm.write(&both(&ALL[..2]));
    farm.apply();
    let inside = &farm.servers[2];
    for service in [SERVICE, SERVICE6] {
        // Its own addresses are those of the service, too.
        let address = service.trim_end_matches(":80").trim_matches(['[', ']']);
        let prefix = if address.contains(':') { 128 } else { 32 };
        inside
            .ip(&[
                "address",
                "del",
                &format!("{address}/{prefix}"),
                "dev",
                "lo",
            ])
            .expect("ip");
        let names: BTreeSet<String> = (0..24)
            .map(|n| get(inside, service).unwrap_or_else(|e| panic!("request {n}: {e}")))
            .collect();
        assert_eq!(names.len(), 2, "{service}: {names:?}");
    }
    for to in [farm.at(0), farm.at6(0)] {
        assert_eq!(get(inside, &to).expect("answered"), "one");
    }
    assert_eq!(checking.since(began), []);
}

#[test]
fn a_full_flow_table_and_answers_of_unknown_flows_leave_the_host_alone() {
    if !root("a_full_flow_table_and_answers_of_unknown_flows_leave_the_host_alone") {
        return;
    }
    let farm = Farm::new("full");
    let service = farm.service("192.0.2.1", "mode = \"nat\"", &ALL);
    for answers in ["known", "all"] {
        // 64 flows have room.
        farm.write(&format!(
            "connections = 64\nfresh = true\nanswers = \"{answers}\"\n{service}"
        ));
        farm.apply();
        let mut open: Vec<_> = (0..240)
            .map(|n| {
                let mut stream = connect(&farm.client, SERVICE)
                    .unwrap_or_else(|e| panic!("connection {n}: {e}"));
                let name = ask(&mut stream).unwrap_or_else(|e| panic!("request {n}: {e}"));
                (stream, name)
            })
            .collect();
        assert!(
            farm.reason("flows_crowded") > 100,
            "{answers}: {}",
            farm.status()
        );
        for round in 0..40 {
            for at in ALL {
                get(&farm.edge, &farm.at(at))
                    .unwrap_or_else(|e| panic!("{answers}: round {round}, server {at}: {e}"));
            }
        }
        for (n, (stream, name)) in open.iter_mut().enumerate() {
            let now = ask(stream).unwrap_or_else(|e| panic!("{answers}: connection {n}: {e}"));
            assert_eq!(now, *name, "{answers}: connection {n}");
        }
    }
}

#[test]
fn a_policy_says_what_becomes_of_a_service_whose_servers_are_all_down() {
    if !root("a_policy_says_what_becomes_of_a_service_whose_servers_are_all_down") {
        return;
    }
    let mut farm = Farm::new("policy");
    let keys =
        |policy: &str| format!("mode = \"nat\"\n{policy}\ncheck = {{ kind = \"tcp\", {TIMES} }}");
    let apply = |farm: &Farm, policy: &str| {
        farm.write(&farm.service("192.0.2.1", &keys(policy), &ALL));
        farm.apply()
    };
    let refusal = |farm: &Farm| {
        let refused = get(&farm.client, SERVICE).expect_err("nobody listens");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    };
    apply(&farm, "");
    let checking = Checking::start(&farm);
    let killed = Instant::now();
    ALL.iter().for_each(|at| farm.kill(*at));
    checking.wait_for(killed, "all servers of tcp 192.0.2.1:80 are down");
    refusal(&farm);
    assert_eq!(farm.reason("no_server"), 0);
    // Another policy finds who is down as they are.
    let told = apply(&farm, "all_down = \"drop\"");
    assert!(
        told.contains(
            "function lb: 3 of its servers failed their last health check and get no new flows;"
        ),
        "{told}"
    );
    let listed = farm.service_command(&[]);
    assert_eq!(listed["services"][0]["all_down"], "drop");
    assert_eq!(farm.servers_that("down"), [true; 3]);
    assert_eq!(farm.servers_that("kept"), [false; 3]);
    let lost = farm.client.run(|| {
        let to = SERVICE.parse().expect("an address");
        TcpStream::connect_timeout(&to, Duration::from_millis(200))
    });
    let lost = lost.expect("namespace").expect_err("dropped");
    assert_eq!(lost.kind(), ErrorKind::TimedOut);
    assert!(farm.reason("no_server") > 0, "{}", farm.status());
    let status = farm.status();
    let carried = &status["carried"][0];
    assert_eq!(
        (&carried["servers"], &carried["down"]),
        (&json!([0, 3]), &json!(3))
    );
    // And back: none of them was the last.
    let told = apply(&farm, "all_down = \"keep\"");
    assert!(told.contains("(3 of them do all the same"), "{told}");
    assert_eq!(farm.servers_that("kept"), [true; 3]);
    refusal(&farm);
    // One comes back, and is the only one; then it is the last one.
    let started = Instant::now();
    farm.start(0);
    checking.wait_for(started, "server 10.2.1.2 of tcp 192.0.2.1:80 is back");
    assert_eq!(farm.servers_that("down"), [false, true, true]);
    assert_eq!(farm.servers_that("kept"), [false; 3]);
    for n in 0..12 {
        let name = get(&farm.client, SERVICE).unwrap_or_else(|e| panic!("request {n}: {e}"));
        assert_eq!(name, "one");
    }
    let killed = Instant::now();
    farm.kill(0);
    checking.wait_for(
        killed,
        "are down: new flows go to the 1 that were the last to be up",
    );
    assert_eq!(farm.servers_that("kept"), [true, false, false]);
    let text = farm.service("192.0.2.1", &keys(""), &ALL);
    farm.write(&format!("idle = {{ tcp = \"5m\" }}\n{text}"));
    let told = farm.apply();
    assert!(told.contains("(1 of them do all the same"), "{told}");
    assert_eq!(farm.servers_that("kept"), [true, false, false]);
    refusal(&farm);
}

/// How servers are asked, and how long it takes at most until a server that is gone has no new flows.
const TIMES: &str = "interval = \"100ms\", timeout = \"500ms\", rise = 2, fall = 2";
const STATED: Duration = Duration::from_millis(2 * 500 + 500);

#[test]
fn servers_are_killed_drained_and_started_under_load_in_every_mode() {
    if !root("servers_are_killed_drained_and_started_under_load_in_every_mode") {
        return;
    }
    std::thread::scope(|scope| {
        let modes = ["nat", "dsr", "ipip", "gue"];
        let started = modes.map(|mode| scope.spawn(move || in_mode(mode)));
        for one in started {
            if let Err(panic) = one.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
}

fn in_mode(mode: &str) {
    let mut farm = Farm::new(mode);
    if matches!(mode, "ipip" | "gue") {
        farm.decapsulate();
    }
    for kind in ["kind = \"tcp\"", "kind = \"http\", path = \"/health\""] {
        let keys = format!("mode = \"{mode}\"\ncheck = {{ {kind}, {TIMES} }}");
        farm.write(&farm.service("192.0.2.1", &keys, &ALL));
        farm.apply();
        let what = format!("{mode} {}", kind.split('"').nth(1).expect("quoted"));
        let checking = Checking::start(&farm);
        one_is_killed(&what, &mut farm, &checking);
        if kind.contains("http") {
            one_is_sick(&what, &farm, &checking);
        } else {
            one_is_silent(&what, &farm, &checking);
        }
        one_is_drained(&what, &farm);
        all_are_killed(&what, &mut farm, &checking);
        assert_eq!(farm.reason("no_server"), 0, "{what}: {}", farm.status());
    }
}

/// A figure for who reads the output; tests gate on none of them.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn failed(asked: &[Asked], from: Instant) -> Vec<&Asked> {
    let later = asked.iter().filter(|one| one.began >= from);
    later.filter(|one| one.answer.is_err()).collect()
}

/// Who answered what was asked between two moments.
fn names(asked: &[Asked], from: Instant, to: Instant) -> BTreeSet<&str> {
    let some = asked
        .iter()
        .filter(|one| one.began >= from && one.began < to);
    some.filter_map(|one| one.answer.as_deref().ok()).collect()
}

fn one_is_killed(what: &str, farm: &mut Farm, checking: &Checking) {
    let load = Load::start(&farm.client, SERVICE, 3);
    let began = Instant::now();
    load.wait_for(60);
    let killed = Instant::now();
    farm.kill(0);
    let noticed = checking.wait_for(killed, "server 10.2.1.2 of tcp 192.0.2.1:80 is down");
    load.wait_for(60);
    let started = Instant::now();
    farm.start(0);
    let back = checking.wait_for(started, "server 10.2.1.2 of tcp 192.0.2.1:80 is back");
    load.wait_for(60);
    let end = Instant::now();
    let asked = load.stop();
    let lost = failed(&asked, began);
    say(&format!(
        "{what}: down after {:?} of {STATED:?}, back after {:?}; {} of {} requests failed",
        noticed - killed,
        back - started,
        lost.len(),
        asked.len()
    ));
    // None that ended before, and none that began after it was noticed.
    let wrong: Vec<&&Asked> = lost
        .iter()
        .filter(|one| one.ended < killed || one.began >= noticed)
        .collect();
    assert!(wrong.is_empty(), "{what}: {wrong:?}");
    assert_eq!(names(&asked, began, killed).len(), 3, "{what}");
    assert_eq!(
        names(&asked, noticed, started),
        BTreeSet::from(["three", "two"]),
        "{what}"
    );
    assert_eq!(names(&asked, back, end).len(), 3, "{what}");
}

/// Nothing comes from its host any more: connections and checks time out.
fn one_is_silent(what: &str, farm: &Farm, checking: &Checking) {
    let load = Load::start(&farm.client, SERVICE, 3);
    load.wait_for(30);
    let silent = Instant::now();
    farm.silence(2, true);
    let noticed = checking.wait_for(silent, "server 10.2.3.2 of tcp 192.0.2.1:80 is down");
    load.wait_for(30);
    let heard = Instant::now();
    farm.silence(2, false);
    checking.wait_for(heard, "server 10.2.3.2 of tcp 192.0.2.1:80 is back");
    let asked = load.stop();
    let late = failed(&asked, noticed);
    assert!(late.is_empty(), "{what}: {late:?}");
    say(&format!(
        "{what}: silent, down after {:?} of {STATED:?}; {} of {} requests failed",
        noticed - silent,
        failed(&asked, silent).len(),
        asked.len()
    ));
    assert_eq!(
        names(&asked, noticed, heard),
        BTreeSet::from(["one", "two"]),
        "{what}"
    );
}

/// It answers its clients, and says by HTTP that it wants no new ones.
fn one_is_sick(what: &str, farm: &Farm, checking: &Checking) {
    let load = Load::start(&farm.client, SERVICE, 3);
    let began = Instant::now();
    farm.make_sick(1, true);
    let noticed = checking.wait_for(began, "server 10.2.2.2 of tcp 192.0.2.1:80 is down");
    load.wait_for(60);
    let well = Instant::now();
    farm.make_sick(1, false);
    checking.wait_for(well, "server 10.2.2.2 of tcp 192.0.2.1:80 is back");
    let asked = load.stop();
    let lost = failed(&asked, began);
    assert!(lost.is_empty(), "{what}: {lost:?}");
    assert_eq!(
        names(&asked, noticed, well),
        BTreeSet::from(["one", "three"]),
        "{what}"
    );
}

fn one_is_drained(what: &str, farm: &Farm) {
    let mut open: Vec<_> = (0..12)
        .map(|_| {
            let mut stream = connect(&farm.client, SERVICE).expect("connects");
            let name = ask(&mut stream).expect("answered");
            (stream, name)
        })
        .collect();
    let load = Load::start(&farm.client, SERVICE, 3);
    let began = Instant::now();
    load.wait_for(30);
    farm.service_command(&["drain", "-r", "10.2.3.2"]);
    let drained = Instant::now();
    load.wait_for(60);
    let ends = Instant::now();
    farm.service_command(&["drain", "-r", "10.2.3.2", "--off"]);
    let again = Instant::now();
    load.wait_for(60);
    let end = Instant::now();
    let asked = load.stop();
    let lost = failed(&asked, began);
    assert!(lost.is_empty(), "{what}: {lost:?}");
    say(&format!(
        "{what}: drained, 0 of {} requests failed",
        asked.len()
    ));
    assert_eq!(
        names(&asked, drained, ends),
        BTreeSet::from(["one", "two"]),
        "{what}"
    );
    assert_eq!(names(&asked, again, end).len(), 3, "{what}");
    for (stream, name) in &mut open {
        let now = ask(stream).unwrap_or_else(|e| panic!("{what}: a connection to {name}: {e}"));
        assert_eq!(now, *name, "{what}");
    }
}

fn all_are_killed(what: &str, farm: &mut Farm, checking: &Checking) {
    let killed = Instant::now();
    for at in ALL {
        farm.kill(at);
    }
    checking.wait_for(
        killed,
        "all servers of tcp 192.0.2.1:80 are down: new flows go to the",
    );
    assert_eq!(farm.servers_that("down"), [true; 3], "{what}");
    let kept = farm.servers_that("kept");
    assert!(kept.contains(&true), "{what}: {kept:?}");
    // They are asked all the same, and it is they who refuse.
    let refused = get(&farm.client, SERVICE).expect_err("nobody listens");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{what}");
    let started = Instant::now();
    for at in ALL {
        farm.start(at);
    }
    // From this moment on, whether checks have noticed or not.
    let load = Load::start(&farm.client, SERVICE, 3);
    let back = ["10.2.1.2", "10.2.2.2", "10.2.3.2"].map(|server| {
        let said = format!("server {server} of tcp 192.0.2.1:80 is back");
        checking.wait_for(started, &said)
    });
    let back = back.into_iter().max().expect("three");
    load.wait_for(60);
    let end = Instant::now();
    let asked = load.stop();
    let lost = failed(&asked, started);
    assert!(lost.is_empty(), "{what}: {lost:?}");
    say(&format!(
        "{what}: {} of 3 kept while all were down, all back after {:?}, 0 of {} requests failed",
        kept.iter().filter(|one| **one).count(),
        back - started,
        asked.len()
    ));
    assert_eq!(names(&asked, back, end).len(), 3, "{what}");
    assert_eq!(farm.servers_that("down"), [false; 3], "{what}");
    assert_eq!(farm.servers_that("kept"), [false; 3], "{what}");
}
