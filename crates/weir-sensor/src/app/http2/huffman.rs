//! The Huffman code of HPACK (RFC 7541, appendix B), from the lengths of its words: the code is canonical, so they say all of it.

use std::sync::LazyLock;

/// The length of the longest word, bits.
const LONGEST: usize = 30;
/// Stands for the end of a string, which is never sent.
const END: u16 = 256;

/// The symbols by the length of their words, and of one length by value.
#[rustfmt::skip]
const SYMBOLS: [u16; 257] = [
    48, 49, 50, 97, 99, 101, 105, 111, 115, 116,
    32, 37, 45, 46, 47, 51, 52, 53, 54, 55, 56, 57, 61, 65, 95, 98, 100, 102, 103, 104, 108, 109, 110, 112, 114, 117,
    58, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 89, 106, 107, 113, 118, 119, 120, 121, 122,
    38, 42, 44, 59, 88, 90,
    33, 34, 40, 41, 63,
    39, 43, 124,
    35, 62,
    0, 36, 64, 91, 93, 126,
    94, 125,
    60, 96, 123,
    92, 195, 208,
    128, 130, 131, 162, 184, 194, 224, 226,
    153, 161, 167, 172, 176, 177, 179, 209, 216, 217, 227, 229, 230,
    129, 132, 133, 134, 136, 146, 154, 156, 160, 163, 164, 169, 170, 173, 178, 181, 185, 186, 187, 189, 190, 196, 198, 228, 232, 233,
    1, 135, 137, 138, 139, 140, 141, 143, 147, 149, 150, 151, 152, 155, 157, 158, 165, 166, 168, 174, 175, 180, 182, 183, 188, 191, 197, 231, 239,
    9, 142, 144, 145, 148, 159, 171, 206, 215, 225, 236, 237,
    199, 207, 234, 235,
    192, 193, 200, 201, 202, 205, 210, 213, 218, 219, 238, 240, 242, 243, 255,
    203, 204, 211, 212, 214, 221, 222, 223, 241, 244, 245, 246, 247, 248, 250, 251, 252, 253, 254,
    2, 3, 4, 5, 6, 7, 8, 11, 12, 14, 15, 16, 17, 18, 19, 20, 21, 23, 24, 25, 26, 27, 28, 29, 30, 31, 127, 220, 249,
    10, 13, 22, END,
];

/// How many words have each length.
#[rustfmt::skip]
const COUNTS: [u8; LONGEST + 1] = [
    0, 0, 0, 0, 0, 10, 26, 32, 6, 0, 5, 3, 2, 6, 2, 3, 0, 0, 0, 3, 8, 13, 26, 29, 12, 4, 15, 19, 29, 0, 4,
];

/// Words of one length: the first of them, how many there are, and where their symbols stand in [`SYMBOLS`].
#[derive(Clone, Copy, Default)]
struct Row {
    first: u32,
    count: u32,
    at: usize,
}

struct Code {
    rows: [Row; LONGEST + 1],
    /// By the next eight bits: symbol and length of a word that is not longer; length 0: it is.
    short: [(u8, u8); 256],
}

static CODE: LazyLock<Code> = LazyLock::new(|| {
    let mut rows = [Row::default(); LONGEST + 1];
    let mut short = [(0, 0); 256];
    let (mut word, mut at) = (0u32, 0);
    for (length, (row, count)) in rows.iter_mut().zip(COUNTS).enumerate() {
        word <<= 1;
        *row = Row {
            first: word,
            count: u32::from(count),
            at,
        };
        for symbol in SYMBOLS.iter().skip(at).take(usize::from(count)) {
            if (1..=8).contains(&length) {
                // All bytes that begin with the word.
                let from = (word as usize) << (8 - length);
                for slot in short.iter_mut().skip(from).take(1 << (8 - length)) {
                    *slot = (*symbol as u8, length as u8);
                }
            }
            word += 1;
        }
        at += usize::from(count);
    }
    Code { rows, short }
});

/// Appends the decoded string; `None`: it is not valid (an unknown code, or wrong padding; RFC 7541 section 5.2).
pub(super) fn decode(bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let code = &*CODE;
    // The bits that were not used yet, at the right.
    let (mut bits, mut count) = (0u64, 0u32);
    let mut bytes = bytes.iter();
    loop {
        while count <= 32
            && let Some(byte) = bytes.next()
        {
            bits = bits << 8 | u64::from(*byte);
            count += 8;
        }
        if count == 0 {
            return Some(());
        }
        let next = match count.checked_sub(8) {
            Some(rest) => bits >> rest & 0xff,
            None => bits << (8 - count) & 0xff,
        };
        let (symbol, length) = code.short.get(next as usize).copied()?;
        if length > 0 && u32::from(length) <= count {
            out.push(symbol);
            count -= u32::from(length);
            bits &= (1 << count) - 1;
            continue;
        }
        let word = (9..=LONGEST as u32).find_map(|length| {
            let word = (bits >> count.checked_sub(length)?) as u32;
            let row = code.rows.get(length as usize)?;
            let place = word.checked_sub(row.first).filter(|p| *p < row.count)?;
            Some((length, *SYMBOLS.get(row.at + place as usize)?))
        });
        match word {
            Some((_, END)) => return None,
            Some((length, symbol)) => {
                out.push(symbol as u8);
                count -= length;
                bits &= (1 << count) - 1;
            }
            // The beginning of the longest word, less than a byte of it, fills the last byte.
            None => return (count < 8 && bits == (1 << count) - 1).then_some(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        decode(bytes, &mut out).map(|()| out)
    }

    #[test]
    fn the_code_is_whole() {
        // By Kraft's equation no word is missing, and none is the beginning of another.
        let sum: u64 = (1..=LONGEST)
            .map(|length| u64::from(COUNTS[length]) << (LONGEST - length))
            .sum();
        assert_eq!(sum, 1 << LONGEST);
        let mut all = SYMBOLS;
        all.sort_unstable();
        assert!(all.iter().copied().eq(0..=256));
    }

    #[test]
    fn strings_of_the_standard_are_read() {
        // RFC 7541, appendix C.4 and C.6.
        for (bytes, text) in [
            (
                &b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff"[..],
                &b"www.example.com"[..],
            ),
            (b"\xa8\xeb\x10\x64\x9c\xbf", b"no-cache"),
            (b"\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f", b"custom-key"),
            (b"\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf", b"custom-value"),
            (b"\x64\x02", b"302"),
            (b"\xae\xc3\x77\x1a\x4b", b"private"),
            (
                b"\x94\xe7\x82\x1d\xd7\xf2\xe6\xc7\xb3\x35\xdf\xdf\xcd\x5b\x39\x60\xd5\xaf\x27\x08\x7f\x36\x72\xc1\xab\x27\x0f\xb5\x29\x1f\x95\x87\x31\x60\x65\xc0\x03\xed\x4e\xe5\xb1\x06\x3d\x50\x07",
                b"foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
            ),
            (b"", b""),
        ] {
            assert_eq!(read(bytes).as_deref(), Some(text));
        }
    }

    #[test]
    fn every_symbol_is_read() {
        for symbol in 0..=255u16 {
            let at = SYMBOLS.iter().position(|s| *s == symbol).unwrap();
            let row = |length: &usize| {
                let row = CODE.rows[*length];
                (row.at..row.at + row.count as usize).contains(&at)
            };
            let length = (1..=LONGEST).find(row).unwrap();
            let word = CODE.rows[length].first + (at - CODE.rows[length].at) as u32;
            let bytes = length.div_ceil(8) * 8;
            let padded = ((u64::from(word) + 1) << (bytes - length)) - 1;
            let bytes = &padded.to_be_bytes()[8 - bytes / 8..];
            assert_eq!(read(bytes), Some(vec![symbol as u8]), "{symbol}");
        }
    }

    #[test]
    fn what_is_no_code_is_none() {
        for bytes in [
            // The end of a string, a byte of padding, padding of zeros.
            &b"\xff\xff\xff\xff"[..],
            b"\xff\xff\xff\xfc",
            b"\x64\x02\xff",
        ] {
            assert_eq!(read(bytes), None, "{bytes:?}");
        }
    }
}
