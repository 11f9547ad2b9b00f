//! A reactive controller: asks for the packets of a punt function, and for the first one of each connection installs a flow in both
//! directions, so that all that follow stay in the kernel. Packets to a port that is given are dropped there.
//!
//! `cargo run -p weir-engine --example reactive-controller -- SOCKET NETWORK FUNCTION [PORT]`, beside `weir net helper`. It uses nothing of
//! weir: lines of JSON over a socket (docs/networks.md).

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

/// Seconds without a packet after which a connection's flows are gone.
const IDLE: u32 = 60;

/// What it controls.
#[derive(Clone, Debug)]
pub(crate) struct Controller {
    /// Network of the function.
    pub(crate) network: String,
    /// Its name.
    pub(crate) function: String,
    /// Nobody may connect to this port.
    pub(crate) barred: Option<u16>,
}

/// What a frame says of its connection: protocol, addresses, ports.
struct Connection {
    protocol: u8,
    from: [u8; 4],
    to: [u8; 4],
    from_port: u16,
    port: u16,
}

impl Connection {
    /// Of TCP and UDP in IPv4.
    fn of(frame: &[u8]) -> Option<Connection> {
        let word = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
        let ip = frame.get(14..)?;
        if word(12)? != 0x0800 || !matches!(*ip.get(9)?, 6 | 17) || word(20)? & 0x1fff != 0 {
            return None;
        }
        let ports = 14 + usize::from(ip[0] & 15) * 4;
        Some(Connection {
            protocol: ip[9],
            from: ip.get(12..16)?.try_into().ok()?,
            to: ip.get(16..20)?.try_into().ok()?,
            from_port: word(ports)?,
            port: word(ports + 2)?,
        })
    }
}

fn dotted(address: [u8; 4]) -> String {
    address.map(|byte| byte.to_string()).join(".")
}

fn other(side: &str) -> &'static str {
    if side == "a" { "b" } else { "a" }
}

impl Controller {
    /// Serves until the socket is closed.
    ///
    /// # Errors
    /// The socket failed, or the helper said what is no JSON.
    pub(crate) fn serve(&self, stream: UnixStream) -> io::Result<()> {
        let mut out = stream.try_clone()?;
        self.ask(&mut out, json!({ "do": "listen" }))?;
        for line in BufReader::new(stream).lines() {
            let line: Value = serde_json::from_str(&line?)?;
            if let Some(error) = line["error"].as_str() {
                return Err(io::Error::other(error.to_owned()));
            }
            let packet = &line["packet"];
            if let (Some(side), Some(data)) =
                (packet["interface"].as_str(), packet["data"].as_str())
            {
                self.decide(&mut out, side, data)?;
            }
        }
        Ok(())
    }

    fn ask(&self, out: &mut UnixStream, mut request: Value) -> io::Result<()> {
        request["network"] = json!(self.network);
        request["function"] = json!(self.function);
        writeln!(out, "{request}")
    }

    /// A first packet: what follows it is decided here, and it goes on itself.
    fn decide(&self, out: &mut UnixStream, side: &str, data: &str) -> io::Result<()> {
        if let Some(one) = bytes(data).as_deref().and_then(Connection::of) {
            let flow = json!({
                "protocol": one.protocol,
                "from": dotted(one.from), "from_port": one.from_port,
                "to": dotted(one.to), "port": one.port,
            });
            if self.barred == Some(one.port) {
                let drop = json!({ "do": "install", "interface": side, "flow": flow, "action": "drop", "idle": IDLE });
                return self.ask(out, drop);
            }
            let back = json!({
                "protocol": one.protocol,
                "from": dotted(one.to), "from_port": one.port,
                "to": dotted(one.from), "port": one.from_port,
            });
            for (interface, flow) in [(side, flow), (other(side), back)] {
                let install = json!({
                    "do": "install", "interface": interface, "flow": flow,
                    "action": "forward", "by": other(interface), "idle": IDLE,
                });
                self.ask(out, install)?;
            }
        }
        self.ask(
            out,
            json!({ "do": "send", "interface": other(side), "data": data }),
        )
    }
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let pairs = hex.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

#[allow(dead_code, reason = "a test serves by itself")]
fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [socket, network, function, rest @ ..] = args.as_slice() else {
        return Err(io::Error::other("give SOCKET NETWORK FUNCTION [PORT]"));
    };
    let controller = Controller {
        network: network.clone(),
        function: function.clone(),
        barred: rest.first().and_then(|port| port.parse().ok()),
    };
    controller.serve(UnixStream::connect(socket)?)
}
