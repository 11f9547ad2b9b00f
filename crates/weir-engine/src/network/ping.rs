//! Echo requests through the running networks in a workload's name: put into the receive path of its device, as if it had sent them, so that they meet
//! the programs there and all that follows; answers are seen on the device, where they leave for the workload.
//!
//! The workload takes no part. It gets the answers, too, and its kernel passes them over: nobody there asked. Nothing is attached, and nothing of the
//! networks is changed.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use weir_kernel::{IcmpSocket, KernelError, KernelObject, LoadedProgram, Passed, TestCtx, iface};

use super::error::NetworkError;
use crate::edge::load::random;

/// Bytes of a frame in front of what IP carries.
const HEAD4: usize = 14 + 20;
const HEAD6: usize = 14 + 40;
/// Bytes of an echo's header, and of what tells this run's from others behind it.
const ECHO: usize = 8;
const NONCE: usize = 8;
/// Bytes that an echo request must carry at least.
pub const LEAST: u16 = NONCE as u16;
/// Bytes of a frame that are looked at.
const LOOKED_AT: usize = 2048;

/// What became of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// When it came in by the workload's device, in nanoseconds of the calendar; `None`: the kernel lost it before.
    pub sent_ns: Option<u64>,
    /// The answer.
    pub answer: Option<Answer>,
    /// What somebody on the way said instead.
    pub refusal: Option<Refusal>,
    /// It was seen leaving by the device of the workload that it is for.
    pub delivered: bool,
    /// An answer was seen coming out of that workload.
    pub returned: bool,
}

/// An echo reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// From the request's coming in by the device to the answer's leaving by it.
    pub rtt: Duration,
    /// Its TTL or hop limit.
    pub ttl: u8,
}

/// An ICMP error about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Who sent it.
    pub from: IpAddr,
    /// Type.
    pub kind: u8,
    /// Code.
    pub code: u8,
}

/// A frame that has to do with this run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Request(u16),
    Reply(u16, u8),
    Error(u16, Refusal),
}

/// The echo request of a run: all of it but for its sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Request {
    frame: Vec<u8>,
    v6: bool,
    identifier: u16,
    nonce: [u8; NONCE],
}

impl Request {
    /// From a frame with an echo request whose data are zeros; `None`: it is no such frame.
    fn new(frame: Vec<u8>, identifier: u16, nonce: [u8; NONCE]) -> Option<Request> {
        let v6 = match frame.get(12..14)? {
            [0x08, 0x00] => false,
            [0x86, 0xdd] => true,
            _ => return None,
        };
        let mut request = Request {
            frame,
            v6,
            identifier,
            nonce,
        };
        let icmp = request.icmp();
        let kind = if v6 { 128 } else { 8 };
        if *request.frame.get(icmp)? != kind || request.frame.len() < icmp + ECHO + NONCE {
            return None;
        }
        request.put(icmp + 4, identifier.to_be_bytes());
        for (at, pair) in nonce.chunks_exact(2).enumerate() {
            request.put(icmp + ECHO + 2 * at, [pair[0], pair[1]]);
        }
        Some(request)
    }

    fn icmp(&self) -> usize {
        if self.v6 { HEAD6 } else { HEAD4 }
    }

    /// The frame with a sequence.
    fn with(&mut self, sequence: u16) -> &[u8] {
        self.put(self.icmp() + 6, sequence.to_be_bytes());
        &self.frame
    }

    /// Writes a word of what ICMP's checksum covers, and the checksum (RFC 1624).
    fn put(&mut self, at: usize, word: [u8; 2]) {
        let sum = self.icmp() + 2;
        let (Some(field), Some(was)) = (
            self.frame.get(sum..sum + 2).map(|b| [b[0], b[1]]),
            self.frame.get(at..at + 2).map(|b| [b[0], b[1]]),
        ) else {
            return;
        };
        let [field, was, now] = [field, was, word].map(|word| u32::from(u16::from_be_bytes(word)));
        let mut total = (!field & 0xffff) + (!was & 0xffff) + now;
        total = (total & 0xffff) + (total >> 16);
        total = (total & 0xffff) + (total >> 16);
        self.frame[at..at + 2].copy_from_slice(&word);
        self.frame[sum..sum + 2].copy_from_slice(&(!(total as u16)).to_be_bytes());
    }

    /// What a frame has to do with this run.
    fn heard(&self, frame: &[u8]) -> Option<Heard> {
        let protocol = if self.v6 { [0x86, 0xdd] } else { [0x08, 0x00] };
        if frame.get(12..14)? != protocol {
            return None;
        }
        let (next, head) = match self.v6 {
            true => (*frame.get(20)?, HEAD6),
            false => (*frame.get(23)?, 14 + usize::from(*frame.get(14)? & 15) * 4),
        };
        let icmp = frame.get(head..)?;
        let [kind, code] = *icmp.first_chunk::<2>()?;
        let ttl = *frame.get(if self.v6 { 21 } else { 22 })?;
        match (self.v6, next, kind) {
            (false, 1, 8) | (true, 58, 128) => Some(Heard::Request(self.own(icmp)?)),
            (false, 1, 0) | (true, 58, 129) => Some(Heard::Reply(self.own(icmp)?, ttl)),
            (false, 1, 3 | 11 | 12) | (true, 58, 1..=4) => {
                let sequence = self.quoted(icmp.get(8..)?)?;
                let from: IpAddr = match self.v6 {
                    true => <[u8; 16]>::try_from(frame.get(22..38)?).ok()?.into(),
                    false => <[u8; 4]>::try_from(frame.get(26..30)?).ok()?.into(),
                };
                Some(Heard::Error(sequence, Refusal { from, kind, code }))
            }
            _ => None,
        }
    }

    /// The sequence of an echo of this run.
    fn own(&self, icmp: &[u8]) -> Option<u16> {
        let sequence = self.sequence(icmp)?;
        (icmp.get(ECHO..ECHO + NONCE)? == self.nonce).then_some(sequence)
    }

    fn sequence(&self, icmp: &[u8]) -> Option<u16> {
        let word = |at: usize| Some(u16::from_be_bytes([*icmp.get(at)?, *icmp.get(at + 1)?]));
        (word(4)? == self.identifier).then(|| word(6))?
    }

    /// ... of a request that an error quotes, as far as it does: the addresses are those of the run.
    fn quoted(&self, packet: &[u8]) -> Option<u16> {
        let (from, head, next) = match self.v6 {
            true => (8..40, 40, *packet.get(6)? == 58),
            false => (
                12..20,
                usize::from(*packet.first()? & 15) * 4,
                *packet.get(9)? == 1,
            ),
        };
        let same = packet.get(from.clone())? == self.frame.get(14 + from.start..14 + from.end)?;
        let icmp = packet.get(head..)?;
        let is_request = *icmp.first()? == if self.v6 { 128 } else { 8 };
        (same && next && is_request).then(|| self.sequence(icmp))?
    }
}

/// How requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// How many.
    pub count: u16,
    /// From one to the next.
    pub interval: Duration,
    /// How long the last one's answer is waited for, and no shorter any other's.
    pub patience: Duration,
}

/// A run of echo requests.
#[derive(Debug)]
pub struct Ping {
    inject: LoadedProgram,
    near: IcmpSocket,
    /// Of the device of the workload that requests are for, if it is on this edge.
    far: Option<IcmpSocket>,
    request: Request,
    asked: Vec<Asked>,
}

impl Ping {
    /// Gets ready in the current namespace. `frame`: an echo request with at least [`LEAST`] bytes of data, zeros, as the workload behind `device` would
    /// send it; `far`: the device of the workload that it is for, if that is on this edge and another one.
    ///
    /// # Errors
    /// A device is not there, the frame is no echo request, or the kernel refused.
    pub fn open(device: &str, far: Option<&str>, frame: Vec<u8>) -> Result<Ping, NetworkError> {
        let missing = |what: &str| NetworkError::Incomplete {
            what: what.to_owned(),
        };
        let ifindex = iface::index_of(device)?;
        let elf = weir_bpf::tool("inject").ok_or_else(|| missing("the program `inject`"))?;
        let mut object = KernelObject::open(elf)?;
        object.set_rodata("inject_device", &ifindex.to_ne_bytes())?;
        let nonce = random()?;
        let identifier = u16::from_ne_bytes([nonce[0], nonce[1]]);
        let request = Request::new(frame, identifier, nonce);
        Ok(Ping {
            inject: object.load("inject")?,
            near: IcmpSocket::open(device)?,
            far: far.map(IcmpSocket::open).transpose()?,
            request: request.ok_or_else(|| missing("the echo request"))?,
            asked: Vec::new(),
        })
    }

    /// Sends requests and waits for answers. `tell` is given each request as soon as it is answered or refused, by its number from 1.
    ///
    /// # Errors
    /// The kernel refused; also where a device went away meanwhile.
    pub fn run(
        &mut self,
        pace: &Pace,
        mut tell: impl FnMut(u16, &Asked),
    ) -> Result<&[Asked], NetworkError> {
        let begin = Instant::now();
        for number in 0..pace.count {
            let due = begin + pace.interval * u32::from(number);
            self.listen(due, false, &mut tell)?;
            self.send(number + 1)?;
        }
        self.listen(Instant::now() + pace.patience, true, &mut tell)?;
        Ok(&self.asked)
    }

    /// Packets that could not be seen because there were too many.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn missed(&self) -> Result<u64, NetworkError> {
        Ok(self.near.missed()?)
    }

    fn send(&mut self, sequence: u16) -> Result<(), NetworkError> {
        self.asked.push(Asked::default());
        let frame = self.request.with(sequence);
        let mut out = Vec::new();
        let ran = self.inject.test_run(frame, &mut out, TestCtx::default())?;
        match ran.retval as i32 {
            // A full queue, or a device that is down: told by its never coming in.
            0.. => Ok(()),
            error => Err(KernelError::Sys {
                what: "put an echo request into the workload's device".to_owned(),
                source: std::io::Error::from_raw_os_error(-error),
            }
            .into()),
        }
    }

    /// Looks at what passes until a time; the `last` time no longer than until all is answered.
    fn listen(
        &mut self,
        until: Instant,
        last: bool,
        tell: &mut impl FnMut(u16, &Asked),
    ) -> Result<(), NetworkError> {
        let mut buffer = [0; LOOKED_AT];
        loop {
            let ended = |one: &Asked| one.answer.is_some() || one.refusal.is_some();
            if last && self.asked.iter().all(ended) {
                break;
            }
            let left = until.saturating_duration_since(Instant::now());
            match self.near.next(&mut buffer, left)? {
                Some(passed) => {
                    let heard = self.request.heard(passed.frame);
                    note(&mut self.asked, heard, &passed, tell);
                }
                None if left.is_zero() => break,
                None => {}
            }
        }
        if let Some(far) = &self.far {
            while let Some(passed) = far.next(&mut buffer, Duration::ZERO)? {
                let heard = self.request.heard(passed.frame);
                note_far(&mut self.asked, heard, passed.left);
            }
        }
        Ok(())
    }
}

fn of(asked: &mut [Asked], sequence: u16) -> Option<&mut Asked> {
    asked.get_mut(usize::from(sequence).checked_sub(1)?)
}

/// What passed the device that requests come in by.
fn note(
    asked: &mut [Asked],
    heard: Option<Heard>,
    passed: &Passed<'_>,
    tell: &mut impl FnMut(u16, &Asked),
) {
    match heard {
        Some(Heard::Request(sequence)) if !passed.left => {
            if let Some(one) = of(asked, sequence) {
                one.sent_ns.get_or_insert(passed.at_ns);
            }
        }
        Some(Heard::Reply(sequence, ttl)) if passed.left => {
            let Some(one) = of(asked, sequence) else {
                return;
            };
            if let (None, Some(sent)) = (one.answer, one.sent_ns) {
                let rtt = Duration::from_nanos(passed.at_ns.saturating_sub(sent));
                one.answer = Some(Answer { rtt, ttl });
                tell(sequence, one);
            }
        }
        Some(Heard::Error(sequence, refusal)) if passed.left => {
            let Some(one) = of(asked, sequence) else {
                return;
            };
            if one.refusal.is_none() {
                one.refusal = Some(refusal);
                tell(sequence, one);
            }
        }
        _ => {}
    }
}

/// What passed the device of the workload that requests are for.
fn note_far(asked: &mut [Asked], heard: Option<Heard>, left: bool) {
    match heard {
        Some(Heard::Request(sequence)) if left => {
            if let Some(one) = of(asked, sequence) {
                one.delivered = true;
            }
        }
        Some(Heard::Reply(sequence, _)) if !left => {
            if let Some(one) = of(asked, sequence) {
                one.returned = true;
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use weir_packet::build::Frame;

    use super::*;

    fn request(v6: bool) -> Request {
        let frame = match v6 {
            false => Frame::new().ip4([10, 0, 0, 1], [10, 0, 0, 2]).icmp(8, 0),
            true => {
                let address = |last| {
                    let mut address = [0xfd; 16];
                    address[15] = last;
                    address
                };
                Frame::new().ip6(address(1), address(2)).icmp(128, 0)
            }
        };
        let frame = frame.echo(1, 1).payload(&[0; 56]).build();
        Request::new(frame, 0xbeef, [1, 2, 3, 4, 5, 6, 7, 0xff]).expect("an echo request")
    }

    /// The sum of what ICMP's checksum covers, folded: all ones if it is right.
    fn sum(request: &Request) -> u32 {
        let icmp = request.icmp();
        let mut bytes = request.frame[icmp..].to_vec();
        if request.v6 {
            bytes.extend(&request.frame[22..54]);
            bytes.extend([0, 0, 0, (request.frame.len() - icmp) as u8, 0, 0, 0, 58]);
        }
        let words = bytes
            .chunks(2)
            .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
        let total: u32 = words.sum();
        (total & 0xffff) + (total >> 16)
    }

    #[test]
    fn requests_have_right_checksums_and_are_known_again() {
        for v6 in [false, true] {
            let mut request = request(v6);
            for sequence in [1, 2, 0xffff] {
                let frame = request.with(sequence).to_vec();
                assert_eq!(sum(&request), 0xffff, "{v6} {sequence}");
                assert_eq!(request.heard(&frame), Some(Heard::Request(sequence)));
                let mut reply = frame.clone();
                reply[request.icmp()] = if v6 { 129 } else { 0 };
                assert_eq!(request.heard(&reply), Some(Heard::Reply(sequence, 64)));
                // Of another run.
                reply[request.icmp() + ECHO] ^= 1;
                assert_eq!(request.heard(&reply), None);
                for cut in 0..frame.len() {
                    request.heard(&frame[..cut]);
                }
            }
        }
    }

    #[test]
    fn errors_are_known_by_what_they_quote() {
        for v6 in [false, true] {
            let mut request = request(v6);
            let frame = request.with(7).to_vec();
            let quote = &frame[14..(14 + 48).min(frame.len())];
            let (error, from): (_, IpAddr) = match v6 {
                false => (
                    Frame::new().ip4([10, 0, 0, 9], [10, 0, 0, 1]).icmp(3, 1),
                    [10, 0, 0, 9].into(),
                ),
                true => {
                    let mut router = [0xfd; 16];
                    router[15] = 9;
                    let to = [0xfd; 16];
                    (Frame::new().ip6(router, to).icmp(1, 1), router.into())
                }
            };
            let error = error.payload(quote).build();
            let (kind, code) = if v6 { (1, 1) } else { (3, 1) };
            let refusal = Refusal { from, kind, code };
            assert_eq!(request.heard(&error), Some(Heard::Error(7, refusal)));
            let mut other = error.clone();
            let at = if v6 { HEAD6 + 8 + 39 } else { HEAD4 + 8 + 19 };
            other[at] ^= 1;
            assert_eq!(request.heard(&other), None, "another destination");
        }
    }
}
