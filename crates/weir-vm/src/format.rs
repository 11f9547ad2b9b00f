//! The text of `bpf_trace_printk` and `bpf_snprintf`: the conversions the kernel accepts there.
//!
//! Owns formatting only; reading strings through pointers is the caller's. Invariant: output is at most a kilobyte.

/// Longest line in bytes.
const LINE_MAX: usize = 1024;

/// Formats like the kernel: `%d %i %u %x %X %p %s %c %%` with `l`, `ll`, a width, and the flags `0`, `-`, `+` and space.
/// Nothing for a format the kernel refuses (another conversion, or more than the arguments given).
pub(crate) fn format_trace(
    format: &[u8],
    arguments: &[u64],
    string_at: impl Fn(u64) -> Vec<u8>,
) -> Option<String> {
    let mut out = String::new();
    let mut input = format.iter().copied().take_while(|b| *b != 0).peekable();
    let mut arguments = arguments.iter().copied();
    while let Some(byte) = input.next() {
        if byte != b'%' {
            out.push(char::from(byte));
            continue;
        }
        let (mut zero, mut left, mut sign) = (false, false, "");
        while let Some(flag) = input.next_if(|b| matches!(b, b'0' | b'-' | b'+' | b' ')) {
            match flag {
                b'0' => zero = true,
                b'-' => left = true,
                b'+' => sign = "+",
                _ if sign.is_empty() => sign = " ",
                _ => {}
            }
        }
        let mut width = 0;
        while let Some(digit) = input.next_if(u8::is_ascii_digit) {
            width = (width * 10 + usize::from(digit - b'0')).min(LINE_MAX);
        }
        let mut wide = false;
        while input.next_if_eq(&b'l').is_some() {
            wide = true;
        }
        let conversion = input.next()?;
        if conversion == b'%' {
            out.push('%');
            continue;
        }
        let value = arguments.next()?;
        let unsigned = if wide { value } else { u64::from(value as u32) };
        let signed = if wide {
            value as i64
        } else {
            i64::from(value as i32)
        };
        let text = match conversion {
            b'd' | b'i' if signed >= 0 => format!("{sign}{signed}"),
            b'd' | b'i' => signed.to_string(),
            b'u' => unsigned.to_string(),
            b'x' => format!("{unsigned:x}"),
            b'X' => format!("{unsigned:X}"),
            b'p' => format!("{value:016x}"),
            b'c' => char::from(value as u8).to_string(),
            b's' => String::from_utf8_lossy(&string_at(value)).into_owned(),
            _ => return None,
        };
        let padding = width.saturating_sub(text.len());
        if left {
            out.push_str(&text);
            out.extend(std::iter::repeat_n(' ', padding));
        } else if zero && !matches!(conversion, b's' | b'c') {
            let (sign, digits) = text.split_at(usize::from(text.starts_with(['-', '+', ' '])));
            out.push_str(sign);
            out.extend(std::iter::repeat_n('0', padding));
            out.push_str(digits);
        } else {
            out.extend(std::iter::repeat_n(' ', padding));
            out.push_str(&text);
        }
        if out.len() > LINE_MAX {
            break;
        }
    }
    while out.len() > LINE_MAX {
        out.pop();
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(format: &str, arguments: &[u64]) -> Option<String> {
        format_trace(format.as_bytes(), arguments, |_| b"str".to_vec())
    }

    #[test]
    fn conversions() {
        assert_eq!(text("a %d%%\0b", &[-5i64 as u64]).as_deref(), Some("a -5%"));
        assert_eq!(
            text("%u %llx %s", &[u64::MAX, 1 << 40, 0]).as_deref(),
            Some("4294967295 10000000000 str")
        );
        assert_eq!(
            text("%08x|%4d", &[0xab, 7]).as_deref(),
            Some("000000ab|   7")
        );
        assert_eq!(
            text("%-4d|%+d|% d|%+05d", &[7, 7, 7, 7]).as_deref(),
            Some("7   |+7| 7|+0007")
        );
        assert_eq!(text("%5s|%-5s|", &[0, 0]).as_deref(), Some("  str|str  |"));
        assert_eq!(text("%n", &[1]), None);
        assert_eq!(text("%d", &[]), None);
        assert_eq!(text("%", &[1]), None);
    }
}
