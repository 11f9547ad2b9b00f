//! Applies of networks that fail or are killed between any two steps, and under traffic: packets follow a whole generation, and whoever
//! comes next cleans up.

#![allow(clippy::print_stderr, reason = "figures are said where the test runs")]

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::network_bed::{Bed, checked, root};
use weir_engine::network::{self, NetworkError, Networks, Step};

/// Name of the running networks and the step, for a process that is to be killed.
const VICTIM: &str = "WEIR_TEST_NETWORK_VICTIM";

/// `a` and `b` in one subnet; what is `more` has a second subnet behind a router as well, and a workload there.
fn document(more: bool, version: u32) -> String {
    let mut text = format!(
        r#"
version = {version}
[[edge]]
name = "e1"
[[tenant]]
name = "red"
[[network]]
name = "n"
tenant = "red"
[[network.subnet]]
name = "web"
prefix = "10.1.0.0/24"
[[network.workload]]
name = "a"
subnet = "web"
edge = "e1"
device = "wa"
address = "10.1.0.7"
[[network.workload]]
name = "b"
subnet = "web"
edge = "e1"
device = "wb"
address = "10.1.0.8"
"#
    );
    if more {
        text.push_str(
            r#"
[[network.subnet]]
name = "db"
prefix = "10.2.0.0/24"
[[network.function]]
name = "gw"
kind = "router"
interface = [ { name = "web", address = "10.1.0.1/24" }, { name = "db", address = "10.2.0.1/24" } ]
[[network.function]]
name = "wall"
kind = "middlebox"
rules = "tcp-dport 23 drop"
[[network.link]]
from = "web"
to = "gw.web"
[[network.link]]
from = "db"
to = "wall.b"
[[network.link]]
from = "wall.a"
to = "gw.db"
[[network.workload]]
name = "c"
subnet = "db"
edge = "e1"
device = "wc"
address = "10.2.0.2"
"#,
        );
    }
    text
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn bed() -> Bed {
    Bed::new(&checked(&document(true, 1)).document)
}

/// What is there of the running networks: pins, devices of the namespace, filters and links on them.
fn traces(bed: &Bed) -> (Vec<String>, String, BTreeMap<String, String>) {
    let name = &bed.names["e1"];
    let folder = std::path::Path::new("/sys/fs/bpf/weir/net").join(name);
    let edge = &bed.edges["e1"];
    let look = || weir_kernel::pinned::names(&folder).expect("listed");
    let pins = edge.run(look).expect("in the namespace");
    let devices = edge.ip(&["-br", "link"]).expect("listed");
    let names: Vec<String> = devices.lines().filter_map(first_word).collect();
    let on = names.into_iter().map(|device| {
        let filters = edge
            .output("tc", &["filter", "show", "dev", &device, "ingress"])
            .unwrap_or_default();
        (device, filters)
    });
    // Names and addresses: the kernel looks at carriers once a second only.
    let plain = devices.lines().map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        format!("{} {}", words[0], words.get(2).unwrap_or(&""))
    });
    (pins, plain.collect(), on.collect())
}

fn first_word(line: &str) -> Option<String> {
    let word = line.split_whitespace().next()?;
    Some(word.split('@').next()?.to_owned())
}

fn is_before_the_switch(step: Step) -> bool {
    let at = |wanted| Step::ALL.iter().position(|step| *step == wanted);
    at(step) <= at(Step::Switch)
}

/// Packets follow the generation: of the larger document everything is reached, of the smaller one nothing that it does not have.
fn follows(bed: &Bed, more: bool, what: &str) {
    assert!(
        bed.reaches("n/a", ip("10.1.0.8")),
        "{what}: {:?}",
        bed.drops("e1")
    );
    let other = ip("10.2.0.2");
    let follows = match more {
        true => bed.reaches("n/a", other),
        false => !bed.reaches_at_once("n/a", other),
    };
    assert!(follows, "{what}: {more}: {:?}", bed.drops("e1"));
}

#[test]
fn an_apply_that_fails_changes_nothing() {
    if !root("an_apply_that_fails_changes_nothing") {
        return;
    }
    let bed = bed();
    bed.apply_on("e1", &document(false, 1)).expect("applied");
    let before = traces(&bed);
    for step in Step::ALL
        .into_iter()
        .filter(|step| is_before_the_switch(*step))
    {
        let refused = bed.apply_watched("e1", &document(true, 2), &mut |at| match at == step {
            true => Err(NetworkError::TooSmall),
            false => Ok(()),
        });
        assert!(matches!(refused, Err(NetworkError::TooSmall)), "{step:?}");
        assert_eq!(traces(&bed), before, "{step:?}");
        follows(&bed, false, &format!("{step:?}"));
    }
    bed.apply_on("e1", &document(true, 2)).expect("applied");
    follows(&bed, true, "afterwards");
}

#[test]
fn a_killed_apply_leaves_a_whole_generation_and_the_next_one_cleans_up() {
    if !root("a_killed_apply_leaves_a_whole_generation_and_the_next_one_cleans_up") {
        return;
    }
    for step in Step::ALL {
        let bed = bed();
        let devices = traces(&bed).1;
        bed.apply_on("e1", &document(false, 1)).expect("applied");
        let before = traces(&bed);
        let status = victim(&bed, &format!("{step:?}")).status().expect("ran");
        assert_eq!(status.signal(), Some(9), "{step:?}: {status}");
        let switched = !is_before_the_switch(step);
        follows(&bed, switched, &format!("killed at {step:?}"));
        // Whoever opens it removes what is half built, or what is left to be removed.
        let open = || Networks::open(&bed.names["e1"]).map(drop);
        bed.edges["e1"]
            .run(open)
            .expect("in the namespace")
            .expect("opened");
        if !switched {
            assert_eq!(traces(&bed), before, "killed at {step:?}");
        }
        follows(&bed, switched, &format!("opened after {step:?}"));
        bed.apply_on("e1", &document(true, 2)).expect("applied");
        follows(&bed, true, &format!("applied after {step:?}"));
        // Once more, and it is all removed.
        let _ = victim(&bed, &format!("{step:?}")).status().expect("ran");
        let remove = || Networks::open(&bed.names["e1"])?.remove();
        bed.edges["e1"]
            .run(remove)
            .expect("in the namespace")
            .expect("removed");
        let after = traces(&bed);
        assert!(after.0.is_empty(), "{step:?}: {:?}", after.0);
        assert_eq!(after.1, devices, "{step:?}");
        assert!(
            after.2.values().all(|filters| !filters.contains("bpf")),
            "{step:?}: {after:?}"
        );
    }
}

/// Packets a second of the stream that must lose nothing.
const RATE: u32 = 10_000;

#[test]
fn killing_the_control_program_loses_no_packet() {
    if !root("killing_the_control_program_loses_no_packet") {
        return;
    }
    let bed = bed();
    bed.apply_on("e1", &document(true, 1)).expect("applied");
    assert!(bed.reaches("n/a", ip("10.2.0.2")));
    let to = SocketAddr::new(ip("10.2.0.2"), 5000);
    let receiver = bed.workloads["n/c"]
        .ns
        .run(|| UdpSocket::bind(to).expect("bound"));
    let receiver = receiver.expect("in the namespace");
    let sender = bed.workloads["n/a"]
        .ns
        .run(|| UdpSocket::bind("10.1.0.7:0").expect("bound"));
    let sender = sender.expect("in the namespace");
    rustix::net::sockopt::set_socket_recv_buffer_size(&receiver, 8 << 20).expect("set");
    receiver
        .set_read_timeout(Some(Duration::from_millis(500)))
        .expect("set");
    let stop = AtomicBool::new(false);
    let (sent, seen, killed) = std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let begun = Instant::now();
            let mut sent = 0u64;
            while !stop.load(Ordering::Relaxed) {
                let due = (begun.elapsed().as_secs_f64() * f64::from(RATE)) as u64;
                while sent < due {
                    sender.send_to(&sent.to_be_bytes(), to).expect("sent");
                    sent += 1;
                }
                std::thread::sleep(Duration::from_micros(200));
            }
            sent
        });
        let receiving = scope.spawn(|| {
            let mut next = 0u64;
            let mut wrong = 0u64;
            let mut buffer = [0; 8];
            loop {
                match receiver.recv(&mut buffer) {
                    Ok(_) => {
                        let number = u64::from_be_bytes(buffer);
                        wrong += u64::from(number != next);
                        next = number + 1;
                    }
                    // On a busy machine the sender may be silent for longer than this.
                    Err(_) if stop.load(Ordering::Relaxed) => break,
                    Err(_) => {}
                }
            }
            (next, wrong)
        });
        let mut killed = 0;
        for round in 0..4u64 {
            let mut child = victim(&bed, "never").spawn().expect("started");
            std::thread::sleep(Duration::from_millis(180 + round * 41));
            child.kill().expect("killed");
            child.wait().expect("ended");
            killed += 1;
        }
        stop.store(true, Ordering::Relaxed);
        let sent = sending.join().expect("sent");
        (sent, receiving.join().expect("received"), killed)
    });
    let look = || {
        network::look(&bed.names["e1"])
            .expect("looked")
            .expect("runs")
            .generation
    };
    let generation = bed.edges["e1"].run(look).expect("in the namespace");
    eprintln!(
        "{sent} packets at {RATE} a second, control program killed {killed} times, generation {generation}: next {}, out of order {}",
        seen.0, seen.1
    );
    assert!(generation > 2, "no apply was done before it was killed");
    assert_eq!(seen, (sent, 0));
}

/// How often each reader looks at least, and how many read at a time.
const LOOKS: (u32, usize) = (300, 2);

/// So many generations each of them finds at least.
const GENERATIONS: usize = 5;

#[test]
fn whoever_looks_while_generations_change_finds_one() {
    if !root("whoever_looks_while_generations_change_finds_one") {
        return;
    }
    let bed = bed();
    bed.apply_on("e1", &document(true, 1)).expect("applied");
    let name = &bed.names["e1"];
    let mut child = victim(&bed, "never").spawn().expect("started");
    let until = Instant::now() + Duration::from_secs(60);
    let read = || {
        let (mut looks, mut seen) = (0, std::collections::BTreeSet::new());
        while looks < LOOKS.0 || seen.len() < GENERATIONS && Instant::now() < until {
            let look = network::look(name).map_err(|error| error.to_string())?;
            let look = look.ok_or("an edge that runs was not found")?;
            assert!(look.text.contains("10.1.0.7"), "{}", look.text);
            seen.insert(look.generation);
            looks += 1;
            // Whoever changes the networks needs the processor as well.
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok::<usize, String>(seen.len())
    };
    let found: Vec<Result<usize, String>> = std::thread::scope(|scope| {
        let readers = (0..LOOKS.1).map(|_| scope.spawn(|| bed.edges["e1"].run(read)));
        let readers: Vec<_> = readers.collect();
        let ended = readers
            .into_iter()
            .map(|reader| reader.join().expect("ended"));
        ended.map(|read| read.expect("in the namespace")).collect()
    });
    child.kill().expect("killed");
    child.wait().expect("ended");
    let found = found.into_iter();
    let found: Vec<usize> = found
        .map(|read| read.expect("every look found the networks"))
        .collect();
    eprintln!("readers found generations: {found:?}");
    assert!(found.iter().all(|seen| *seen >= GENERATIONS), "{found:?}");
}

/// This file once more as another process, in the namespace of the edge.
fn victim(bed: &Bed, step: &str) -> Command {
    let this = std::env::current_exe().expect("known");
    let command = bed.edges["e1"].command(&this.to_string_lossy());
    let mut command = command.expect("namespace");
    command
        .args([
            "--exact",
            "network_crash::victim_of_the_others",
            "--nocapture",
        ])
        .env(VICTIM, format!("{} {step}", bed.names["e1"]))
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    command
}

/// Does nothing unless another test starts it.
#[test]
fn victim_of_the_others() {
    let Ok(order) = std::env::var(VICTIM) else {
        return;
    };
    let (name, wanted) = order.split_once(' ').expect("two words");
    let kill = || {
        let this = rustix::process::getpid();
        rustix::process::kill_process(this, rustix::process::Signal::KILL).expect("killed");
    };
    for version in 2.. {
        let text = document(true, version);
        let mut networks = Networks::open(name).expect("opened");
        let plan = checked(&text)
            .plan("e1", networks.numbers())
            .expect("planned");
        let outcome = networks.apply_watched(&plan, &text, &mut |step| {
            if format!("{step:?}") == wanted {
                kill();
            }
            Ok(())
        });
        outcome.expect("applied");
    }
}
