//! Who is at the other end of a Unix socket: the groups that the process had when it connected. rustix and tokio give user and primary group.

#![expect(unsafe_code, reason = "getsockopt takes raw pointers")]

use std::io;
use std::mem;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Linux allows a process this many groups (NGROUPS_MAX).
const GROUPS_MAX: usize = 65_536;

/// Supplementary group IDs of the process that connected to a Unix socket, as they were then (SO_PEERGROUPS, Linux 4.13).
///
/// # Errors
/// It is no connected Unix socket.
pub fn peer_groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let mut bytes = (groups.len() * mem::size_of::<libc::gid_t>()) as libc::socklen_t;
        // SAFETY: `groups` has `bytes` bytes, and the kernel writes no more than that; both pointers live across the call.
        let ret = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };
        let count = bytes as usize / mem::size_of::<libc::gid_t>();
        if ret == 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        // Too small: the kernel says how much it needs.
        if error.raw_os_error() != Some(libc::ERANGE) || count <= groups.len() || count > GROUPS_MAX
        {
            return Err(error);
        }
        groups.resize(count, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_groups_of_a_peer_are_those_of_its_process() {
        let (one, _other) = UnixStream::pair().expect("a pair");
        let mut groups = peer_groups(one.as_fd()).expect("groups");
        groups.sort_unstable();
        let status = std::fs::read_to_string("/proc/self/status").expect("readable");
        let line = status.lines().find_map(|line| line.strip_prefix("Groups:"));
        let words = line.expect("a line").split_whitespace();
        let mut expected: Vec<u32> = words.map(|word| word.parse().expect("a number")).collect();
        expected.sort_unstable();
        assert_eq!(groups, expected);
        let file = std::fs::File::open("/dev/null").expect("a file");
        assert!(peer_groups(file.as_fd()).is_err(), "no socket");
    }
}
