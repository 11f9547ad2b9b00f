//! Helpers that read and write text: trace lines, `snprintf`, numbers.

use super::{bad, fault};
use crate::errno::{EINVAL, ERANGE};
use crate::format::format_trace;
use crate::interp::{Registers, Run, Step};

/// Most lines the trace keeps; later ones are counted as printed and dropped.
const TRACE_LINES: usize = 10_000;
/// Most arguments of `snprintf` and `trace_vprintk`.
const ARGUMENTS_MAX: usize = 12;
/// Longest format that is read.
const FORMAT_MAX: usize = 1024;
/// Characters of a number that count; the kernel has a buffer of 64 with the final zero.
const DIGITS_MAX: usize = 63;

impl Run<'_> {
    pub(super) fn trace_printk(&mut self, regs: &Registers) -> Step<u64> {
        let format = self.memory.bytes(regs[1], regs[2] as u32 as usize);
        let format = format.map_err(fault)?.to_vec();
        self.trace(&format, &[regs[3], regs[4], regs[5]])
    }

    pub(super) fn trace_vprintk(&mut self, regs: &Registers) -> Step<u64> {
        let format = self.memory.bytes(regs[1], regs[2] as u32 as usize);
        let format = format.map_err(fault)?.to_vec();
        match self.arguments(regs[3], regs[4])? {
            Some(arguments) => self.trace(&format, &arguments),
            None => Ok(EINVAL as u64),
        }
    }

    pub(super) fn snprintf(&mut self, regs: &Registers) -> Step<u64> {
        let room = regs[2] as u32 as usize;
        let Some(arguments) = self.arguments(regs[4], regs[5])? else {
            return Ok(EINVAL as u64);
        };
        let format = self.text_at(regs[3], FORMAT_MAX);
        let Some(text) = self.formatted(&format, &arguments) else {
            return Ok(EINVAL as u64);
        };
        let target = self.memory.bytes_mut(regs[1], room).map_err(fault)?;
        // What does not fit is cut; the last byte written is zero.
        let kept = text.len().min(room.saturating_sub(1));
        if let Some((head, rest)) = target.split_at_mut_checked(kept) {
            head.copy_from_slice(text.as_bytes().get(..kept).unwrap_or_default());
            if let Some(end) = rest.first_mut() {
                *end = 0;
            }
        }
        Ok(text.len() as u64 + 1)
    }

    /// `bpf_strtol` (105) and `bpf_strtoul`: characters read, the number where r4 points.
    pub(super) fn parse_number(&mut self, number: u32, regs: &Registers) -> Step<u64> {
        let length =
            usize::try_from(regs[2]).map_err(|_| bad(number, 2, regs, "length is too large"))?;
        let text = self.memory.bytes(regs[1], length).map_err(fault)?.to_vec();
        self.memory.bytes(regs[4], 8).map_err(fault)?;
        let parsed = parse(&text, regs[3]).and_then(|(magnitude, negative, read)| {
            let value = match (number == 105, negative) {
                (true, true) if magnitude <= 1 << 63 => magnitude.wrapping_neg(),
                (true, false) if magnitude < 1 << 63 => magnitude,
                (true, _) => return Err(ERANGE),
                (false, true) => return Err(EINVAL),
                (false, false) => magnitude,
            };
            Ok((value, read))
        });
        match parsed {
            Ok((value, read)) => {
                self.memory
                    .store::<8>(regs[4], value.to_le_bytes())
                    .map_err(fault)?;
                Ok(read as u64)
            }
            Err(errno) => {
                self.memory.store::<8>(regs[4], [0; 8]).map_err(fault)?;
                Ok(errno as u64)
            }
        }
    }

    fn trace(&mut self, format: &[u8], arguments: &[u64]) -> Step<u64> {
        let Some(text) = self.formatted(format, arguments) else {
            return Ok(EINVAL as u64);
        };
        let length = text.len() as u64;
        if self.scratch.trace.len() < TRACE_LINES {
            self.scratch.trace.push(text);
        }
        Ok(length)
    }

    fn formatted(&self, format: &[u8], arguments: &[u64]) -> Option<String> {
        format_trace(format, arguments, |address| self.text_at(address, 128))
    }

    /// Bytes up to the first zero, the end of what can be read, or `most`.
    fn text_at(&self, address: u64, most: usize) -> Vec<u8> {
        let bytes = (0..most as u64).map_while(|i| self.memory.probe(address.wrapping_add(i)));
        bytes.take_while(|b| *b != 0).collect()
    }

    /// An array of 64-bit arguments; nothing for a length the kernel refuses.
    fn arguments(&mut self, address: u64, length: u64) -> Step<Option<Vec<u64>>> {
        let length = length as u32 as usize;
        if !length.is_multiple_of(8) || length > ARGUMENTS_MAX * 8 {
            return Ok(None);
        }
        let bytes = self.memory.bytes(address, length).map_err(fault)?;
        let words = bytes.as_chunks::<8>().0;
        Ok(Some(words.iter().map(|w| u64::from_le_bytes(*w)).collect()))
    }
}

/// Magnitude, sign, and number of characters read.
fn parse(text: &[u8], flags: u64) -> Result<(u64, bool, usize), i64> {
    if text.is_empty() || !matches!(flags, 0 | 8 | 10 | 16) {
        return Err(EINVAL);
    }
    let space = |b: &u8| matches!(b, b' ' | b'\t'..=b'\r' | 0xa0);
    let mut at = text.iter().take_while(|b| space(b)).count();
    let negative = text.get(at) == Some(&b'-');
    at += usize::from(negative);
    let rest = text.get(at..).unwrap_or_default();
    if rest.is_empty() {
        return Err(EINVAL);
    }
    let rest = rest.get(..DIGITS_MAX).unwrap_or(rest);
    let digit = |i: usize, base: u32| rest.get(i).and_then(|b| char::from(*b).to_digit(base));
    let hexadecimal = rest.first() == Some(&b'0') && matches!(rest.get(1), Some(b'x' | b'X'));
    let base = match flags as u32 {
        0 if hexadecimal && digit(2, 16).is_some() => 16,
        0 if rest.first() == Some(&b'0') => 8,
        0 => 10,
        base => base,
    };
    let mut read = if base == 16 && hexadecimal { 2 } else { 0 };
    let (start, mut value, mut overflow) = (read, 0u64, false);
    while let Some(d) = digit(read, base) {
        let next = value
            .checked_mul(u64::from(base))
            .and_then(|v| v.checked_add(u64::from(d)));
        overflow |= next.is_none();
        value = next.unwrap_or(u64::MAX);
        read += 1;
    }
    if overflow {
        return Err(ERANGE);
    }
    if read == start {
        return Err(EINVAL);
    }
    Ok((value, negative, at + read))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_the_kernel_reads_them() {
        assert_eq!(parse(b"  -42x", 0), Ok((42, true, 5)));
        assert_eq!(parse(b"0x1F", 0), Ok((31, false, 4)));
        assert_eq!(parse(b"0x1F", 16), Ok((31, false, 4)));
        assert_eq!(parse(b"017", 0), Ok((15, false, 3)));
        assert_eq!(parse(b"0", 0), Ok((0, false, 1)));
        assert_eq!(parse(b"0xg", 0), Ok((0, false, 1)));
        assert_eq!(
            parse(b"18446744073709551615", 10),
            Ok((u64::MAX, false, 20))
        );
        assert_eq!(parse(b"18446744073709551616", 10), Err(ERANGE));
        for bad in [&b""[..], b"-", b"x", b"  "] {
            assert_eq!(parse(bad, 0), Err(EINVAL));
        }
        assert_eq!(parse(b"1", 2), Err(EINVAL));
    }
}
