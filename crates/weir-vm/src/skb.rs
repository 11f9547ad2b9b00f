//! The socket buffer a tc program works on: a linear frame, and the fields of `struct __sk_buff` beside it.
//!
//! Owns which fields there are, of which width they are read and written, the VLAN tag that lies beside the data, and what the kernel knows of
//! the packet and programs see by what helpers answer: where its headers are, whether it is in a tunnel. What helpers do to
//! it is in `helpers::skb` and `helpers::room`. As in a test run of the kernel, the buffer is linear, nobody verified its checksum and
//! no header but the link layer's is known. Invariant: `len`, the pointers and `vlan_present` are computed, never stored.

use crate::frame::Frame;

/// Bytes of head room a socket buffer has here.
pub(crate) const SKB_HEADROOM: usize = 256;
/// Longest packet that may result from growing (`SKB_MAX_ALLOC` less the kernel's own trailer).
pub(crate) const SKB_LEN_MAX: usize = 16_064;
/// Bytes of `struct __sk_buff`.
const BYTES: usize = 192;

/// A packet at the traffic control layer.
#[derive(Clone, Debug)]
pub struct Skb {
    pub(crate) frame: Frame,
    pub(crate) fields: SkbFields,
}

/// A field of `struct __sk_buff` that is set from outside, with its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are Linux's own")]
#[repr(usize)]
pub enum SkbField {
    PacketType = 4,
    Mark = 8,
    QueueMapping = 12,
    /// Network byte order.
    Protocol = 16,
    Priority = 32,
    IngressIfindex = 36,
    Ifindex = 40,
    TcIndex = 44,
    Cb0 = 48,
    Cb1 = 52,
    Cb2 = 56,
    Cb3 = 60,
    Cb4 = 64,
    Hash = 68,
    TcClassid = 72,
    NapiId = 84,
    WireLen = 160,
    GsoSegs = 164,
    GsoSize = 176,
}

/// The fields as they lie in memory; computed ones are zero.
#[derive(Clone, Debug)]
pub(crate) struct SkbFields {
    bytes: [u8; BYTES],
    pub(crate) known: Known,
}

/// What the kernel knows of a packet beside `struct __sk_buff`. Offsets are from the start of the data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// Where the network header is: behind the link layer's.
    pub(crate) network: usize,
    /// Where the transport header is, once somebody said so.
    pub(crate) transport: Option<isize>,
    /// It is in a tunnel that a program made.
    pub(crate) encapsulated: bool,
    /// How many checksums were verified, less one; nothing: none.
    pub(crate) checksums: Option<u8>,
    /// Headers that a tunnel's device is to make, or took off.
    pub(crate) tunnel: Option<TunnelKey>,
}

impl Default for Known {
    fn default() -> Known {
        Known {
            network: 14,
            transport: None,
            encapsulated: false,
            checksums: None,
            tunnel: None,
        }
    }
}

/// The outer header that goes with a packet of a collect-metadata tunnel device. Addresses as in packets, those of IPv4 in the first four bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunnelKey {
    /// Identifier.
    pub id: u32,
    /// Whether addresses are those of IPv6.
    pub v6: bool,
    /// Where it comes from.
    pub source: [u8; 16],
    /// Where it goes to.
    pub destination: [u8; 16],
    /// Type of service.
    pub tos: u8,
    /// Hops.
    pub ttl: u8,
    /// IPv6: flow label.
    pub label: u32,
}

/// A copy that `bpf_clone_redirect` sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Index of the device.
    pub ifindex: u32,
    /// Into its receive path, not out of it.
    pub ingress: bool,
    /// The packet as it was then.
    pub skb: Skb,
}

/// What a load from the context yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loaded {
    /// A number.
    Number(u64),
    /// Start of the packet.
    Data,
    /// Its end.
    End,
    /// Start of the metadata.
    Meta,
    /// The lowest `bits` of the packet's length, shifted right.
    Length {
        /// Bits to drop.
        shift: u32,
        /// Bits that remain.
        bits: u32,
    },
}

/// What a program reads in `struct __sk_buff`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    /// A number.
    Number,
    /// Start of the packet.
    Data,
    /// Its end.
    End,
    /// Start of the metadata.
    Meta,
    /// Length of the packet, or part of it.
    Length,
    /// Whether a VLAN tag lies beside the data.
    Vlan,
    /// The socket that the packet belongs to, or null.
    Socket,
}

/// What a tc program reads with `width` bytes at `offset` of `struct __sk_buff`; nothing where the kernel allows no such access
/// (net/core/filter.c: tc_cls_act_is_valid_access). The verifier and runs ask here.
pub(crate) fn readable(offset: usize, width: usize) -> Option<Field> {
    if !matches!(width, 1 | 2 | 4 | 8) || !offset.is_multiple_of(width) || offset + width > BYTES {
        return None;
    }
    let pointer = |field| (width == 4).then_some(field);
    match offset {
        DATA..80 => pointer(Field::Data),
        DATA_END..84 => pointer(Field::End),
        DATA_META..144 => pointer(Field::Meta),
        // Of sockets, and flow keys.
        88..DATA_META | 144..TSTAMP => None,
        // Padding behind the type of the time stamp.
        181..HWTSTAMP => None,
        CB..68 => (offset + width <= 68).then_some(Field::Number),
        TSTAMP..160 | HWTSTAMP.. => (width == 8).then_some(Field::Number),
        SK..176 => (width == 8).then_some(Field::Socket),
        TSTAMP_TYPE => (width == 1).then_some(Field::Number),
        _ if width == 8 => None,
        LEN..4 => Some(Field::Length),
        VLAN_PRESENT..VLAN_TCI => Some(Field::Vlan),
        _ => Some(Field::Number),
    }
}

/// Whether a tc program may store `width` bytes at `offset`.
pub(crate) fn writable(offset: usize, width: usize) -> bool {
    if !matches!(width, 1 | 2 | 4 | 8) || !offset.is_multiple_of(width) {
        return false;
    }
    match offset {
        CB..68 => offset + width <= 68,
        TSTAMP => width == 8,
        // Mark, queue mapping, priority, index and class.
        8 | 12 | 32 | 44 | 72 => width == 4,
        _ => false,
    }
}

/// Addresses, a tag and the type behind it with as much again: of shorter frames the kernel takes no tag.
const TAGGED: usize = 20;

const LEN: usize = 0;
const VLAN_PRESENT: usize = 20;
const VLAN_TCI: usize = 24;
const VLAN_PROTO: usize = 28;
const DATA: usize = 76;
const DATA_END: usize = 80;
const DATA_META: usize = 140;
const CB: usize = 48;
const TSTAMP: usize = 152;
const SK: usize = 168;
const HWTSTAMP: usize = 184;
const TSTAMP_TYPE: usize = 180;

impl Skb {
    /// A socket buffer as the kernel's test run makes it of a frame: on interface 1, with the protocol of its Ethernet header, and the tag of
    /// a VLAN in the data.
    pub fn new(data: &[u8]) -> Skb {
        let mut skb = Skb {
            frame: Frame::new(&[]),
            fields: SkbFields::new(),
        };
        skb.reset(data);
        skb
    }

    /// Replaces packet and fields as [`Skb::new`] would, keeping the allocation.
    pub fn reset(&mut self, data: &[u8]) {
        self.frame.reset(data);
        self.fields = SkbFields::new();
        self.set(SkbField::Ifindex, 1);
        self.set(SkbField::WireLen, data.len() as u32);
        self.fields.set_protocol(protocol(data));
    }

    /// What becomes of the buffer when a device receives it, from the wire or from a program that put it there: the protocol is that of the bytes, a tag
    /// in the data lies beside them (unless one does already), and the device is where it came in by. What programs wrote into `cb` stays.
    pub fn receive(&mut self, ifindex: u32) {
        let mut data = self.frame.data();
        let mut kind = protocol(data);
        let untagged: Vec<u8>;
        if (kind == 0x8100 || kind == 0x88a8)
            && self.vlan().is_none()
            && let Some(tci) = data.get(14..).and_then(|b| b.first_chunk::<2>())
            && data.len() >= TAGGED
        {
            self.fields.set_vlan(Some((kind, u16::from_be_bytes(*tci))));
            untagged = [&data[..12], &data[16..]].concat();
            self.frame.reset(&untagged);
            data = &untagged;
            kind = protocol(data);
        }
        self.fields.set_protocol(kind);
        let length = data.len() as u32;
        self.set(SkbField::WireLen, length);
        self.set(SkbField::Ifindex, ifindex);
        self.set(SkbField::IngressIfindex, ifindex);
    }

    /// The packet's bytes as they are on the wire: with the tag that lies beside the data.
    pub fn wire(&self) -> Vec<u8> {
        let mut bytes = self.data().to_vec();
        if let Some((kind, tci)) = self.vlan()
            && bytes.len() >= 12
        {
            let [a, b] = kind.to_be_bytes();
            let [c, d] = tci.to_be_bytes();
            bytes.splice(12..12, [a, b, c, d]);
        }
        bytes
    }

    /// The packet's bytes; a VLAN tag beside the data is not among them.
    pub fn data(&self) -> &[u8] {
        self.frame.data()
    }

    /// Value of a field.
    pub fn get(&self, field: SkbField) -> u32 {
        self.fields.word(field as usize)
    }

    /// Sets a field.
    pub fn set(&mut self, field: SkbField, value: u32) {
        self.fields.set_word(field as usize, value);
    }

    /// The VLAN tag beside the data: protocol (0x8100, 0x88a8) and control information.
    pub fn vlan(&self) -> Option<(u16, u16)> {
        self.fields.vlan()
    }

    /// The outer header that goes with the packet: set by a program, or by who received it from a tunnel.
    pub fn tunnel_key(&self) -> Option<TunnelKey> {
        self.fields.known.tunnel
    }

    /// Gives the packet an outer header, as a device does that received it from a tunnel.
    pub fn set_tunnel_key(&mut self, key: Option<TunnelKey>) {
        self.fields.known.tunnel = key;
    }

    /// Puts a VLAN tag beside the data, or takes it away.
    pub fn set_vlan(&mut self, tag: Option<(u16, u16)>) {
        self.fields.set_vlan(tag);
    }
}

impl SkbFields {
    fn new() -> SkbFields {
        SkbFields {
            bytes: [0; BYTES],
            known: Known::default(),
        }
    }

    /// Loads `width` bytes at `offset` if the kernel's rules for tc programs allow it.
    pub(crate) fn load(&self, offset: usize, width: usize) -> Option<Loaded> {
        let number = |value: u64| {
            let shifted = value >> (8 * (offset & 3));
            Loaded::Number(if width < 4 {
                shifted & ((1 << (8 * width)) - 1)
            } else {
                shifted
            })
        };
        Some(match readable(offset, width)? {
            Field::Data => Loaded::Data,
            Field::End => Loaded::End,
            Field::Meta => Loaded::Meta,
            Field::Length => Loaded::Length {
                shift: 8 * (offset & 3) as u32,
                bits: 8 * width as u32,
            },
            Field::Vlan => number(u64::from(self.vlan().is_some())),
            // No packet here belongs to a socket.
            Field::Socket => Loaded::Number(0),
            Field::Number => {
                let mut bytes = [0; 8];
                let from = self.bytes.get(offset..offset + width)?;
                for (to, from) in bytes.iter_mut().zip(from) {
                    *to = *from;
                }
                Loaded::Number(u64::from_le_bytes(bytes))
            }
        })
    }

    /// Stores bytes where the kernel's rules for tc programs allow it.
    pub(crate) fn store(&mut self, offset: usize, bytes: &[u8]) -> Option<()> {
        let width = bytes.len();
        if !writable(offset, width) {
            return None;
        }
        self.bytes
            .get_mut(offset..offset + width)?
            .copy_from_slice(bytes);
        Some(())
    }

    pub(crate) fn vlan(&self) -> Option<(u16, u16)> {
        let proto = (self.word(VLAN_PROTO) as u16).swap_bytes();
        (proto != 0).then(|| (proto, self.word(VLAN_TCI) as u16))
    }

    pub(crate) fn set_vlan(&mut self, tag: Option<(u16, u16)>) {
        let (proto, tci) = tag.unwrap_or_default();
        self.set_word(VLAN_PROTO, u32::from(proto.swap_bytes()));
        self.set_word(VLAN_TCI, u32::from(tci));
    }

    /// Another field of the buffer.
    pub(crate) fn get(&self, field: SkbField) -> u32 {
        self.word(field as usize)
    }

    pub(crate) fn set(&mut self, field: SkbField, value: u32) {
        self.set_word(field as usize, value);
    }

    /// The protocol in host byte order.
    pub(crate) fn protocol(&self) -> u16 {
        (self.word(SkbField::Protocol as usize) as u16).swap_bytes()
    }

    pub(crate) fn set_protocol(&mut self, protocol: u16) {
        let protocol = u32::from(protocol.swap_bytes());
        self.set_word(SkbField::Protocol as usize, protocol);
    }

    fn word(&self, offset: usize) -> u32 {
        let bytes = self.bytes.get(offset..).and_then(|b| b.first_chunk::<4>());
        bytes.map_or(0, |b| u32::from_le_bytes(*b))
    }

    fn set_word(&mut self, offset: usize, value: u32) {
        if let Some(bytes) = self.bytes.get_mut(offset..offset + 4) {
            bytes.copy_from_slice(&value.to_le_bytes());
        }
    }
}

/// What `eth_type_trans` makes of a frame: its EtherType, or for IEEE 802.3 frames 802.2 (4) or Novell's (1).
pub(crate) fn protocol(data: &[u8]) -> u16 {
    let word = |at: usize| {
        let bytes = data.get(at..).and_then(|b| b.first_chunk::<2>());
        bytes.map(|b| u16::from_be_bytes(*b))
    };
    match word(12) {
        Some(kind) if kind >= 0x600 => kind,
        _ if word(14) == Some(0xffff) => 1,
        _ => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_their_widths() {
        let mut skb = Skb::new(&[0; 60]);
        skb.set(SkbField::Mark, 0x0102_0304);
        skb.set_vlan(Some((0x8100, 7)));
        let f = &mut skb.fields;
        assert_eq!(f.load(8, 4), Some(Loaded::Number(0x0102_0304)));
        assert_eq!(f.load(8, 2), Some(Loaded::Number(0x0304)));
        assert_eq!(f.load(11, 1), Some(Loaded::Number(1)));
        assert_eq!(f.load(9, 2), None);
        assert_eq!(f.load(8, 8), None);
        assert_eq!(f.load(0, 4), Some(Loaded::Length { shift: 0, bits: 32 }));
        assert_eq!(
            f.load(2, 2),
            Some(Loaded::Length {
                shift: 16,
                bits: 16
            })
        );
        assert_eq!(f.load(21, 1), Some(Loaded::Number(0)));
        assert_eq!(f.load(181, 1), None);
        assert_eq!(f.load(184, 8), Some(Loaded::Number(0)));
        assert_eq!(f.load(20, 4), Some(Loaded::Number(1)));
        assert_eq!(f.load(24, 4), Some(Loaded::Number(7)));
        assert_eq!(f.load(28, 4), Some(Loaded::Number(0x0081)));
        assert_eq!(f.load(76, 4), Some(Loaded::Data));
        assert_eq!(f.load(76, 8), None);
        assert_eq!(f.load(152, 8), Some(Loaded::Number(0)));
        assert_eq!(f.load(152, 4), None);
        assert_eq!(f.load(88, 4), None);
        assert_eq!(f.load(192, 4), None);
        assert_eq!(f.store(48, &[1; 8]), Some(()));
        assert_eq!(f.load(48, 8), Some(Loaded::Number(0x0101_0101_0101_0101)));
        assert_eq!(f.store(64, &[1; 8]), None);
        assert_eq!(f.store(8, &[1; 2]), None);
        assert_eq!(f.store(16, &[1; 4]), None);
    }

    #[test]
    fn a_tag_goes_beside_the_data_where_a_device_receives_it_and_back_on_the_wire() {
        let mut frame = [0u8; 60];
        frame[12..18].copy_from_slice(&[0x81, 0, 0x20, 7, 0x08, 0]);
        let mut skb = Skb::new(&frame);
        skb.set(SkbField::Cb1, 5);
        skb.receive(9);
        assert_eq!(skb.vlan(), Some((0x8100, 0x2007)));
        assert_eq!(skb.data().len(), 56);
        assert_eq!(skb.get(SkbField::Protocol), 0x0008);
        assert_eq!(skb.get(SkbField::IngressIfindex), 9);
        assert_eq!(skb.get(SkbField::Cb1), 5);
        assert_eq!(skb.wire(), frame);
        // One lies there already: another stays where it is.
        let mut twice = Skb::new(&frame);
        twice.set_vlan(Some((0x88a8, 3)));
        twice.receive(9);
        assert_eq!((twice.data().len(), twice.vlan()), (60, Some((0x88a8, 3))));
        let mut short = Skb::new(&frame[..19]);
        short.receive(9);
        assert_eq!((short.data().len(), short.vlan()), (19, None));
    }

    #[test]
    fn protocols_of_frames() {
        let mut frame = [0u8; 20];
        frame[12..14].copy_from_slice(&[0x08, 0]);
        assert_eq!(protocol(&frame), 0x800);
        frame[12..14].copy_from_slice(&[0, 40]);
        assert_eq!(protocol(&frame), 4);
        frame[14..16].copy_from_slice(&[0xff, 0xff]);
        assert_eq!(protocol(&frame), 1);
    }
}
