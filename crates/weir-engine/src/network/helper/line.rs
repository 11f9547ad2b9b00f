//! The lines of the north socket: one JSON object each. docs/networks.md shows them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// What a controller asks.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Request {
    /// Which functions there are.
    List {},
    /// From now on, packets of a function.
    Listen { network: String, function: String },
    /// Sends a frame out by an interface.
    Send {
        network: String,
        function: String,
        interface: String,
        data: String,
    },
    /// Makes packets of a flow that come in by an interface stay in the kernel.
    Install {
        network: String,
        function: String,
        interface: String,
        flow: Flow,
        action: Action,
        by: Option<String>,
        #[serde(default)]
        idle: u32,
    },
    /// Undoes that.
    Remove {
        network: String,
        function: String,
        interface: String,
        flow: Flow,
    },
    /// Which flows there are.
    Flows { network: String, function: String },
    /// What came in, went to the helper and came from it.
    Counters { network: String, function: String },
}

/// Exactly these packets. Ports are 0 of protocols, and of fragments, that have none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Flow {
    pub(super) protocol: u8,
    pub(super) from: IpAddr,
    pub(super) to: IpAddr,
    #[serde(default)]
    pub(super) from_port: u16,
    #[serde(default)]
    pub(super) port: u16,
}

/// What becomes of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Action {
    /// It leaves by the interface `by`.
    Forward,
    Drop,
}

/// What a controller is told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Answer {
    pub(super) ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) functions: Option<Vec<Function>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) flows: Option<Vec<Installed>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) interfaces: Option<Vec<Interface>>,
    /// Packets of the function that were lost because its controller did not keep up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lost: Option<u64>,
}

impl Answer {
    pub(super) fn done() -> Answer {
        Answer {
            ok: true,
            ..Answer::default()
        }
    }

    pub(super) fn refused(why: impl Into<String>) -> Answer {
        Answer {
            error: Some(why.into()),
            ..Answer::default()
        }
    }
}

/// A function that hands packets over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Function {
    pub(super) tenant: String,
    pub(super) network: String,
    pub(super) function: String,
    /// Somebody listens.
    pub(super) heard: bool,
}

/// A flow and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Installed {
    pub(super) interface: &'static str,
    pub(super) flow: Flow,
    pub(super) action: Action,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) by: Option<&'static str>,
    pub(super) idle: u32,
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

/// Counters of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Interface {
    pub(super) interface: &'static str,
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) dropped: u64,
    pub(super) reasons: BTreeMap<String, u64>,
    pub(super) punted: u64,
    pub(super) sent: u64,
}

/// A packet that a function handed over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Packet<'a> {
    pub(super) tenant: &'a str,
    pub(super) network: &'a str,
    pub(super) function: &'a str,
    pub(super) interface: &'a str,
    pub(super) data: String,
}

/// The line of a packet.
#[derive(Serialize)]
pub(super) struct Handed<'a> {
    pub(super) packet: Packet<'a>,
}

/// Bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits
        .map(|digit| char::from(DIGITS[usize::from(digit)]))
        .collect()
}

/// Bytes of hexadecimal digits.
pub(super) fn bytes(hex: &str) -> Option<Vec<u8>> {
    let (pairs, []) = hex.as_bytes().as_chunks::<2>() else {
        return None;
    };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    pairs
        .iter()
        .map(|[high, low]| Some((digit(*high)? << 4 | digit(*low)?) as u8))
        .collect()
}
