//! Documents of balancers: what they become, and what is refused.

use std::io;
use std::path::Path;

use weir_bpf::abi::balancer::{ECHO, feature, service, state};
use weir_bpf::abi::{LbServer, LbService};
use zerocopy::FromBytes;

use super::*;
use crate::plan::MapPlan;
use crate::request::{EdgePort, Files};

/// What runs: contents of maps by name.
struct Runs<'a>(&'a [(&'a str, Vec<u8>)]);

impl Files for Runs<'_> {
    fn read(&self, _: &Path) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn kept(&self, _: &str, map: &str) -> Option<Vec<u8>> {
        let found = self.0.iter().find(|(name, _)| *name == map);
        found.map(|(_, contents)| contents.clone())
    }
}

fn planned_beside(text: &str, runs: &[(&str, Vec<u8>)]) -> Result<Planned, FunctionError> {
    let keys = text.parse().expect("TOML");
    plan(&Request {
        name: "lb",
        keys: &keys,
        files: &Runs(runs),
        ports: &[EdgePort {
            number: 3,
            name: "lan".to_owned(),
            device: "eth7".to_owned(),
        }],
        transmits: false,
    })
}

fn refused(text: &str) -> FunctionError {
    planned_beside(text, &[]).expect_err("refused")
}

fn map<'p>(planned: &'p Planned, name: &str) -> &'p MapPlan {
    let maps = &planned.instance.maps;
    maps.iter().find(|map| map.name == name).expect("planned")
}

/// All servers by number, as the running instance would hold them.
fn servers(planned: &Planned) -> Vec<LbServer> {
    let map = map(planned, "servers");
    let mut all = vec![LbServer::default(); map.max_entries as usize];
    let of_host = map.host.iter().map(|element| {
        let (key, value) = element.alone().expect("there is one");
        (key, value)
    });
    let plain = map
        .entries()
        .map(|(key, value)| (key.to_vec(), value.to_vec()));
    for (key, value) in plain.chain(of_host) {
        let number = u32::from_ne_bytes(key.try_into().expect("4 bytes"));
        all[number as usize] = LbServer::read_from_bytes(&value).expect("its size");
    }
    all
}

fn number_of(planned: &Planned, address: [u8; 4]) -> Option<usize> {
    servers(planned)
        .iter()
        .position(|s| s.state != state::GONE && s.identity != 0 && s.address[..4] == address)
}

/// Maps of a plan as they are read from the kernel.
fn runs(planned: &Planned) -> Vec<(&'static str, Vec<u8>)> {
    vec![
        (
            "servers",
            zerocopy::IntoBytes::as_bytes(servers(planned).as_slice()).to_vec(),
        ),
        (
            "service_names",
            map(planned, "service_names").values.clone(),
        ),
    ]
}

fn web(servers: &[&str]) -> String {
    let mut text = "servers = 8\nsource4 = \"10.99.0.0/16\"\n[[service]]\nname = \"web\"\naddress = \"192.0.2.1\"\nprotocol = \"tcp\"\nport = 80\nmode = \"ipip\"\n".to_owned();
    for server in servers {
        text.push_str(&format!("[[service.server]]\n{server}\n"));
    }
    text
}

const A: &str = "address = \"10.0.0.1\"";
const B: &str = "address = \"10.0.0.2\"";
const C: &str = "address = \"10.0.0.3\"";

#[test]
fn servers_keep_their_numbers_through_changes() {
    let first = planned_beside(&web(&[A, B]), &[]).expect("planned");
    assert_eq!(number_of(&first, [10, 0, 0, 1]), Some(0));
    // Another one in front, and one less.
    let second = planned_beside(&web(&[C, B]), &runs(&first)).expect("planned");
    assert_eq!(number_of(&second, [10, 0, 0, 2]), Some(1));
    assert_eq!(number_of(&second, [10, 0, 0, 3]), Some(2));
    assert_eq!(servers(&second)[0].state, state::GONE);
    // Who comes back has what he had; what tells how to get there is no part of who it is.
    let back = format!("{A}\nweight = 5\nmac = \"02:00:00:00:00:09\"\nto = \"lan\"");
    let third = planned_beside(&web(&[&back, C, B]), &runs(&second)).expect("planned");
    for (address, number) in [([10, 0, 0, 1], 0), ([10, 0, 0, 2], 1), ([10, 0, 0, 3], 2)] {
        assert_eq!(number_of(&third, address), Some(number));
    }
    // The same plan, from what it made itself.
    let again = planned_beside(&web(&[&back, C, B]), &runs(&third)).expect("planned");
    assert_eq!(again, third);
    // Fresh plans are the same everywhere.
    let fresh = planned_beside(&web(&[A, B]), &[]).expect("planned");
    assert_eq!(fresh, first);
}

#[test]
fn a_ring_holds_numbers_of_servers_that_take_flows() {
    let drained = format!("{B}\ndrain = true");
    let it = planned_beside(&web(&[A, &drained]), &[]).expect("planned");
    let ring = &map(&it, "ring").values;
    let service = LbService::read_from_bytes(&map(&it, "services").values[..20]);
    let service = service.expect("its size");
    assert_eq!(service.ring_size, 65_537);
    assert!(
        ring[..65_537 * 2].iter().all(|byte| *byte == 0),
        "server 0 alone"
    );
    let all = planned_beside(&web(&[&drained]), &[]).expect("planned");
    assert!(
        all.notes[0].starts_with("all servers of service `web` drain"),
        "{:?}",
        all.notes
    );
}

#[test]
fn what_does_not_fit_is_refused_with_the_next_step() {
    let base = web(&[A]);
    let service = |keys: &str| format!("{base}[[service]]\n{keys}\n[[service.server]]\n{B}\n");
    for (text, key, message, advice) in [
        (
            String::new(),
            None,
            "it has no service",
            "add [[function.service]] with address, protocol, port and mode, and its servers",
        ),
        (
            web(&[]),
            Some("service.0"),
            "service `web` (tcp 192.0.2.1:80) has no server",
            "add [[function.service.server]] with address",
        ),
        (
            web(&["address = \"10.0.0.1\"\nweight = 0"]),
            Some("service.0.server.0.weight"),
            "a server of weight 0 gets no flows",
            "write drain = true: it keeps the flows it has and gets no new ones; or take the server out",
        ),
        (
            web(&[A, A]),
            Some("service.0.server.1"),
            "server 10.0.0.1 is named twice",
            "give one of them a weight that says what both should have",
        ),
        (
            service(
                "name = \"two\"\naddress = \"192.0.2.1\"\nprotocol = \"tcp\"\nport = 80\nmode = \"gue\"",
            ),
            Some("service.1"),
            "services `web` and `two` are both tcp 192.0.2.1:80",
            "put their servers into one service, or give one another port",
        ),
        (
            service("address = \"2001:db8::1\"\nprotocol = \"tcp\"\nport = 80\nmode = \"nat\""),
            Some("service.1.server.0.address"),
            "server 10.0.0.2 is of another family than the service 2001:db8::1, and mode \"nat\" does not bridge them",
            "choose ipip or gue, which put packets of either family into packets of either",
        ),
        (
            web(&["address = \"2001:db8::1\""]),
            None,
            "mode \"ipip\" needs a source for tunnels to 2001:db8::1 (service `web`), and `source6` is not given",
            "add source6 = \"fd99::/64\": addresses that are not used elsewhere",
        ),
        (
            web(&["address = \"10.0.0.1\"\nto = \"wan\"\nmac = \"02:00:00:00:00:01\""]),
            Some("service.0.server.0.to"),
            "no port is named `wan`",
            "did you mean `lan`?",
        ),
        (
            web(&["address = \"10.0.0.1\"\nport = 8080"]),
            Some("service.0.server.0.port"),
            "mode \"ipip\" does not change ports",
            "leave `port` out, or choose nat",
        ),
        (
            service("address = \"192.0.2.2\"\nprotocol = \"tcp\"\nmode = \"dsr\"\nquic = true"),
            Some("service.1.quic"),
            "QUIC is spoken over UDP, and this service is TCP",
            "write protocol = \"udp\", or leave `quic` out",
        ),
        (
            web(&[A]).replace("servers = 8", "servers = 8\nring = 65536"),
            Some("ring"),
            "`ring` is a prime number, not 65536",
            "the next one is 65537",
        ),
        (
            web(&[A, B, C]).replace("servers = 8", "servers = 2"),
            Some("servers"),
            "3 servers, and capacity for 2",
            "write servers = 4 or more, 65535 at most",
        ),
        (
            service("address = \"192.0.2.0/24\"\nprotocol = \"tcp\"\nport = 80\nmode = \"nat\""),
            Some("service.1.address"),
            "NAT needs one address, and 192.0.2.0/24 has many: what a server sends could belong to any of them",
            "make a service of each address, or choose ipip, gue or dsr",
        ),
        (
            service("address = \"192.0.2.9/24\"\nprotocol = \"tcp\"\nport = 80\nmode = \"ipip\""),
            Some("service.1.address"),
            "invalid prefix `192.0.2.9/24`: host bits are set; write 192.0.2.0/24 or 192.0.2.9",
            "",
        ),
        (
            web(&[A]).replace("mode = \"ipip\"", "mode = \"ipib\""),
            Some("service.0.mode"),
            "unknown mode \"ipib\"",
            "did you mean `ipip`?",
        ),
    ] {
        let error = refused(&text);
        assert_eq!(error.message, message);
        assert_eq!(error.key.as_deref(), key, "{message}");
        assert_eq!(error.advice.as_deref().unwrap_or(""), advice, "{message}");
        assert!(error.others.is_empty(), "{message}: {:?}", error.others);
    }
    let nat = |name: &str, port: u16| {
        format!(
            "[[service]]\nname = \"{name}\"\naddress = \"192.0.2.{port}\"\nprotocol = \"tcp\"\nport = {port}\nmode = \"nat\"\n[[service.server]]\naddress = \"10.0.0.1\"\nport = 8080\n"
        )
    };
    let error = refused(&(nat("a", 80) + &nat("b", 81)));
    assert_eq!(
        error.message,
        "server 10.0.0.1 port 8080 is in two NAT services, `a` and `b`: what it sends could belong to either"
    );
}

#[test]
fn a_prefix_may_cover_an_address_and_says_so() {
    let mut text = web(&[A]);
    text.push_str(&format!(
        "[[service]]\nname = \"all\"\naddress = \"192.0.2.0/24\"\nprotocol = \"tcp\"\nmode = \"ipip\"\n[[service.server]]\n{B}\n"
    ));
    let it = planned_beside(&text, &[]).expect("planned");
    assert!(
        it.notes.iter().any(|note| note
            == "service `all` (tcp 192.0.2.0/24) covers `web` (tcp 192.0.2.1:80), which goes first: the most specific address wins, then a port"),
        "{:?}",
        it.notes
    );
    assert_eq!(map(&it, "service_prefixes").max_entries, 2);
}

#[test]
fn policies_reach_the_tables_and_wrong_ones_are_refused_at_their_key() {
    let with = |keys: &str, service: &str| {
        format!(
            "{keys}\n[[service]]\naddress = \"192.0.2.1\"\nprotocol = \"tcp\"\nport = 80\nmode = \"nat\"\n{service}\n[[service.server]]\n{A}\n"
        )
    };
    let features = |planned: &Planned| {
        let constants = &planned.instance.constants;
        let found = constants
            .iter()
            .find(|(name, _)| name == "weir_lb_features");
        let (_, bytes) = found.expect("there");
        u32::from_ne_bytes(bytes[..].try_into().expect("a word"))
    };
    let flags = |planned: &Planned| -> Vec<u8> {
        let values = map(planned, "services").entries();
        let read = values.map(|(_, value)| LbService::read_from_bytes(value).expect("a service"));
        let plain = read.filter(|service| service.number != ECHO);
        plain.map(|service| service.flags).collect()
    };
    let planned = |keys: &str, service: &str| planned_beside(&with(keys, service), &[]);
    let usual = planned("", "").expect("planned");
    assert_eq!((features(&usual), flags(&usual)), (feature::NAT, vec![0]));
    let said = planned("answers = \"known\"", "all_down = \"keep\"").expect("planned");
    assert_eq!(said.instance, usual.instance);
    let other = planned("answers = \"all\"", "all_down = \"drop\"").expect("planned");
    assert_eq!(features(&other), feature::NAT | feature::UNKNOWN);
    assert_eq!(flags(&other), [service::DROP]);
    let error = refused(&with("answers = \"some\"", ""));
    assert_eq!(error.key.as_deref(), Some("answers"));
    assert!(
        error
            .to_string()
            .contains("`answers` is \"known\" or \"all\", not \"some\""),
        "{error}"
    );
    let error = refused(&with("", "all_down = \"panic\""));
    assert_eq!(error.key.as_deref(), Some("service.0.all_down"));
    assert!(
        error
            .to_string()
            .contains("`all_down` is \"keep\" or \"drop\", not \"panic\""),
        "{error}"
    );
}

#[test]
fn checks_are_read_and_wrong_ones_refused_at_their_key() {
    let with = |protocol: &str, port: &str, check: &str| {
        format!(
            "[[service]]\naddress = \"192.0.2.1\"\nprotocol = \"{protocol}\"\n{port}\nmode = \"nat\"\ncheck = {check}\n[[service.server]]\n{A}\n"
        )
    };
    let read = |text: &str| {
        let keys = text.parse().expect("TOML");
        Balancer::read(&Request {
            name: "lb",
            keys: &keys,
            files: &Runs(&[]),
            ports: &[],
            transmits: false,
        })
    };
    let full = r#"{ kind = "http", path = "/healthz", interval = "500ms", timeout = "2s", rise = 3, fall = 4, port = 8081 }"#;
    let balancer = read(&with("tcp", "port = 80", full)).expect("right");
    let check = balancer.services[0].check.clone().expect("said");
    assert_eq!(check.kind, check::CheckKind::Http("/healthz".to_owned()));
    assert_eq!(
        (check.interval_ns, check.timeout_ns),
        (500_000_000, 2_000_000_000)
    );
    assert_eq!((check.rise, check.fall, check.port), (3, 4, Some(8081)));
    // It changes nothing of what packets meet.
    let plain = with("tcp", "port = 80", "{ kind = \"none\" }");
    assert_eq!(
        planned_beside(&plain, &[]).expect("right"),
        planned_beside(&with("tcp", "port = 80", full), &[]).expect("right")
    );
    for (protocol, port, check, key, what) in [
        (
            "tcp",
            "port = 80",
            r#"{ kind = "htpp" }"#,
            "service.0.check.kind",
            "unknown check kind",
        ),
        (
            "tcp",
            "port = 80",
            "{ rise = 1 }",
            "service.0.check",
            "no `kind`",
        ),
        (
            "tcp",
            "port = 80",
            r#"{ kind = "http" }"#,
            "service.0.check",
            "no `path`",
        ),
        (
            "tcp",
            "port = 80",
            r#"{ kind = "http", path = "healthz" }"#,
            "service.0.check.path",
            "invalid HTTP path",
        ),
        (
            "tcp",
            "port = 80",
            r#"{ kind = "http", path = "/a b" }"#,
            "service.0.check.path",
            "invalid HTTP path",
        ),
        (
            "tcp",
            "port = 80",
            r#"{ kind = "tcp", path = "/" }"#,
            "service.0.check.path",
            "has no effect",
        ),
        (
            "tcp",
            "port = 80",
            r#"{ kind = "tcp", interval = "1ms" }"#,
            "service.0.check.interval",
            "from 10ms to 1h",
        ),
        (
            "tcp",
            "port = 80",
            r#"{ kind = "tcp", fall = 0 }"#,
            "service.0.check.fall",
            "fall",
        ),
        (
            "tcp",
            "port = 80",
            r#"{ kind = "tcp", every = "1s" }"#,
            "service.0.check.every",
            "every",
        ),
        (
            "tcp",
            "",
            r#"{ kind = "tcp" }"#,
            "service.0.check",
            "all ports",
        ),
        (
            "udp",
            "port = 80",
            r#"{ kind = "tcp" }"#,
            "service.0.check",
            "the service is UDP",
        ),
    ] {
        let error = refused(&with(protocol, port, check));
        assert_eq!(error.key.as_deref(), Some(key), "{check}");
        let said = format!("{} {:?}", error.message, error.advice);
        assert!(said.contains(what), "{check}: {said}");
    }
    for (protocol, port) in [("udp", "port = 80"), ("tcp", "")] {
        let check = r#"{ kind = "tcp", port = 8080 }"#;
        assert!(read(&with(protocol, port, check)).is_ok(), "{protocol}");
    }
}
