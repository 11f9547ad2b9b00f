//! The demo on the kernel engine: `weir run` in the box while traffic flows, once with the senders' checksum offloads
//! on (packets reach weir with unfinished checksums) and once with them off.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use weir_kernel::NetNs;

use super::bed::{Bed, PORTS};
use super::handshakes::{self, Decoded, Handshake};
use super::traffic::{self, ECHO, QUIC, Servers, TELNET};
use super::{MSS, POLICY, Stage, ledger, rule_packets};
use crate::LabError;
use crate::process::{Running, Scratch, missing};

const TOOLS: [&str; 6] = ["ip", "ethtool", "tcpdump", "curl", "iperf3", "python3"];
/// SYNs and SYN-ACKs of both families.
const HANDSHAKES: &str =
    "tcp[tcpflags] & tcp-syn != 0 or (ip6 and ip6[6] = 6 and ip6[53] & 2 != 0)";
/// Datagrams of one exchange.
const DATAGRAMS: usize = 20;
const WAIT: Duration = Duration::from_secs(10);

/// Shows it; returns the throughput of each pass in Gbit/s.
pub(crate) fn show(stage: &mut Stage<'_>, scratch: &Scratch) -> Result<Vec<f64>, LabError> {
    let absent = missing(&TOOLS);
    if !absent.is_empty() {
        return Err(LabError::MissingTools(absent));
    }
    stage.say("bed: client (10.0.1.2, fd00:1::2) -- [box0 weir box1] -- server (10.0.2.2, fd00:2::2), three network namespaces")?;
    let bed = Bed::build()?;
    let servers = Servers::start(&bed, scratch)?;
    let policy = scratch.write("demo.weir", POLICY.as_bytes())?;
    stage.say_policy()?;
    stage.say("\nwithout weir:")?;
    for (family, address) in traffic::families() {
        let open = traffic::reaches(&bed, address, TELNET)?;
        stage.check(
            format!("{family} port {TELNET} of the server can be reached"),
            open,
            yes(open),
        )?;
    }

    let mut rates = Vec::new();
    let seconds = stage.options.seconds;
    for (pass, senders, seconds) in [(1, "on", seconds), (2, "off", 1.min(seconds))] {
        if senders == "off" {
            bed.senders_finish_checksums()?;
        }
        stage.say(&format!("\npass {pass}, transmit checksum offload of client and server {senders}; offloads of this bed:"))?;
        for line in bed.offloads()? {
            stage.say(&format!("  {line}"))?;
        }
        if senders == "off" {
            stage.say("$ weir run demo.weir --hook xdp --checksums complete -i box0 -i box1")?;
        }
        stage.say("")?;
        let pass = Pass {
            bed: &bed,
            servers: &servers,
            scratch,
            policy: &policy,
            seconds,
            shown: pass == 1,
            complete: senders == "off",
        };
        rates.push(pass.run(stage)?);
    }
    Ok(rates)
}

/// One run of weir with traffic through it.
struct Pass<'a> {
    bed: &'a Bed,
    servers: &'a Servers,
    scratch: &'a Scratch,
    policy: &'a Path,
    /// Of the iperf3 stream; 0: none.
    seconds: u32,
    /// Whether weir's own output is shown.
    shown: bool,
    /// All senders finish their checksums, and weir is told so: by the checksum alone it would take one complete packet in
    /// 65,536 for unfinished.
    complete: bool,
}

/// What the traffic of a pass came to.
struct Seen {
    fetched: Vec<(String, bool)>,
    telnet: Vec<bool>,
    echoed: Vec<usize>,
    quic: usize,
    gbit: f64,
}

impl Pass<'_> {
    fn run(&self, stage: &mut Stage<'_>) -> Result<f64, LabError> {
        let before = self.bed.interfaces()?;
        let errors_before = self.bed.checksum_errors()?;
        let at_server = Tap::start(&self.bed.server, "sv0", self.scratch)?;
        let at_client = Tap::start(&self.bed.client, "cl0", self.scratch)?;
        let (seen, report) = self.through_weir(stage)?;
        let at_server = at_server.stop()?;
        let at_client = at_client.stop()?;
        let errors = self.bed.checksum_errors()? - errors_before;
        let after = self.bed.interfaces()?;

        for ((family, _), (status, same)) in traffic::families().iter().zip(&seen.fetched) {
            let text = format!(
                "HTTP {status}, content {}",
                if *same { "identical" } else { "DIFFERENT" }
            );
            stage.check(
                format!("{family} HTTP to port 8080 is served"),
                status == "200" && *same,
                text,
            )?;
        }
        check_handshakes(stage, &at_server, &at_client)?;
        for ((family, _), open) in traffic::families().iter().zip(&seen.telnet) {
            stage.check(
                format!("{family} port {TELNET} is closed"),
                !open,
                yes(*open),
            )?;
        }
        for ((family, _), back) in traffic::families().iter().zip(&seen.echoed) {
            stage.check(
                format!("{family} datagrams come back"),
                *back == DATAGRAMS,
                format!("{back} of {DATAGRAMS}"),
            )?;
        }
        stage.check(
            format!("UDP port {QUIC} is closed"),
            seen.quic == 0,
            format!("{} answers", seen.quic),
        )?;
        stage.check(
            "no checksum error at either end",
            errors == 0,
            format!("Tcp, Udp and Udp6 InCsumErrors: {errors}"),
        )?;
        let (balanced, equation) = ledger(&report);
        stage.check("every packet has one verdict", balanced, equation)?;
        let idle: Vec<String> = rule_packets(&report)
            .into_iter()
            .filter(|(name, n)| *n == 0 && name != "shares")
            .map(|(name, _)| name)
            .collect();
        let idle_text = if idle.is_empty() {
            "yes".to_owned()
        } else {
            format!("not {}", idle.join(", "))
        };
        stage.check(
            "every rule with traffic for it matched",
            idle.is_empty(),
            idle_text,
        )?;
        let same = before == after;
        let left = if same {
            "no program, the same offloads"
        } else {
            "NOT as before"
        };
        stage.check("interfaces are as before", same, left)?;
        if self.seconds > 0 {
            stage.say(&format!(
                "  iperf3: {:.1} Gbit/s through weir (for information)",
                seen.gbit
            ))?;
        }
        Ok(seen.gbit)
    }

    /// Starts weir, sends all traffic, stops weir with Ctrl-C; returns what was seen and weir's report.
    fn through_weir(&self, stage: &mut Stage<'_>) -> Result<(Seen, serde_json::Value), LabError> {
        let report = self.scratch.fresh("report", "json");
        let mut command = self
            .bed
            .middle
            .command(&stage.options.weir.to_string_lossy())?;
        command
            .arg("run")
            .arg(self.policy)
            .args(["--hook", "xdp", "-i", PORTS[0], "-i", PORTS[1], "--report"])
            .arg(&report);
        if self.complete {
            command.args(["--checksums", "complete"]);
        }
        let shown = self.shown && !stage.options.quiet;
        command.stdout(if shown {
            Stdio::inherit()
        } else {
            Stdio::null()
        });
        let mut weir = if shown {
            stage.say("$ weir run demo.weir --hook xdp -i box0 -i box1")?;
            // From here until it ends the screen belongs to weir, which redraws its table in place.
            Running::shown(&mut command, "weir run")?
        } else {
            Running::start(&mut command, "weir run", self.scratch)?
        };
        weir.wait_until(WAIT, |_| Ok(self.bed.is_attached()?))?;
        let seen = self.traffic(stage);
        weir.signal(Signal::INT)?;
        let status = weir.wait(WAIT)?;
        let seen = seen?;
        if !status.success() {
            return Err(weir.failed(&format!("{status}")));
        }
        let text = fs::read_to_string(&report).map_err(LabError::io("read weir's report"))?;
        let report = serde_json::from_str(&text).map_err(|e| LabError::Child {
            what: "weir run --report".to_owned(),
            why: format!("no JSON: {e}"),
        })?;
        Ok((seen, report))
    }

    fn traffic(&self, stage: &Stage<'_>) -> Result<Seen, LabError> {
        let mut seen = Seen {
            fetched: Vec::new(),
            telnet: Vec::new(),
            echoed: Vec::new(),
            quic: 0,
            gbit: 0.0,
        };
        for (_, address) in traffic::families() {
            stage.keep_going()?;
            let (status, body) = traffic::fetch(self.bed, self.scratch, address, 8080)?;
            seen.fetched.push((status, body == self.servers.content()));
            seen.telnet
                .push(traffic::connects(self.bed, address, TELNET)?);
            seen.echoed
                .push(traffic::echoed(self.bed, address, ECHO, DATAGRAMS)?);
            seen.quic += traffic::echoed(self.bed, address, QUIC, 1)?;
        }
        stage.keep_going()?;
        if self.seconds > 0 {
            seen.gbit =
                traffic::stream(self.bed, self.scratch, super::bed::SERVER[0], self.seconds)?;
        }
        Ok(seen)
    }
}

fn check_handshakes(
    stage: &mut Stage<'_>,
    server: &Decoded,
    client: &Decoded,
) -> Result<(), LabError> {
    let asked: Vec<&Handshake> = server.handshakes.iter().filter(|h| !h.answer).collect();
    let answered: Vec<&Handshake> = client.handshakes.iter().filter(|h| h.answer).collect();
    let web = asked.iter().filter(|h| h.to == 80).count();
    let strays = asked
        .iter()
        .filter(|h| matches!(h.to, 8080 | TELNET))
        .count();
    stage.check(
        "the server sees port 80",
        web >= 2 && strays == 0,
        format!("{web} connections to port 80, {strays} to ports 8080 and {TELNET}"),
    )?;
    for (who, list) in [
        ("the server's side, SYN", &asked),
        ("the client's side, SYN-ACK", &answered),
    ] {
        let normal = list.iter().filter(|h| h.is_normal(MSS)).count();
        let example = list
            .first()
            .map_or_else(|| "none".to_owned(), |h| h.options.join(", "));
        stage.check(
            format!("handshakes at {who}: only MSS {MSS} and window scale"),
            normal == list.len() && normal > 0,
            format!("{normal} of {} ({example})", list.len()),
        )?;
    }
    Ok(())
}

fn yes(open: bool) -> &'static str {
    if open { "it answers" } else { "no answer" }
}

/// tcpdump at an interface.
struct Tap {
    tcpdump: Running,
    capture: PathBuf,
}

impl Tap {
    fn start(ns: &NetNs, iface: &str, scratch: &Scratch) -> Result<Tap, LabError> {
        let capture = scratch.fresh(iface, "pcap");
        let mut command = ns.command("tcpdump")?;
        // As root it would give up its privileges, and with them the right to write here.
        command
            .args([
                "-Z",
                "root",
                "--immediate-mode",
                "-U",
                "-n",
                "-i",
                iface,
                "-w",
            ])
            .arg(&capture)
            .arg(HANDSHAKES);
        command.stdout(Stdio::null());
        let mut tcpdump = Running::start(&mut command, "tcpdump", scratch)?;
        tcpdump.wait_until(WAIT, |t| Ok(t.stderr().contains("listening on")))?;
        Ok(Tap { tcpdump, capture })
    }

    fn stop(mut self) -> Result<Decoded, LabError> {
        self.tcpdump.signal(Signal::INT)?;
        self.tcpdump.wait(WAIT)?;
        handshakes::decode(&self.capture)
    }
}
