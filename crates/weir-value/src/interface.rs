//! Names of network interfaces, as the kernel takes them.

use crate::Invalid;

/// Longest name (`IFNAMSIZ` without its final zero), in bytes.
const MOST: usize = 15;

/// The rule of the kernel (`dev_valid_name`): 1 to 15 bytes, no slash, colon or white space, not `.` or `..`.
///
/// # Errors
/// No interface can have that name.
pub fn interface(text: &str) -> Result<String, Invalid> {
    // What isspace() of the kernel takes for white space: as Latin-1, where 0xa0 is one; it is part of characters of UTF-8 that are not.
    let is_odd = |b: u8| matches!(b, b'/' | b':' | b' ' | 9..=13);
    let is_name = (1..=MOST).contains(&text.len())
        && !text.bytes().any(is_odd)
        && text != "."
        && text != "..";
    match is_name {
        true => Ok(text.to_owned()),
        false => Err(Invalid::new(
            "invalid interface name",
            text,
            "1 to 15 bytes without slash, colon or white space",
        )),
    }
}
