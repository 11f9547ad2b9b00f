//! Names of procedures, operations and results of NFS (RFC 1094, 1813, 7530, 8881).

const V2: [&str; 18] = [
    "NULL",
    "GETATTR",
    "SETATTR",
    "ROOT",
    "LOOKUP",
    "READLINK",
    "READ",
    "WRITECACHE",
    "WRITE",
    "CREATE",
    "REMOVE",
    "RENAME",
    "LINK",
    "SYMLINK",
    "MKDIR",
    "RMDIR",
    "READDIR",
    "STATFS",
];

const V3: [&str; 22] = [
    "NULL",
    "GETATTR",
    "SETATTR",
    "LOOKUP",
    "ACCESS",
    "READLINK",
    "READ",
    "WRITE",
    "CREATE",
    "MKDIR",
    "SYMLINK",
    "MKNOD",
    "REMOVE",
    "RMDIR",
    "RENAME",
    "LINK",
    "READDIR",
    "READDIRPLUS",
    "FSSTAT",
    "FSINFO",
    "PATHCONF",
    "COMMIT",
];

/// From 3 on.
const V4: [&str; 56] = [
    "ACCESS",
    "CLOSE",
    "COMMIT",
    "CREATE",
    "DELEGPURGE",
    "DELEGRETURN",
    "GETATTR",
    "GETFH",
    "LINK",
    "LOCK",
    "LOCKT",
    "LOCKU",
    "LOOKUP",
    "LOOKUPP",
    "NVERIFY",
    "OPEN",
    "OPENATTR",
    "OPEN_CONFIRM",
    "OPEN_DOWNGRADE",
    "PUTFH",
    "PUTPUBFH",
    "PUTROOTFH",
    "READ",
    "READDIR",
    "READLINK",
    "REMOVE",
    "RENAME",
    "RENEW",
    "RESTOREFH",
    "SAVEFH",
    "SECINFO",
    "SETATTR",
    "SETCLIENTID",
    "SETCLIENTID_CONFIRM",
    "VERIFY",
    "WRITE",
    "RELEASE_LOCKOWNER",
    "BACKCHANNEL_CTL",
    "BIND_CONN_TO_SESSION",
    "EXCHANGE_ID",
    "CREATE_SESSION",
    "DESTROY_SESSION",
    "FREE_STATEID",
    "GET_DIR_DELEGATION",
    "GETDEVICEINFO",
    "GETDEVICELIST",
    "LAYOUTCOMMIT",
    "LAYOUTGET",
    "LAYOUTRETURN",
    "SECINFO_NO_NAME",
    "SEQUENCE",
    "SET_SSV",
    "TEST_STATEID",
    "WANT_DELEGATION",
    "DESTROY_CLIENTID",
    "RECLAIM_COMPLETE",
];

/// A procedure, of version 4 an operation.
pub(super) fn procedure(version: u32, number: u32) -> String {
    let number_of = number as usize;
    let known = match version {
        2 => V2.get(number_of),
        3 => V3.get(number_of),
        // A call of version 4 without an operation.
        _ if number < 3 => return if number == 0 { "NULL" } else { "COMPOUND" }.to_owned(),
        _ => V4.get(number_of.wrapping_sub(3)),
    };
    known.map_or_else(|| number.to_string(), |name| (*name).to_owned())
}

pub(super) fn status(number: u32) -> String {
    let name = match number {
        0 => "OK",
        1 => "ERR_PERM",
        2 => "ERR_NOENT",
        5 => "ERR_IO",
        6 => "ERR_NXIO",
        13 => "ERR_ACCES",
        17 => "ERR_EXIST",
        18 => "ERR_XDEV",
        19 => "ERR_NODEV",
        20 => "ERR_NOTDIR",
        21 => "ERR_ISDIR",
        22 => "ERR_INVAL",
        27 => "ERR_FBIG",
        28 => "ERR_NOSPC",
        30 => "ERR_ROFS",
        31 => "ERR_MLINK",
        63 => "ERR_NAMETOOLONG",
        66 => "ERR_NOTEMPTY",
        69 => "ERR_DQUOT",
        70 => "ERR_STALE",
        71 => "ERR_REMOTE",
        10_001 => "ERR_BADHANDLE",
        10_002 => "ERR_NOT_SYNC",
        10_003 => "ERR_BAD_COOKIE",
        10_004 => "ERR_NOTSUPP",
        10_005 => "ERR_TOOSMALL",
        10_006 => "ERR_SERVERFAULT",
        10_007 => "ERR_BADTYPE",
        10_008 => "ERR_JUKEBOX",
        other => return format!("UNKNOWN ({other})"),
    };
    name.to_owned()
}

/// How a client proves who it is.
pub(super) fn flavor(number: u32) -> String {
    let name = match number {
        0 => "NULL",
        1 => "UNIX",
        2 => "SHORT",
        3 => "DH",
        6 => "GSS",
        other => return format!("UNKNOWN ({other})"),
    };
    name.to_owned()
}
