//! `weir init`: a commented configuration to start from, for a usual job on this host. What options leave open is taken from the host, or asked.
//!
//! The texts are templates beside this file; `@NAME@` in them is replaced. What was written is planned, so that a value which makes no sense is
//! told at once.

mod found;

use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use weir_value::{PortRange, Prefix};

use self::found::Device;
use crate::args::init::{
    BalancerArgs, FirewallArgs, Forward, GatewayArgs, GuardArgs, InitArgs, Job, NetworksArgs,
    SensorArgs,
};
use crate::failure::Failure;
use crate::output;

/// Networks of documentation (RFC 5737): in the place of what is not known and does no harm.
const EXAMPLE: &str = "192.0.2.0/24";

pub(crate) fn run(args: &InitArgs) -> Result<ExitCode, Failure> {
    let host = Host {
        devices: found::devices().map_err(Failure::failed)?,
        asks: !args.defaults && io::stdin().is_terminal() && output::stderr_is_terminal(),
    };
    host.tell();
    let (name, made) = match &args.job {
        Job::Firewall(job) => ("firewall", firewall(job, &host)?),
        Job::Gateway(job) => ("gateway", gateway(job, &host)?),
        Job::Guard(job) => ("guard", guard(job, &host)?),
        Job::Balancer(job) => ("balancer", balancer(job, &host)?),
        Job::Networks(job) => ("networks", networks(job)?),
        Job::Sensor(job) => ("sensor", sensor(job, &host)?),
    };
    let is_sensor = matches!(args.job, Job::Sensor(_));
    if is_sensor && args.edge.is_some() {
        return Err(Failure::usage("--edge is for edges; a sensor has no name"));
    }
    let end = if is_sensor { "yaml" } else { "toml" };
    let path = match &args.output {
        Some(path) => path.clone(),
        None => PathBuf::from(format!("{name}.{end}")),
    };
    let to_output = path.as_os_str() == "-";
    let shown = match to_output {
        true => PathBuf::from(format!("{name}.{end}")),
        false => path.clone(),
    };
    let edge = args.edge.as_deref().unwrap_or(name);
    let text = made.text(edge, &made.notes(&shown, is_sensor));
    if to_output {
        return Ok(output::out(&text).map(|()| ExitCode::SUCCESS)?);
    }
    let former = fs::read(&path).ok();
    write(&path, &text, args.force)?;
    if !is_sensor && let Err(mistakes) = weir_runtime::plan(&path, None) {
        // A value that fits its option and not its place is told with the line it stands in. No invalid file stays for the agent to find.
        let undone = match former {
            Some(bytes) => fs::write(&path, bytes),
            None => fs::remove_file(&path),
        };
        undone.map_err(|error| {
            Failure::failed(format!("cannot take {} back: {error}", path.display()))
        })?;
        return Err(mistakes.into());
    }
    output::out(&made.next(&path, is_sensor))?;
    Ok(ExitCode::SUCCESS)
}

/// A template and what is put into it.
struct Made {
    template: &'static str,
    values: Vec<(&'static str, String)>,
    /// What was chosen, a sentence.
    about: String,
    /// What must be done beside applying it, a command each.
    before: Vec<String>,
}

impl Made {
    fn text(&self, edge: &str, notes: &str) -> String {
        let mut text = self.template.to_owned();
        for (name, value) in &self.values {
            text = text.replace(&format!("@{name}@"), value);
        }
        text.replace("@EDGE@", edge).replace("@NOTES@", notes)
    }

    /// Lines of the head: what to do with the file.
    fn notes(&self, path: &Path, is_sensor: bool) -> String {
        let file = path.display();
        let lines: Vec<String> = match is_sensor {
            true => vec![
                "Written by `weir init`.".to_owned(),
                format!("Test it: weir sensor -T -c {file}"),
                format!("Run it:  weir sensor -c {file} -l /var/log/weir"),
            ],
            false => vec![
                "Written by `weir init`. An edge is what runs under one name.".to_owned(),
                format!("Check it:   weir check {file}"),
                format!("Try it:     weir apply {file} --dry-run"),
                format!(
                    "Apply it:   weir apply {file} --confirm 60s   (goes back unless confirmed)"
                ),
                "Look at it: weir status, weir top, weir connections".to_owned(),
                format!("Remove it:  weir down {file}"),
            ],
        };
        lines.join("\n# ")
    }

    /// What to do now.
    fn next(&self, path: &Path, is_sensor: bool) -> String {
        let file = path.display();
        let mut text = format!("wrote {file}: {}\n", self.about);
        let mut step = |what: &str, command: &dyn Display| {
            text.push_str(&format!("  {what:<12} {command}\n"));
        };
        for command in &self.before {
            step("first", command);
        }
        match is_sensor {
            true => {
                step("test it", &format!("weir sensor -T -c {file}"));
                step("run it", &format!("weir sensor -c {file} -l /var/log/weir"));
            }
            false => {
                step("check it", &format!("weir check {file}"));
                step("try it", &format!("weir apply {file} --dry-run"));
                step("apply it", &format!("weir apply {file} --confirm 60s"));
                step(
                    "keep it",
                    &format!("cp {file} /etc/weir/ && systemctl enable --now weir-agent"),
                );
            }
        }
        text
    }
}

fn write(path: &Path, text: &str, force: bool) -> Result<(), Failure> {
    let mut options = OpenOptions::new();
    options.write(true);
    match force {
        true => options.create(true).truncate(true),
        false => options.create_new(true),
    };
    let written = options
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Failure::Usage(format!(
            "{} exists: choose another file with -o, or --force overwrites it",
            path.display()
        )),
        _ => Failure::failed(format!("cannot write {}: {error}", path.display())),
    })
}

/// The host, and whether somebody can be asked.
struct Host {
    devices: Vec<Device>,
    asks: bool,
}

impl Host {
    fn tell(&self) {
        let shown: Vec<String> = self.devices.iter().map(Device::shown).collect();
        output::complain(&match shown.is_empty() {
            true => "found no interface but lo".to_owned(),
            false => format!("found {}", shown.join("; ")),
        });
    }

    fn device(&self, name: &str) -> Option<&Device> {
        self.devices.iter().find(|device| device.name == name)
    }

    /// The device that an option names, that is asked for, or that is the only one that fits.
    fn choose(
        &self,
        what: &str,
        option: &str,
        given: Option<&str>,
        fits: &dyn Fn(&Device) -> bool,
    ) -> Result<Device, Failure> {
        let named = |name: &str| {
            if let Err(wrong) = weir_value::interface(name) {
                return Err(Failure::usage(wrong));
            }
            let found = self.device(name).cloned();
            Ok(found.unwrap_or_else(|| {
                output::complain(&format!("this host has no interface {name} now"));
                Device {
                    name: name.to_owned(),
                    ..Device::default()
                }
            }))
        };
        if let Some(name) = given {
            return named(name);
        }
        let mut fitting = self.devices.iter().filter(|device| fits(device));
        let proposed = match (fitting.next(), fitting.next()) {
            (Some(one), None) => Some(one.name.as_str()),
            _ => None,
        };
        match self.ask(what, proposed)? {
            Some(name) => named(&name),
            None => Err(Failure::Usage(format!(
                "which one is {what}? Name it with {option}"
            ))),
        }
    }

    /// The device of `-i`, by default the one that the default route leaves by.
    fn way_out(&self, what: &str, given: Option<&str>) -> Result<Device, Failure> {
        self.choose(what, "-i", given, &|device| device.is_way_out)
    }

    /// An answer, or what is proposed where nobody can be asked.
    fn ask(&self, what: &str, proposed: Option<&str>) -> Result<Option<String>, Failure> {
        if !self.asks {
            return Ok(proposed.map(str::to_owned));
        }
        let default = proposed
            .map(|name| format!(" [{name}]"))
            .unwrap_or_default();
        output::tell(&format!("{what}{default}: "));
        let mut line = String::new();
        io::stdin()
            .lock()
            .read_line(&mut line)
            .map_err(Failure::failed)?;
        let line = line.trim();
        Ok(match line.is_empty() {
            true => proposed.map(str::to_owned),
            false => Some(line.to_owned()),
        })
    }

    /// A list of values: those of options, or what is asked for; each of them read.
    fn list<T: Clone + Display>(
        &self,
        what: &str,
        given: &[T],
        proposed: &[T],
        read: &dyn Fn(&str) -> Result<T, weir_value::Invalid>,
    ) -> Result<Vec<T>, Failure> {
        if !given.is_empty() {
            return Ok(given.to_vec());
        }
        let shown = joined(proposed);
        let proposed = (!shown.is_empty()).then_some(shown.as_str());
        let answer = self.ask(what, proposed)?.unwrap_or_default();
        let items = answer.split([',', ' ']).map(str::trim);
        let items = items.filter(|item| !item.is_empty() && *item != "none");
        items
            .map(|item| read(item).map_err(Failure::usage))
            .collect()
    }
}

fn joined<T: Display>(values: &[T]) -> String {
    let values: Vec<String> = values.iter().map(T::to_string).collect();
    values.join(", ")
}

fn prefix(text: &str) -> Result<Prefix, weir_value::Invalid> {
    text.parse()
}

fn ports(text: &str) -> Result<PortRange, weir_value::Invalid> {
    text.parse()
}

/// `ip-saddr in { ... } `, in both families.
fn sources(prefixes: &[Prefix]) -> Vec<String> {
    [("ip-saddr", false), ("ip6-saddr", true)]
        .into_iter()
        .filter_map(|(field, is_ip6)| {
            let of = prefixes.iter().filter(|prefix| prefix.is_ip6 == is_ip6);
            let of: Vec<String> = of.map(Prefix::to_string).collect();
            (!of.is_empty()).then(|| format!("{field} in {{ {} }} ", of.join(", ")))
        })
        .collect()
}

fn firewall(args: &FirewallArgs, host: &Host) -> Result<Made, Failure> {
    let wan = host.way_out("the interface to protect", args.interface.as_deref())?;
    let ssh = host.list(
        "networks that SSH is for (none: all)",
        &args.ssh_from,
        &[],
        &prefix,
    )?;
    let tcp = host.list("TCP ports to open, besides SSH", &args.tcp, &[], &ports)?;
    let udp = host.list("UDP ports to open", &args.udp, &[], &ports)?;
    let mut open = Vec::new();
    for (name, field, ports) in [("tcp", "tcp-dport", &tcp), ("udp", "udp-dport", &udp)] {
        open.push(match ports.is_empty() {
            false => format!(
                "{name}:  add-stateful in wan {field} in {{ {} }} accept",
                joined(ports)
            ),
            true => {
                format!("# {name}: add-stateful in wan {field} in {{ 8080, 9000-9010 }} accept")
            }
        });
    }
    let ssh = sources(&ssh);
    let (first, second) = match ssh.as_slice() {
        [] => (String::new(), None),
        [one] => (one.clone(), None),
        [one, other, ..] => (one.clone(), Some(other.clone())),
    };
    if let Some(other) = second {
        open.insert(
            0,
            format!("ssh6: add-stateful in wan {other}tcp-dport ssh accept"),
        );
    }
    let mut opened = vec!["SSH".to_owned()];
    opened.extend(tcp.iter().map(|ports| format!("TCP {ports}")));
    opened.extend(udp.iter().map(|ports| format!("UDP {ports}")));
    Ok(Made {
        template: include_str!("firewall.toml"),
        about: format!(
            "{} lets in {} and answers, and everything out",
            wan.name,
            opened.join(", ")
        ),
        values: vec![
            ("WAN", wan.name),
            ("SSH_FROM", first),
            ("OPEN", open.join("\n")),
        ],
        before: Vec::new(),
    })
}

fn gateway(args: &GatewayArgs, host: &Host) -> Result<Made, Failure> {
    let wan = host.choose(
        "the interface outside",
        "--wan",
        args.wan.as_deref(),
        &|device| device.is_way_out,
    )?;
    let lan = host.choose(
        "the interface inside",
        "--lan",
        args.lan.as_deref(),
        &|device| device.name != wan.name && device.ipv4().is_some(),
    )?;
    if lan.name == wan.name {
        return Err(Failure::usage(
            "one interface cannot be inside and outside: name them with --wan and --lan",
        ));
    }
    let address = match args.address.or_else(|| wan.ipv4()) {
        Some(address) => address,
        None => {
            let answer = host.ask("the IPv4 address outside", None)?;
            let Some(answer) = answer else {
                return Err(Failure::Usage(format!(
                    "{} has no IPv4 address: which one do hosts inside get outside? Name it with --address",
                    wan.name
                )));
            };
            weir_value::address(&answer).map_err(Failure::usage)?
        }
    };
    if address.is_ipv6() {
        return Err(Failure::usage(
            "--address is an IPv4 address: hosts inside keep their IPv6 addresses",
        ));
    }
    let inside = host.list("networks inside", &args.inside, &lan.networks4(), &prefix)?;
    if inside.is_empty() {
        return Err(Failure::Usage(format!(
            "{} has no network: which ones are inside? Name them with --inside",
            lan.name
        )));
    }
    if let Some(ip6) = inside.iter().find(|prefix| prefix.is_ip6) {
        return Err(Failure::Usage(format!(
            "--inside {ip6}: NAT is for IPv4 networks; IPv6 is forwarded as it is"
        )));
    }
    let forwards: Vec<String> = args
        .forward
        .iter()
        .map(|one| forward(one, address))
        .collect();
    let forwards = match forwards.is_empty() {
        false => format!(
            "# Ports that lead to servers inside.\n{}",
            forwards.join("\n")
        ),
        true => format!(
            "# A port that leads to a server inside:\n# web: add-stateful ip-daddr {address} tcp-dport 8080 map ip-daddr 10.1.0.5 map tcp-dport 80 accept"
        ),
    };
    Ok(Made {
        template: include_str!("gateway.toml"),
        about: format!(
            "{} behind {} leave by {} as {address}",
            joined(&inside),
            lan.name,
            wan.name
        ),
        values: vec![
            ("WAN", wan.name),
            ("LAN", lan.name),
            ("ADDRESS", address.to_string()),
            ("INSIDE", joined(&inside)),
            ("FORWARDS", forwards),
        ],
        before: vec!["sysctl -w net.ipv4.ip_forward=1".to_owned()],
    })
}

fn forward(one: &Forward, address: IpAddr) -> String {
    let Forward {
        port,
        server,
        server_port,
    } = one;
    format!(
        "tcp-{port}: add-stateful ip-daddr {address} tcp-dport {port} map ip-daddr {server} map tcp-dport {server_port} accept"
    )
}

fn guard(args: &GuardArgs, host: &Host) -> Result<Made, Failure> {
    let wan = host.way_out("the interface to protect", args.interface.as_deref())?;
    let friends = host.list(
        "networks that are never limited",
        &args.friends,
        &wan.networks,
        &prefix,
    )?;
    let friends = match friends.is_empty() {
        true => EXAMPLE.to_owned(),
        false => joined(&friends),
    };
    Ok(Made {
        template: include_str!("guard.toml"),
        about: format!(
            "{} limits what one source may send; never {friends}",
            wan.name
        ),
        values: vec![("WAN", wan.name), ("FRIENDS", friends)],
        before: Vec::new(),
    })
}

fn balancer(args: &BalancerArgs, host: &Host) -> Result<Made, Failure> {
    let mut devices = args.interface.clone();
    if devices.is_empty() {
        let one = host.choose(
            "the interface of clients and servers",
            "-i",
            None,
            &|device| device.is_way_out,
        )?;
        devices.push(one.name);
    }
    for name in &devices {
        weir_value::interface(name).map_err(Failure::usage)?;
    }
    let address = match args.address {
        Some(address) => address,
        None => match host.ask("address of the service", None)? {
            Some(text) => weir_value::address(&text).map_err(Failure::usage)?,
            None => {
                return Err(Failure::usage(
                    "which address do clients connect to? Name it with --address",
                ));
            }
        },
    };
    let servers = host.list("addresses of the servers", &args.server, &[], &|text| {
        weir_value::address(text)
    })?;
    if servers.is_empty() {
        return Err(Failure::usage(
            "which servers answer? Name them with --server ADDRESS,ADDRESS",
        ));
    }
    let port = |at: usize| match at {
        0 => "wan".to_owned(),
        at => format!("port{at}"),
    };
    let ports = devices.iter().enumerate().map(|(at, device)| {
        let name = port(at);
        format!("[[port]]\nname = \"{name}\"\ndevice = \"{device}\"\n")
    });
    let links = (0..devices.len()).map(|at| {
        let name = port(at);
        format!("[[link]]\nfrom = \"{name}\"\nto = \"balancer\"\n")
    });
    let lines = servers
        .iter()
        .map(|one| format!("  {{ address = \"{one}\" }},"));
    let (protocol, check) = match args.udp {
        true => (
            "udp",
            "# UDP has no answer that every service gives: name a TCP port, or a path of HTTP, that says whether a server works.\n\
             # check = { kind = \"tcp\", port = 8080, interval = \"2s\", timeout = \"1s\", rise = 2, fall = 3 }",
        ),
        false => (
            "tcp",
            "# Asked by `weir service check`, which `weir agent` keeps running: a server that does not answer gets no new\n\
             # connections. By HTTP: kind = \"http\", path = \"/\"\n\
             check = { kind = \"tcp\", interval = \"2s\", timeout = \"1s\", rise = 2, fall = 3 }",
        ),
    };
    Ok(Made {
        template: include_str!("balancer.toml"),
        about: format!(
            "{protocol} to {address} port {} goes to {}",
            args.port,
            joined(&servers)
        ),
        values: vec![
            ("PORTS", ports.collect::<Vec<_>>().join("\n")),
            (
                "LINKS",
                links.collect::<Vec<_>>().join("\n").trim_end().to_owned(),
            ),
            ("SERVERS", lines.collect::<Vec<_>>().join("\n")),
            ("ADDRESS", address.to_string()),
            ("PROTOCOL", protocol.to_owned()),
            ("PORT", args.port.to_string()),
            ("CHECK", check.to_owned()),
        ],
        before: vec!["sysctl -w net.ipv4.ip_forward=1".to_owned()],
    })
}

fn networks(args: &NetworksArgs) -> Result<Made, Failure> {
    let devices = match args.devices.as_slice() {
        [] => ["web1".to_owned(), "db1".to_owned()],
        [first, second] => [first.clone(), second.clone()],
        _ => {
            return Err(Failure::usage("--devices takes two: --devices web1,db1"));
        }
    };
    for name in &devices {
        weir_value::interface(name).map_err(Failure::usage)?;
    }
    let [first, second] = devices;
    Ok(Made {
        template: include_str!("networks.toml"),
        about: format!("10.1.0.7 on {first} and 10.2.0.7 on {second}, with a router between them"),
        values: vec![("FIRST", first), ("SECOND", second)],
        before: Vec::new(),
    })
}

fn sensor(args: &SensorArgs, host: &Host) -> Result<Made, Failure> {
    let wan = host.way_out("the interface to listen on", args.interface.as_deref())?;
    let home = host.list(
        "networks that are protected",
        &args.home,
        &wan.networks,
        &prefix,
    )?;
    let home = match home.is_empty() {
        true => "10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,fc00::/7".to_owned(),
        false => joined(&home).replace(' ', ""),
    };
    Ok(Made {
        template: include_str!("sensor.yaml"),
        about: format!(
            "alerts for {home} on {}, by the rules in {}",
            wan.name,
            args.rules.display()
        ),
        values: vec![
            ("WAN", wan.name),
            ("HOME", home),
            ("RULES", args.rules.display().to_string()),
        ],
        before: Vec::new(),
    })
}
