//! Numbers of DNS by the names that rules and records have for them, and limits.

/// Records of one message that are looked at: more than any message has room for with names of their own.
pub(super) const MOST_RECORDS: usize = 8192;
/// Records of one section that are logged.
pub(super) const MOST_LOGGED: usize = 1024;

/// Operations.
pub(super) const OPCODES: &[(&str, u64)] = &[
    ("QUERY", 0),
    ("IQUERY", 1),
    ("STATUS", 2),
    ("NOTIFY", 4),
    ("UPDATE", 5),
];

/// Results.
pub(super) const RCODES: &[(&str, u64)] = &[
    ("NOERROR", 0),
    ("FORMERR", 1),
    ("SERVFAIL", 2),
    ("NXDOMAIN", 3),
    ("NOTIMP", 4),
    ("REFUSED", 5),
    ("YXDOMAIN", 6),
    ("YXRRSET", 7),
    ("NXRRSET", 8),
    ("NOTAUTH", 9),
    ("NOTZONE", 10),
    ("BADVERS", 16),
    ("BADKEY", 17),
    ("BADTIME", 18),
    ("BADMODE", 19),
    ("BADNAME", 20),
    ("BADALG", 21),
    ("BADTRUNC", 22),
];

/// Types of records.
pub(super) const RRTYPES: &[(&str, u64)] = &[
    ("A", 1),
    ("NS", 2),
    ("MD", 3),
    ("MF", 4),
    ("CNAME", 5),
    ("SOA", 6),
    ("MB", 7),
    ("MG", 8),
    ("MR", 9),
    ("NULL", 10),
    ("WKS", 11),
    ("PTR", 12),
    ("HINFO", 13),
    ("MINFO", 14),
    ("MX", 15),
    ("TXT", 16),
    ("RP", 17),
    ("AFSDB", 18),
    ("AAAA", 28),
    ("LOC", 29),
    ("SRV", 33),
    ("NAPTR", 35),
    ("CERT", 37),
    ("DNAME", 39),
    ("OPT", 41),
    ("DS", 43),
    ("SSHFP", 44),
    ("RRSIG", 46),
    ("NSEC", 47),
    ("DNSKEY", 48),
    ("NSEC3", 50),
    ("NSEC3PARAM", 51),
    ("TLSA", 52),
    ("SVCB", 64),
    ("HTTPS", 65),
    ("SPF", 99),
    ("TKEY", 249),
    ("TSIG", 250),
    ("AXFR", 252),
    ("ANY", 255),
    ("URI", 256),
];
