//! Names of numbers of EtherNet/IP and CIP, as rules and records have them.

/// Numbers and their names.
type Names = &'static [(&'static str, u64)];

pub(super) const COMMANDS: Names = &[
    ("nop", 0),
    ("list_services", 4),
    ("list_identity", 0x63),
    ("list_interfaces", 0x64),
    ("register_session", 0x65),
    ("unregister_session", 0x66),
    ("send_rrdata", 0x6f),
    ("send_unit_data", 0x70),
    ("indicate_status", 0x72),
    ("cancel", 0x73),
];

pub(super) const STATUSES: Names = &[
    ("success", 0),
    ("invalid_cmd", 1),
    ("no_resources", 2),
    ("incorrect_data", 3),
    ("invalid_session", 0x64),
    ("invalid_length", 0x65),
    ("unsupported_prot_rev", 0x69),
    ("encap_header_error", 0x6a),
];

pub(super) const SERVICES: Names = &[
    ("Get Attributes All", 0x01),
    ("Set Attributes All", 0x02),
    ("Get Attribute List", 0x03),
    ("Set Attribute List", 0x04),
    ("Reset", 0x05),
    ("Start", 0x06),
    ("Stop", 0x07),
    ("Create", 0x08),
    ("Delete", 0x09),
    ("Multiple Service Packet", 0x0a),
    ("Apply Attributes", 0x0d),
    ("Get Attribute Single", 0x0e),
    ("Set Attribute Single", 0x10),
    ("Find Next Object Instance", 0x11),
    ("Restore", 0x15),
    ("Save", 0x16),
    ("No Operation", 0x17),
    ("Get Member", 0x18),
    ("Set Member", 0x19),
    ("Insert Member", 0x1a),
    ("Remove Member", 0x1b),
    ("Group Sync", 0x1c),
];

pub(super) const CLASSES: Names = &[
    ("Identity", 0x01),
    ("Message Router", 0x02),
    ("DeviceNet", 0x03),
    ("Assembly", 0x04),
    ("Connection", 0x05),
    ("Connection Manager", 0x06),
    ("Register", 0x07),
    ("Discrete Input Point", 0x08),
    ("Discrete Output Point", 0x09),
    ("Analog Input Point", 0x0a),
    ("Analog Output Point", 0x0b),
    ("Parameter", 0x0f),
    ("Parameter Group", 0x10),
    ("Discrete Input Group", 0x1d),
    ("Discrete Output Group", 0x1e),
    ("File", 0x37),
    ("Symbol", 0x6b),
    ("Template", 0x6c),
    ("Connection Configuration", 0xf3),
    ("Port", 0xf4),
    ("TCP/IP Interface", 0xf5),
    ("Ethernet Link", 0xf6),
];

pub(super) const GENERAL: Names = &[
    ("Success", 0x00),
    ("Connection failure", 0x01),
    ("Resource unavailable", 0x02),
    ("Invalid parameter value", 0x03),
    ("Path segment error", 0x04),
    ("Path destination unknown", 0x05),
    ("Partial transfer", 0x06),
    ("Connection lost", 0x07),
    ("Service not supported", 0x08),
    ("Invalid attribute value", 0x09),
    ("Attribute list error", 0x0a),
    ("Already in requested mode/state", 0x0b),
    ("Object state conflict", 0x0c),
    ("Object already exists", 0x0d),
    ("Attribute not settable", 0x0e),
    ("Privilege violation", 0x0f),
    ("Device state conflict", 0x10),
    ("Reply data too large", 0x11),
    ("Fragmentation of a primitive value", 0x12),
    ("Not enough data", 0x13),
    ("Attribute not supported", 0x14),
    ("Too much data", 0x15),
    ("Object does not exist", 0x16),
    ("Embedded service error", 0x1e),
    ("Vendor specific error", 0x1f),
    ("Invalid parameter", 0x20),
];

pub(super) const DEVICES: Names = &[
    ("Generic Device", 0x00),
    ("AC Drive", 0x02),
    ("Motor Overload", 0x03),
    ("Limit Switch", 0x04),
    ("Inductive Proximity Switch", 0x05),
    ("Photoelectric Sensor", 0x06),
    ("General Purpose Discrete I/O", 0x07),
    ("Resolver", 0x09),
    ("Communications Adapter", 0x0c),
    ("Programmable Logic Controller", 0x0e),
    ("Position Controller", 0x10),
    ("DC Drive", 0x13),
    ("Contactor", 0x15),
    ("Motor Starter", 0x16),
    ("Human-Machine Interface", 0x18),
    ("Pneumatic Valve(s)", 0x1b),
    ("CIP Motion Drive", 0x25),
    ("Managed Ethernet Switch", 0x2c),
];

/// The name of a number, or the number.
pub(super) fn name(names: Names, number: u64) -> String {
    let known = names.iter().find(|(_, n)| *n == number);
    known.map_or_else(|| number.to_string(), |(name, _)| (*name).to_owned())
}
