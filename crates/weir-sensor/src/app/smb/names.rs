//! Numbers, times and identifiers as the log has them.

use super::message::Message;
use crate::app::text::hex;

pub(super) fn command_name(m: &Message<'_>) -> String {
    const SECOND: [&str; 19] = [
        "NEGOTIATE_PROTOCOL",
        "SESSION_SETUP",
        "SESSION_LOGOFF",
        "TREE_CONNECT",
        "TREE_DISCONNECT",
        "CREATE",
        "CLOSE",
        "FLUSH",
        "READ",
        "WRITE",
        "LOCK",
        "IOCTL",
        "CANCEL",
        "KEEPALIVE",
        "FIND",
        "CHANGE_NOTIFY",
        "GET_INFO",
        "SET_INFO",
        "OPLOCK_BREAK",
    ];
    if m.version == 2 {
        return match SECOND.get(usize::from(m.command)) {
            Some(name) => format!("SMB2_COMMAND_{name}"),
            None => m.command.to_string(),
        };
    }
    let name = match m.command {
        0x00 => "CREATE_DIRECTORY",
        0x04 => "CLOSE",
        0x06 => "DELETE",
        0x07 => "RENAME",
        0x0a => "READ",
        0x0b => "WRITE",
        0x25 => "TRANS",
        0x2b => "ECHO",
        0x2e => "READ_ANDX",
        0x2f => "WRITE_ANDX",
        0x32 => "TRANS2",
        0x34 => "FIND_CLOSE2",
        0x71 => "TREE_DISCONNECT",
        0x72 => "NEGOTIATE_PROTOCOL",
        0x73 => "SESSION_SETUP_ANDX",
        0x74 => "LOGOFF_ANDX",
        0x75 => "TREE_CONNECT_ANDX",
        0x80 => "QUERY_INFO_DISK",
        0xa0 => "NT_TRANS",
        0xa2 => "NT_CREATE_ANDX",
        0xa4 => "NT_CANCEL",
        other => return format!("SMB1_COMMAND_{other:#x}"),
    };
    format!("SMB1_COMMAND_{name}")
}

pub(super) fn status_name(status: u32) -> String {
    match status {
        0 => "STATUS_SUCCESS",
        0x0000_0103 => "STATUS_PENDING",
        0x8000_0005 => "STATUS_BUFFER_OVERFLOW",
        0x8000_0006 => "STATUS_NO_MORE_FILES",
        0xc000_000d => "STATUS_INVALID_PARAMETER",
        0xc000_000f => "STATUS_NO_SUCH_FILE",
        0xc000_0011 => "STATUS_END_OF_FILE",
        0xc000_0016 => "STATUS_MORE_PROCESSING_REQUIRED",
        0xc000_0022 => "STATUS_ACCESS_DENIED",
        0xc000_0034 => "STATUS_OBJECT_NAME_NOT_FOUND",
        0xc000_003a => "STATUS_OBJECT_PATH_NOT_FOUND",
        0xc000_006d => "STATUS_LOGON_FAILURE",
        0xc000_00bb => "STATUS_NOT_SUPPORTED",
        0xc000_00cc => "STATUS_BAD_NETWORK_NAME",
        0xc000_0225 => "STATUS_NOT_FOUND",
        0x0000_0102 => "STATUS_TIMEOUT",
        0x0000_010b => "STATUS_NOTIFY_CLEANUP",
        0x0000_010c => "STATUS_NOTIFY_ENUM_DIR",
        0x8000_0002 => "STATUS_DATATYPE_MISALIGNMENT",
        0x8000_001a => "STATUS_NO_MORE_ENTRIES",
        0xc000_0001 => "STATUS_UNSUCCESSFUL",
        0xc000_0002 => "STATUS_NOT_IMPLEMENTED",
        0xc000_0003 => "STATUS_INVALID_INFO_CLASS",
        0xc000_0008 => "STATUS_INVALID_HANDLE",
        0xc000_0010 => "STATUS_INVALID_DEVICE_REQUEST",
        0xc000_0023 => "STATUS_BUFFER_TOO_SMALL",
        0xc000_0033 => "STATUS_OBJECT_NAME_INVALID",
        0xc000_0035 => "STATUS_OBJECT_NAME_COLLISION",
        0xc000_0043 => "STATUS_SHARING_VIOLATION",
        0xc000_0056 => "STATUS_DELETE_PENDING",
        0xc000_0064 => "STATUS_NO_SUCH_USER",
        0xc000_006a => "STATUS_WRONG_PASSWORD",
        0xc000_006e => "STATUS_ACCOUNT_RESTRICTION",
        0xc000_0072 => "STATUS_ACCOUNT_DISABLED",
        0xc000_009a => "STATUS_INSUFFICIENT_RESOURCES",
        0xc000_00ac => "STATUS_PIPE_NOT_AVAILABLE",
        0xc000_00ba => "STATUS_FILE_IS_A_DIRECTORY",
        0xc000_00c9 => "STATUS_NETWORK_NAME_DELETED",
        0xc000_00d0 => "STATUS_REQUEST_NOT_ACCEPTED",
        0xc000_0101 => "STATUS_DIRECTORY_NOT_EMPTY",
        0xc000_0103 => "STATUS_NOT_A_DIRECTORY",
        0xc000_0120 => "STATUS_CANCELLED",
        0xc000_0121 => "STATUS_CANNOT_DELETE",
        0xc000_0128 => "STATUS_FILE_CLOSED",
        0xc000_014b => "STATUS_PIPE_BROKEN",
        0xc000_0203 => "STATUS_USER_SESSION_DELETED",
        0xc000_0205 => "STATUS_INSUFF_SERVER_RESOURCES",
        0xc000_0234 => "STATUS_ACCOUNT_LOCKED_OUT",
        0xc000_0257 => "STATUS_PATH_NOT_COVERED",
        0xc000_035c => "STATUS_NETWORK_SESSION_EXPIRED",
        0x0000_0105 => "STATUS_MORE_ENTRIES",
        0x8000_000d => "STATUS_PARTIAL_COPY",
        0x8000_002d => "STATUS_STOPPED_ON_SYMLINK",
        0xc000_0004 => "STATUS_INFO_LENGTH_MISMATCH",
        0xc000_000e => "STATUS_NO_SUCH_DEVICE",
        0xc000_0017 => "STATUS_NO_MEMORY",
        0xc000_0021 => "STATUS_ALREADY_COMMITTED",
        0xc000_0024 => "STATUS_OBJECT_TYPE_MISMATCH",
        0xc000_0039 => "STATUS_OBJECT_PATH_INVALID",
        0xc000_003b => "STATUS_OBJECT_PATH_SYNTAX_BAD",
        0xc000_0054 => "STATUS_FILE_LOCK_CONFLICT",
        0xc000_0055 => "STATUS_LOCK_NOT_GRANTED",
        0xc000_0058 => "STATUS_UNKNOWN_REVISION",
        0xc000_005e => "STATUS_NO_LOGON_SERVERS",
        0xc000_005f => "STATUS_NO_SUCH_LOGON_SESSION",
        0xc000_0061 => "STATUS_PRIVILEGE_NOT_HELD",
        0xc000_0063 => "STATUS_USER_EXISTS",
        0xc000_0065 => "STATUS_GROUP_EXISTS",
        0xc000_0066 => "STATUS_NO_SUCH_GROUP",
        0xc000_006c => "STATUS_PASSWORD_RESTRICTION",
        0xc000_006f => "STATUS_INVALID_LOGON_HOURS",
        0xc000_0070 => "STATUS_INVALID_WORKSTATION",
        0xc000_0071 => "STATUS_PASSWORD_EXPIRED",
        0xc000_0073 => "STATUS_NONE_MAPPED",
        0xc000_007f => "STATUS_DISK_FULL",
        0xc000_00a2 => "STATUS_MEDIA_WRITE_PROTECTED",
        0xc000_00ab => "STATUS_INSTANCE_NOT_AVAILABLE",
        0xc000_00ad => "STATUS_INVALID_PIPE_STATE",
        0xc000_00ae => "STATUS_PIPE_BUSY",
        0xc000_00b0 => "STATUS_PIPE_DISCONNECTED",
        0xc000_00b1 => "STATUS_PIPE_CLOSING",
        0xc000_00b5 => "STATUS_IO_TIMEOUT",
        0xc000_00be => "STATUS_BAD_NETWORK_PATH",
        0xc000_00ca => "STATUS_NETWORK_ACCESS_DENIED",
        0xc000_00cb => "STATUS_BAD_DEVICE_TYPE",
        0xc000_00cf => "STATUS_SHARING_PAUSED",
        0xc000_00d4 => "STATUS_NOT_SAME_DEVICE",
        0xc000_00d5 => "STATUS_FILE_RENAMED",
        0xc000_00e5 => "STATUS_INTERNAL_ERROR",
        0xc000_011f => "STATUS_TOO_MANY_OPENED_FILES",
        0xc000_0133 => "STATUS_TIME_DIFFERENCE_AT_DC",
        0xc000_015b => "STATUS_LOGON_TYPE_NOT_GRANTED",
        0xc000_018b => "STATUS_NO_TRUST_SAM_ACCOUNT",
        0xc000_0192 => "STATUS_NETLOGON_NOT_STARTED",
        0xc000_0193 => "STATUS_ACCOUNT_EXPIRED",
        0xc000_0224 => "STATUS_PASSWORD_MUST_CHANGE",
        0xc000_0282 => "STATUS_NOT_A_REPARSE_POINT",
        0xc000_0388 => "STATUS_DOWNGRADE_DETECTED",
        0xc002_0003 => "RPC_NT_INVALID_BINDING",
        other => return other.to_string(),
    }
    .to_string()
}

/// What an ioctl asks for, by its number ([MS-SMB2], 2.2.31).
pub(super) fn control_name(number: u32) -> Option<&'static str> {
    Some(match number {
        0x0006_0194 => "FSCTL_DFS_GET_REFERRALS",
        0x0006_01b0 => "FSCTL_DFS_GET_REFERRALS_EX",
        0x0009_00a4 => "FSCTL_SET_REPARSE_POINT",
        0x0009_8208 => "FSCTL_FILE_LEVEL_TRIM",
        0x0011_0018 => "FSCTL_PIPE_WAIT",
        0x0011_400c => "FSCTL_PIPE_PEEK",
        0x0011_c017 => "FSCTL_PIPE_TRANSCEIVE",
        0x0014_0078 => "FSCTL_SRV_REQUEST_RESUME_KEY",
        0x0014_01d4 => "FSCTL_LMR_REQUEST_RESILIENCY",
        0x0014_01fc => "FSCTL_QUERY_NETWORK_INTERFACE_INFO",
        0x0014_0204 => "FSCTL_VALIDATE_NEGOTIATE_INFO",
        0x0014_4064 => "FSCTL_SRV_ENUMERATE_SNAPSHOTS",
        0x0014_40f2 => "FSCTL_SRV_COPYCHUNK",
        0x0014_41bb => "FSCTL_SRV_READ_HASH",
        0x0014_80f2 => "FSCTL_SRV_COPYCHUNK_WRITE",
        _ => return None,
    })
}

/// How a file is to be opened.
pub(super) const DISPOSITIONS: [&str; 6] = [
    "FILE_SUPERSEDE",
    "FILE_OPEN",
    "FILE_CREATE",
    "FILE_OPEN_IF",
    "FILE_OVERWRITE",
    "FILE_OVERWRITE_IF",
];

/// A dialect of version 2 or 3 by its number.
pub(super) fn dialect(number: [u8; 2]) -> String {
    match number {
        [0x02, 0x02] => "2.02".to_owned(),
        [0x10, 0x02] => "2.10".to_owned(),
        [0x22, 0x02] => "2.22".to_owned(),
        [0x24, 0x02] => "2.24".to_owned(),
        [0x00, 0x03] => "3.00".to_owned(),
        [0x02, 0x03] => "3.02".to_owned(),
        [0x10, 0x03] => "3.10".to_owned(),
        [0x11, 0x03] => "3.11".to_owned(),
        [0xff, 0x02] => "2.??".to_owned(),
        other => u16::from_le_bytes(other).to_string(),
    }
}

/// An identifier of a server or of an open file, as the log has it.
pub(super) fn identifier(b: &[u8]) -> String {
    format!(
        "{}-{}-{}-{}-{}{}",
        swapped(&b[0..4]),
        swapped(&b[4..6]),
        swapped(&b[6..8]),
        swapped(&b[8..10]),
        swapped(&b[10..12]),
        swapped(&b[12..16])
    )
}

/// A number whose last byte comes first.
fn swapped(b: &[u8]) -> String {
    let number: Vec<u8> = b.iter().rev().copied().collect();
    hex(&number)
}

/// Seconds since 1970 of a time of Windows; 0 for none.
pub(super) fn seconds(time: u64) -> u64 {
    (time / 10_000_000).saturating_sub(11_644_473_600)
}

/// A status of DOS: its class and its code, by the names that the protocol's documents give them without their `ERR`.
pub(super) fn dos_status(status: u32) -> (String, String) {
    let (class, code) = (status as u8, (status >> 16) as u16);
    let name = match (class, code) {
        (1, 1) => "DOS_BADFUNC",
        (1, 2) => "DOS_BADFILE",
        (1, 3) => "DOS_BADPATH",
        (1, 5) => "DOS_NOACCESS",
        (1, 6) => "DOS_BADFID",
        (1, 18) => "DOS_NOFILES",
        (2, 1) => "SRV_ERROR",
        (2, 2) => "SRV_BADPW",
        (2, 4) => "SRV_ACCESS",
        (2, 5) => "SRV_INVTID",
        (2, 6) => "SRV_INVNETNAME",
        (2, 0x5b) => "SRV_BADUID",
        _ => "",
    };
    let name = match name {
        "" => format!("UNKNOWN_{class:02x}_{code:04x}"),
        name => name.to_owned(),
    };
    (name, format!("0x{code:04x}"))
}
