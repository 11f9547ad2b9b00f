//! The forwarder on another host: `weir lab afxdp --listen` serves the far end of a sweep over one TCP connection, a line of JSON for each request and each answer.
//!
//! The connection is for control alone; packets go over the interfaces. There is no secrecy and no proof of who asks: listen where only the prober's host can reach. Invariants: one sweep at
//! a time; when the connection ends, for whatever reason, the forwarder stops and all settings are restored.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::run::AfxdpError;
use super::settings::{Journal, NetnsHandle, restore_orphans};
use super::side::{FarReport, Forwarding, Order, Side};
use super::space::Capabilities;
use crate::xsk::{Meter, Setup, XskRunError};

/// Version of the conversation.
const VERSION: u32 = 1;
/// The longest that an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often a server looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(200);

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Ask {
    /// Be this, from now on.
    Start(Order),
    /// Stop, and tell what you did.
    Finish,
    /// Put your settings back.
    Rest,
    /// Is the interface up?
    Up,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Hello(Box<Hello>),
    Ready,
    Report(FarReport),
    Up(bool),
    Error(String),
}

/// What a server says first.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Hello {
    version: u32,
    interface: String,
    mac: [u8; 6],
    capabilities: Capabilities,
}

/// A far end on another host.
#[derive(Debug)]
pub(super) struct Remote {
    stream: BufReader<TcpStream>,
    address: String,
    hello: Hello,
}

impl Remote {
    /// Connects.
    pub(super) fn connect(address: &str) -> Result<Remote, AfxdpError> {
        let failed = |what: &str| AfxdpError::io(format!("{what} the forwarder at {address}"));
        let stream = TcpStream::connect(address).map_err(failed("connect with"))?;
        stream
            .set_read_timeout(Some(PATIENCE))
            .and_then(|()| stream.set_nodelay(true))
            .map_err(failed("talk with"))?;
        let mut stream = BufReader::new(stream);
        let hello = match read(&mut stream).map_err(failed("hear"))? {
            Answer::Hello(hello) if hello.version == VERSION => *hello,
            Answer::Error(text) => {
                return Err(XskRunError::Usage(format!("{address}: {text}")).into());
            }
            _ => {
                return Err(XskRunError::Usage(format!(
                    "{address} runs another version: use the same weir at both ends"
                ))
                .into());
            }
        };
        Ok(Remote {
            stream,
            address: address.to_owned(),
            hello,
        })
    }

    fn ask(&mut self, ask: &Ask) -> Result<Answer, XskRunError> {
        let answer = write(self.stream.get_mut(), ask).and_then(|()| read(&mut self.stream));
        match answer {
            Ok(Answer::Error(text)) => Err(XskRunError::Usage(format!(
                "forwarder at {}: {text}",
                self.address
            ))),
            Ok(answer) => Ok(answer),
            Err(source) => Err(XskRunError::Placement {
                what: format!("exchange messages with the forwarder at {}", self.address),
                source,
            }),
        }
    }
}

/// One line.
fn write(stream: &mut TcpStream, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_string(value)?;
    line.push('\n');
    stream.write_all(line.as_bytes())
}

fn read(stream: &mut BufReader<TcpStream>) -> io::Result<Answer> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
    }
    Ok(serde_json::from_str(&line)?)
}

/// The far end of a sweep, wherever it is.
#[derive(Debug)]
pub(super) enum Far {
    /// On this host.
    Local(Box<Side>),
    /// On another.
    Remote(Box<Remote>),
}

/// Its forwarder at work.
#[derive(Debug)]
pub(super) enum Work {
    Local(Forwarding),
    Remote,
}

impl Far {
    pub(super) fn interface(&self) -> String {
        match self {
            Far::Local(side) => side.interface.clone(),
            Far::Remote(remote) => format!("{} at {}", remote.hello.interface, remote.address),
        }
    }

    pub(super) fn mac(&self) -> [u8; 6] {
        match self {
            Far::Local(side) => side.mac,
            Far::Remote(remote) => remote.hello.mac,
        }
    }

    /// For the UDP controls.
    pub(super) fn address(&self) -> Option<std::net::Ipv4Addr> {
        match self {
            Far::Local(side) => side.address,
            Far::Remote(_) => None,
        }
    }

    pub(super) fn capabilities(&self) -> Result<Capabilities, XskRunError> {
        match self {
            Far::Local(side) => Capabilities::probe(&side.place, &side.interface),
            Far::Remote(remote) => Ok(remote.hello.capabilities.clone()),
        }
    }

    /// Whether its interface is there and up.
    pub(super) fn is_up(&mut self) -> bool {
        match self {
            Far::Local(side) => side.is_up(),
            Far::Remote(remote) => matches!(remote.ask(&Ask::Up), Ok(Answer::Up(true))),
        }
    }

    /// Starts a forwarder; ready once it returns. Threads on this host count their time in `meter`.
    pub(super) fn start(&mut self, order: &Order, meter: &Arc<Meter>) -> Result<Work, XskRunError> {
        match self {
            Far::Local(side) => Forwarding::start(side, order, meter).map(Work::Local),
            Far::Remote(remote) => remote.ask(&Ask::Start(order.clone())).map(|_| Work::Remote),
        }
    }

    /// Ends it and tells what it did.
    pub(super) fn finish(&mut self, work: Work) -> FarReport {
        let failed = |why: String| FarReport {
            failure: Some(why),
            ..FarReport::default()
        };
        match (self, work) {
            (Far::Local(side), Work::Local(forwarding)) => forwarding.finish(side),
            (Far::Remote(remote), Work::Remote) => match remote.ask(&Ask::Finish) {
                Ok(Answer::Report(report)) => report,
                Ok(_) => failed("the forwarder sent no report".to_owned()),
                Err(e) => failed(e.to_string()),
            },
            _ => failed("a forwarder of another end".to_owned()),
        }
    }

    /// Puts its settings back.
    pub(super) fn restore(&mut self) -> Result<(), XskRunError> {
        match self {
            Far::Local(side) => side.restore(),
            Far::Remote(remote) => remote.ask(&Ask::Rest).map(drop),
        }
    }
}

/// Serves far ends on an interface, one sweep after the other, until told to stop.
///
/// # Errors
/// The address cannot be listened on, or the interface is not to be used.
pub fn serve(
    interface: &str,
    listen: SocketAddr,
    owned: bool,
    stop: &AtomicBool,
    tell: &dyn Fn(&str),
) -> Result<(), AfxdpError> {
    for line in restore_orphans()? {
        tell(&line);
    }
    Setup {
        owned,
        ..Setup::new(interface)
    }
    .check_owned(interface)?;
    let failed = || AfxdpError::io(format!("listen on {listen}"));
    let listener = TcpListener::bind(listen).map_err(failed())?;
    listener.set_nonblocking(true).map_err(failed())?;
    let at = listener.local_addr().map_err(failed())?;
    tell(&format!(
        "serving sweeps on {interface} at {at}; Ctrl-C stops"
    ));
    while !stop.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((stream, from)) => {
                tell(&format!("a sweep of {from}"));
                match converse(stream, interface, owned, stop) {
                    Ok(()) => tell("it ended; all settings are restored"),
                    Err(e) => tell(&format!("it ended: {e}; all settings are restored")),
                }
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(50))
            }
            Err(e) => return Err(failed()(e)),
        }
    }
    Ok(())
}

/// One sweep. Settings are put back when this returns.
fn converse(
    stream: TcpStream,
    interface: &str,
    owned: bool,
    stop: &AtomicBool,
) -> Result<(), AfxdpError> {
    let failed = || AfxdpError::io("exchange messages with the prober");
    stream
        .set_nonblocking(false)
        .and_then(|()| stream.set_read_timeout(Some(LOOK)))
        .and_then(|()| stream.set_nodelay(true))
        .map_err(failed())?;
    let mut answers = stream.try_clone().map_err(failed())?;
    let journal = Journal::begin()?;
    let begun = Side::new(&journal, NetnsHandle::Here, interface, None, owned)
        .and_then(|side| Ok((Capabilities::probe(&side.place, interface)?, side)));
    let (capabilities, mut side) = match begun {
        Ok(begun) => begun,
        Err(e) => {
            write(&mut answers, &Answer::Error(e.to_string())).map_err(failed())?;
            return Err(e.into());
        }
    };
    let hello = Hello {
        version: VERSION,
        interface: interface.to_owned(),
        mac: side.mac,
        capabilities,
    };
    write(&mut answers, &Answer::Hello(Box::new(hello))).map_err(failed())?;
    let mut lines = BufReader::new(stream);
    let mut line = String::new();
    let mut work: Option<(Forwarding, Arc<Meter>)> = None;
    while !stop.load(Ordering::Relaxed) {
        match lines.read_line(&mut line) {
            Ok(0) => break,
            // The rest of it is still to come.
            Ok(_) if !line.ends_with('\n') => continue,
            Ok(_) => {}
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) =>
            {
                continue;
            }
            Err(e) => return Err(failed()(e)),
        }
        let answer = match serde_json::from_str(&line) {
            Ok(Ask::Start(order)) => {
                // One that is still at work ends first.
                drop(work.take());
                let meter = Arc::new(Meter::default());
                match Forwarding::start(&mut side, &order, &meter) {
                    Ok(forwarding) => {
                        meter.begin();
                        work = Some((forwarding, meter));
                        Answer::Ready
                    }
                    Err(e) => Answer::Error(e.to_string()),
                }
            }
            Ok(Ask::Finish) => match work.take() {
                Some((forwarding, meter)) => {
                    meter.end();
                    let mut report = forwarding.finish(&side);
                    report.cpu_ns = meter.cpu_ns();
                    Answer::Report(report)
                }
                None => Answer::Error("nothing is at work".to_owned()),
            },
            Ok(Ask::Rest) => {
                drop(work.take());
                match side.restore() {
                    Ok(()) => Answer::Ready,
                    Err(e) => Answer::Error(e.to_string()),
                }
            }
            Ok(Ask::Up) => Answer::Up(side.is_up()),
            Err(e) => Answer::Error(format!("no request: {e}")),
        };
        line.clear();
        write(&mut answers, &answer).map_err(failed())?;
    }
    drop(work);
    side.restore()?;
    Ok(())
}
