//! Real traffic between the demo's ends: servers that wait, clients that ask, and what came of it.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::bed::{Bed, SERVER};
use crate::LabError;
use crate::process::{Running, Scratch, is_listening};

/// What the web server has.
pub(crate) const FILE: &str = "weir.bin";
/// Its length: several windows of segments.
const FILE_BYTES: usize = 300_000;
/// Port that the policy closes, on which the server nevertheless listens.
pub(crate) const TELNET: u16 = 23;
/// UDP ports with an echo behind them: open, and closed by the policy.
pub(crate) const ECHO: u16 = 7;
pub(crate) const QUIC: u16 = 443;
/// How long an answer may take before it counts as none.
const PATIENCE: Duration = Duration::from_millis(700);

/// The server's side; ends when dropped.
#[derive(Debug)]
pub(crate) struct Servers {
    _http: Running,
    _telnet: TcpListener,
    _echoes: Vec<Echo>,
    content: Vec<u8>,
}

impl Servers {
    pub(crate) fn start(bed: &Bed, scratch: &Scratch) -> Result<Servers, LabError> {
        let content = noise(FILE_BYTES);
        let folder = scratch.path().join("www");
        fs::create_dir(&folder).map_err(LabError::io("create the web server's folder"))?;
        fs::write(folder.join(FILE), &content)
            .map_err(LabError::io("write the web server's file"))?;
        let mut command = bed.server.command("python3")?;
        command
            .args(["-m", "http.server", "80", "--bind", "::", "--directory"])
            .arg(&folder)
            .stdout(Stdio::null());
        let mut http = Running::start(&mut command, "python3 -m http.server", scratch)?;
        http.wait_until(Duration::from_secs(15), |_| is_listening(&bed.server, 80))?;
        let bind = LabError::io("open the server's sockets");
        let sockets = bed.server.run(|| -> io::Result<_> {
            Ok((
                TcpListener::bind(("::", TELNET))?,
                UdpSocket::bind(("::", ECHO))?,
                UdpSocket::bind(("::", QUIC))?,
            ))
        })?;
        let (telnet, echo, quic) = sockets.map_err(bind)?;
        let echoes = [echo, quic]
            .map(Echo::start)
            .into_iter()
            .collect::<io::Result<_>>();
        let echoes = echoes.map_err(LabError::io("start the echo servers"))?;
        Ok(Servers {
            _http: http,
            _telnet: telnet,
            _echoes: echoes,
            content,
        })
    }

    /// What a client that gets everything gets.
    pub(crate) fn content(&self) -> &[u8] {
        &self.content
    }
}

/// Fetches the file with curl; returns the HTTP status and the body.
pub(crate) fn fetch(
    bed: &Bed,
    scratch: &Scratch,
    address: &str,
    port: u16,
) -> Result<(String, Vec<u8>), LabError> {
    let body = scratch.fresh("body", "bin");
    let host = if address.contains(':') {
        format!("[{address}]")
    } else {
        address.to_owned()
    };
    let output = bed
        .client
        .command("curl")?
        .args([
            "-sS",
            "--noproxy",
            "*",
            "--max-time",
            "10",
            "-w",
            "%{http_code}",
            "-o",
        ])
        .arg(&body)
        .arg(format!("http://{host}:{port}/{FILE}"))
        .stdin(Stdio::null())
        .output()
        .map_err(LabError::io("start curl"))?;
    let status = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Ok((format!("{status} ({words})"), Vec::new()));
    }
    Ok((status, fs::read(&body).unwrap_or_default()))
}

/// Whether the client can open a connection.
pub(crate) fn connects(bed: &Bed, address: &str, port: u16) -> Result<bool, LabError> {
    let to = socket_address(address, port)?;
    Ok(bed
        .client
        .run(|| TcpStream::connect_timeout(&to, PATIENCE).is_ok())?)
}

/// Waits until the client reaches the server; a new bed needs a moment for addresses and neighbours of IPv6.
pub(crate) fn reaches(bed: &Bed, address: &str, port: u16) -> Result<bool, LabError> {
    let end = Instant::now() + Duration::from_secs(6);
    while Instant::now() < end {
        if connects(bed, address, port)? {
            return Ok(true);
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(false)
}

/// Sends datagrams of growing size and returns how many came back as they were.
pub(crate) fn echoed(bed: &Bed, address: &str, port: u16, count: usize) -> Result<usize, LabError> {
    let to = socket_address(address, port)?;
    let exchange = bed.client.run(|| -> io::Result<usize> {
        let any = if to.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
        let socket = UdpSocket::bind(any)?;
        socket.connect(to)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut back = [0; 2048];
        let mut good = 0;
        for i in 0..count {
            let sent = noise(1 + i * 1400 / count);
            socket.send(&sent)?;
            match socket.recv(&mut back) {
                Ok(n) if back[..n] == sent[..] => good += 1,
                Ok(_) => {}
                Err(e)
                    if matches!(
                        e.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(good)
    })?;
    exchange.map_err(LabError::io(format!("exchange datagrams with {to}")))
}

/// One iperf3 stream to the server; returns Gbit/s as received.
pub(crate) fn stream(
    bed: &Bed,
    scratch: &Scratch,
    address: &str,
    seconds: u32,
) -> Result<f64, LabError> {
    const PORT: u16 = 5201;
    let mut command = bed.server.command("iperf3")?;
    command.args(["-s", "-1"]).stdout(Stdio::null());
    let mut server = Running::start(&mut command, "iperf3 -s", scratch)?;
    server.wait_until(Duration::from_secs(5), |_| is_listening(&bed.server, PORT))?;
    let seconds = seconds.to_string();
    let text = bed
        .client
        .output("iperf3", &["-c", address, "-t", &seconds, "-J"])?;
    let result: serde_json::Value = serde_json::from_str(&text).map_err(|e| LabError::Child {
        what: "iperf3 -c".to_owned(),
        why: format!("printed no JSON: {e}"),
    })?;
    let rate = result
        .pointer("/end/sum_received/bits_per_second")
        .and_then(serde_json::Value::as_f64);
    Ok(rate.unwrap_or(0.0) / 1e9)
}

/// Bytes without a pattern that a wrong offset could hide in.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(step).take(len).collect()
}

fn socket_address(address: &str, port: u16) -> Result<SocketAddr, LabError> {
    let ip = address.parse().map_err(|e| LabError::Io {
        what: format!("read address {address}"),
        source: io::Error::other(e),
    })?;
    Ok(SocketAddr::new(ip, port))
}

/// Sends datagrams back, on a thread of its own.
#[derive(Debug)]
struct Echo {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    fn start(socket: UdpSocket) -> io::Result<Echo> {
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        let stop = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut buffer = [0; 2048];
            while !until.load(Ordering::Relaxed) {
                if let Ok((n, from)) = socket.recv_from(&mut buffer) {
                    let _ = socket.send_to(&buffer[..n], from);
                }
            }
        });
        Ok(Echo {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Both address families of the server, with the name used in checks.
pub(crate) fn families() -> [(&'static str, &'static str); 2] {
    [("IPv4", SERVER[0]), ("IPv6", SERVER[1])]
}
