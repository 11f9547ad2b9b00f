//! What a file is, by its first bytes, in the words that libmagic has for it: a table of the types that rules and analysts ask for. What it does not know is text or `data`.

use super::bytes::{be16, be32, le16, le32};

/// So many bytes decide.
pub(crate) const HEAD: usize = 4096;

/// What begins so is called so.
const BEGINS: &[(&[u8], &str)] = &[
    (b"7z\xbc\xaf\x27\x1c", "7-zip archive data, version 0.4"),
    (b"BZh", "bzip2 compressed data"),
    (b"\xfd7zXZ\0", "XZ compressed data"),
    (b"\x28\xb5\x2f\xfd", "Zstandard compressed data (v0.8+)"),
    (b"\x04\x22\x4d\x18", "LZ4 compressed data (v1.4+)"),
    (b"\x1f\x9d", "compress'd data"),
    (b"Rar!\x1a\x07\x01\0", "RAR archive data, v5"),
    (b"Rar!\x1a\x07\0", "RAR archive data, v4"),
    (b"MSCF\0\0\0\0", "Microsoft Cabinet archive data"),
    (b"ITSF", "MS Windows HtmlHelp Data"),
    (
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
        "Composite Document File V2 Document",
    ),
    (b"{\\rtf", "Rich Text Format data"),
    (b"%!PS-Adobe", "PostScript document text"),
    (b"\xff\xd8\xff", "JPEG image data"),
    (b"BM", "PC bitmap"),
    (b"II*\0", "TIFF image data, little-endian"),
    (b"MM\0*", "TIFF image data, big-endian"),
    (b"\0\0\x01\0", "MS Windows icon resource"),
    (b"8BPS", "Adobe Photoshop Image"),
    (b"ID3", "Audio file with ID3 version 2"),
    (b"OggS", "Ogg data"),
    (b"fLaC", "FLAC audio bitstream data"),
    (b"\x1a\x45\xdf\xa3", "WebM"),
    (b"FLV\x01", "Macromedia Flash Video"),
    (b"SQLite format 3\0", "SQLite 3.x database"),
    (b"dex\n", "Dalvik dex file"),
    (b"\0asm", "WebAssembly (wasm) binary module"),
    (b"wOFF", "Web Open Font Format"),
    (b"wOF2", "Web Open Font Format (Version 2)"),
    (
        b"\xd4\xc3\xb2\xa1",
        "pcap capture file, microsecond ts (little-endian)",
    ),
    (
        b"\xa1\xb2\xc3\xd4",
        "pcap capture file, microsecond ts (big-endian)",
    ),
    (b"\x0a\x0d\x0d\x0a", "pcapng capture file"),
    (b"-----BEGIN CERTIFICATE-----", "PEM certificate"),
    (b"-----BEGIN RSA PRIVATE KEY-----", "PEM RSA private key"),
    (b"-----BEGIN PGP MESSAGE-----", "PGP message"),
    (
        b"-----BEGIN PGP PUBLIC KEY BLOCK-----",
        "PGP public key block Public-Key (old)",
    ),
    (b"!<arch>\ndebian", "Debian binary package (format 2.0)"),
    (b"!<arch>\n", "current ar archive"),
    (b"\xed\xab\xee\xdb", "RPM v3.0 bin"),
    (b"Cr24", "Google Chrome extension"),
    (b"\xcf\xfa\xed\xfe", "Mach-O 64-bit executable"),
    (b"\xce\xfa\xed\xfe", "Mach-O executable"),
    (b"L\0\0\0\x01\x14\x02\0", "MS Windows shortcut"),
    (b"regf", "MS Windows registry file, NT/2000 or above"),
    (b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "Microsoft ASF"),
];

/// What a file is.
pub(crate) fn magic(head: &[u8]) -> String {
    if head.is_empty() {
        return "empty".to_owned();
    }
    if head.len() < 2 {
        return "very short file (no magic)".to_owned();
    }
    if let Some(found) = special(head) {
        return found;
    }
    if let Some((_, name)) = BEGINS.iter().find(|(begin, _)| head.starts_with(begin)) {
        return (*name).to_owned();
    }
    text(head).unwrap_or_else(|| "data".to_owned())
}

/// Types of which more is said than a name.
fn special(head: &[u8]) -> Option<String> {
    if let Some(rest) = head.strip_prefix(b"%PDF-") {
        let version = ascii(rest, |b| b.is_ascii_digit() || *b == b'.');
        return Some(format!("PDF document, version {version}"));
    }
    if head.starts_with(b"\x89PNG\r\n\x1a\n") {
        return png(head).or(Some("PNG image data".to_owned()));
    }
    if head.starts_with(b"GIF8") {
        let version = ascii(head.get(3..6)?, u8::is_ascii_alphanumeric);
        let size = le16(head, 6).zip(le16(head, 8));
        let size = size.map_or(String::new(), |(w, h)| format!(", {w} x {h}"));
        return Some(format!("GIF image data, version {version}{size}"));
    }
    if head.starts_with(b"\xff\xd8\xff") {
        return match head.get(6..10) {
            Some(b"JFIF") => {
                let (major, minor) = (head.get(11)?, head.get(12)?);
                Some(format!("JPEG image data, JFIF standard {major}.{minor:02}"))
            }
            Some(b"Exif") => Some("JPEG image data, Exif standard".to_owned()),
            _ => None,
        };
    }
    if head.starts_with(b"MZ") {
        return Some(windows(head));
    }
    if head.starts_with(b"\x7fELF") {
        return elf(head);
    }
    if head.starts_with(b"PK\x03\x04") {
        return Some(zip(head));
    }
    if head.starts_with(b"PK\x05\x06") {
        return Some("Zip archive data (empty)".to_owned());
    }
    if head.starts_with(b"\x1f\x8b") {
        let method = if head.get(2) == Some(&8) {
            ""
        } else {
            ", reserved method"
        };
        return Some(format!("gzip compressed data{method}"));
    }
    if let [first @ (b'F' | b'C' | b'Z'), b'W', b'S', version, ..] = head {
        let packed = if *first == b'F' { "" } else { " (compressed)" };
        return Some(format!("Macromedia Flash data{packed}, version {version}"));
    }
    if head.starts_with(b"\xca\xfe\xba\xbe") {
        // A fat binary counts its parts where a class has its version.
        return match (be16(head, 4), be16(head, 6)) {
            (Some(minor), Some(major)) if major >= 45 => {
                Some(format!("compiled Java class data, version {major}.{minor}"))
            }
            _ => Some("Mach-O universal binary".to_owned()),
        };
    }
    if head.starts_with(b"RIFF") {
        let kind = match head.get(8..12)? {
            b"WAVE" => "WAVE audio",
            b"AVI " => "AVI",
            b"WEBP" => "Web/P image",
            _ => "unknown",
        };
        return Some(format!("RIFF (little-endian) data, {kind}"));
    }
    if head.get(4..8) == Some(b"ftyp") {
        let brand = ascii(head.get(8..12)?, |b| b.is_ascii_graphic());
        return Some(match brand.as_str() {
            "qt" => "ISO Media, Apple QuickTime movie".to_owned(),
            "avif" => "ISO Media, AVIF Image".to_owned(),
            "heic" => "ISO Media, HEIF Image".to_owned(),
            _ => "ISO Media, MP4 Base Media v1".to_owned(),
        });
    }
    if let [0xff, second, ..] = head
        && matches!(second, 0xe2 | 0xe3 | 0xf2 | 0xf3 | 0xfa | 0xfb)
    {
        return Some("MPEG ADTS, layer III".to_owned());
    }
    if head.get(257..262) == Some(b"ustar") {
        let kind = if head.get(263) == Some(&b' ') {
            " (GNU)"
        } else {
            ""
        };
        return Some(format!("POSIX tar archive{kind}"));
    }
    if let Some(rest) = head.strip_prefix(b"{\\rtf") {
        let version = ascii(rest, u8::is_ascii_digit);
        return Some(format!("Rich Text Format data, version {version}"));
    }
    None
}

/// The bytes at the beginning that are so.
fn ascii(bytes: &[u8], is: impl Fn(&u8) -> bool) -> String {
    let bytes = bytes.iter().take(16).take_while(|b| is(b));
    bytes.map(|b| char::from(*b)).collect()
}

fn png(head: &[u8]) -> Option<String> {
    let (width, height) = (be32(head, 16)?, be32(head, 20)?);
    let [depth, color, _, _, laced, ..] = *head.get(24..)? else {
        return None;
    };
    let color = match color {
        0 => "grayscale",
        2 => "/color RGB",
        3 => " colormap",
        4 => " gray+alpha",
        6 => "/color RGBA",
        _ => return None,
    };
    let blank = if color == "grayscale" { " " } else { "" };
    let laced = if laced == 1 {
        "interlaced"
    } else {
        "non-interlaced"
    };
    Some(format!(
        "PNG image data, {width} x {height}, {depth}-bit{blank}{color}, {laced}"
    ))
}

/// A program of DOS or of Windows.
fn windows(head: &[u8]) -> String {
    let described = || {
        let at = le32(head, 0x3c)? as usize;
        let header = head.get(at..)?;
        if header.starts_with(b"NE") {
            return Some("MS-DOS executable, NE for MS Windows 3.x".to_owned());
        }
        if !header.starts_with(b"PE\0\0") {
            return None;
        }
        let machine = match le16(header, 4)? {
            0x14c => "Intel i386",
            0x8664 => "x86-64",
            0x1c0 | 0x1c4 => "ARMv7 Thumb",
            0xaa64 => "Aarch64",
            _ => "unknown processor",
        };
        let (sections, flags) = (le16(header, 6)?, le16(header, 22)?);
        let wide = match le16(header, 24) {
            Some(0x20b) => "+",
            _ => "",
        };
        let library = if flags & 0x2000 != 0 { " (DLL)" } else { "" };
        let version = le16(header, 72).zip(le16(header, 74));
        let version = version.map_or(String::new(), |(a, b)| format!(" {a}.{b:02}"));
        let system = match le16(header, 92) {
            Some(1) => " (native)",
            Some(2) => " (GUI)",
            Some(3) => " (console)",
            Some(10..=12) => " (EFI)",
            _ => "",
        };
        Some(format!(
            "PE32{wide} executable{library} for MS Windows{version}{system}, {machine}, {sections} sections"
        ))
    };
    described().unwrap_or_else(|| "MS-DOS executable".to_owned())
}

fn elf(head: &[u8]) -> Option<String> {
    let (class, order) = (head.get(4)?, head.get(5)?);
    let width = match class {
        1 => "32-bit",
        2 => "64-bit",
        _ => return Some("ELF (invalid class)".to_owned()),
    };
    let little = *order == 1;
    let read = if little { le16 } else { be16 };
    let kind = match read(head, 16)? {
        1 => "relocatable",
        2 => "executable",
        3 => "shared object",
        4 => "core file",
        _ => "no file type",
    };
    let machine = match read(head, 18)? {
        3 => "Intel 80386",
        8 => "MIPS",
        20 => "PowerPC or cisco 4500",
        40 => "ARM",
        62 => "x86-64",
        183 => "ARM aarch64",
        243 => "UCB RISC-V",
        _ => "unknown machine",
    };
    let order = if little { "LSB" } else { "MSB" };
    let system = match head.get(7)? {
        0 => " (SYSV)",
        3 => " (GNU/Linux)",
        9 => " (FreeBSD)",
        _ => "",
    };
    Some(format!(
        "ELF {width} {order} {kind}, {machine}, version 1{system}"
    ))
}

/// An archive, or a document that is one.
fn zip(head: &[u8]) -> String {
    let name = |at: usize| {
        let length = usize::from(le16(head, at + 26)?);
        head.get(at + 30..at + 30 + length)
    };
    let first = name(0).unwrap_or_default();
    let has = |part: &[u8]| head.windows(part.len()).any(|w| w == part);
    if first == b"mimetype" {
        let kinds: [(&[u8], &str); 4] = [
            (b"application/epub+zip", "EPUB document"),
            (b"opendocument.text", "OpenDocument Text"),
            (b"opendocument.spreadsheet", "OpenDocument Spreadsheet"),
            (b"opendocument.presentation", "OpenDocument Presentation"),
        ];
        if let Some((_, kind)) = kinds.iter().find(|(part, _)| has(part)) {
            return (*kind).to_owned();
        }
    }
    if first == b"[Content_Types].xml"
        || first.starts_with(b"_rels/")
        || first.starts_with(b"docProps")
    {
        let kinds: [(&[u8], &str); 3] = [
            (b"word/", "Microsoft Word 2007+"),
            (b"xl/", "Microsoft Excel 2007+"),
            (b"ppt/", "Microsoft PowerPoint 2007+"),
        ];
        let kind = kinds.iter().find(|(part, _)| has(part));
        return kind.map_or("Microsoft OOXML", |(_, kind)| kind).to_owned();
    }
    if first.starts_with(b"META-INF/") {
        return "Java archive data (JAR)".to_owned();
    }
    if first == b"AndroidManifest.xml" {
        return "Android package (APK), with AndroidManifest.xml".to_owned();
    }
    let version = le16(head, 4).unwrap_or(20) & 0xff;
    let method = match le16(head, 8) {
        Some(0) => "store",
        Some(8) => "deflate",
        Some(12) => "bzip2",
        Some(14) => "lzma",
        Some(99) => "AES Encrypted",
        _ => "unknown",
    };
    format!(
        "Zip archive data, at least v{}.{} to extract, compression method={method}",
        version / 10,
        version % 10
    )
}

/// Text: how it is encoded, how its lines end, and what kind of text it is.
fn text(head: &[u8]) -> Option<String> {
    let encoding = encoding(head)?;
    let from = head.iter().position(|b| !b.is_ascii_whitespace());
    let body = head.get(from.unwrap_or(0)..).unwrap_or_default();
    let begins = |part: &str| {
        let begin = body.get(..part.len());
        begin.is_some_and(|b| b.eq_ignore_ascii_case(part.as_bytes()))
    };
    let lines = match (head.windows(2).any(|w| w == b"\r\n"), head.contains(&b'\n')) {
        (true, _) => ", with CRLF line terminators",
        (false, true) => "",
        (false, false) => ", with no line terminators",
    };
    let kind = if begins("<?xml") {
        let version = body.windows(9).position(|w| w == b"version=\"");
        let version = version.and_then(|at| body.get(at + 9..));
        let version = version.map_or(String::new(), |v| ascii(v, |b| *b != b'"'));
        let picture = if contains(body, b"<svg") {
            "SVG Scalable Vector Graphics image"
        } else {
            ""
        };
        match picture {
            "" => format!("XML {version} document, "),
            picture => return Some(picture.to_owned()),
        }
    } else if [
        "<!doctype html",
        "<html",
        "<head",
        "<title",
        "<body",
        "<script",
    ]
    .iter()
    .any(|tag| begins(tag))
    {
        "HTML document, ".to_owned()
    } else if begins("#!") {
        let line = body.split(|b| *b == b'\n').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        match () {
            () if line.contains("python") => "Python script, ".to_owned(),
            () if line.contains("perl") => "Perl script text executable, ".to_owned(),
            () if line.contains("bash") => "Bourne-Again shell script, ".to_owned(),
            () if line.contains("sh") => "POSIX shell script, ".to_owned(),
            () => "a script, ".to_owned(),
        }
    } else if begins("<?php") {
        "PHP script, ".to_owned()
    } else if begins("@echo off") {
        "DOS batch file, ".to_owned()
    } else if serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok()
        && matches!(body.first(), Some(b'{' | b'['))
    {
        return Some("JSON text data".to_owned());
    } else {
        String::new()
    };
    Some(format!("{kind}{encoding} text{lines}"))
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|w| w == part)
}

fn encoding(head: &[u8]) -> Option<&'static str> {
    if head.starts_with(b"\xff\xfe") {
        return Some("Unicode text, UTF-16, little-endian");
    }
    if head.starts_with(b"\xfe\xff") {
        return Some("Unicode text, UTF-16, big-endian");
    }
    let control = |b: &u8| *b < 0x20 && !matches!(b, 7..=13 | 27) || *b == 0x7f;
    if head.iter().any(control) {
        return None;
    }
    if head.is_ascii() {
        return Some("ASCII");
    }
    if head.starts_with(b"\xef\xbb\xbf") {
        return Some("Unicode text, UTF-8 (with BOM)");
    }
    // The last letter may be cut.
    let utf8 = match std::str::from_utf8(head) {
        Ok(_) => true,
        Err(e) => e.error_len().is_none() && e.valid_up_to() + 4 > head.len(),
    };
    match utf8 {
        true => Some("Unicode text, UTF-8"),
        false if head.iter().any(|b| (0x80..0xa0).contains(b)) => Some("Non-ISO extended-ASCII"),
        false => Some("ISO-8859"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_called_as_libmagic_calls_them() {
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x10\0\0\0\x20\x08\x06\0\0\0";
        let mut pe = vec![0_u8; 400];
        pe[..2].copy_from_slice(b"MZ");
        pe[0x3c] = 0x80;
        pe[0x80..0x84].copy_from_slice(b"PE\0\0");
        pe[0x84..0x86].copy_from_slice(&0x14c_u16.to_le_bytes());
        pe[0x86] = 5;
        pe[0x80 + 24..0x80 + 26].copy_from_slice(&0x10b_u16.to_le_bytes());
        pe[0x80 + 72] = 4;
        pe[0x80 + 92] = 2;
        for (head, expected) in [
            (&b""[..], "empty"),
            (b"x", "very short file (no magic)"),
            (b"%PDF-1.5\n%\xe2\xe3", "PDF document, version 1.5"),
            (
                png,
                "PNG image data, 16 x 32, 8-bit/color RGBA, non-interlaced",
            ),
            (
                b"GIF89a\x01\0\x01\0\x80",
                "GIF image data, version 89a, 1 x 1",
            ),
            (
                b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01\x01",
                "JPEG image data, JFIF standard 1.01",
            ),
            (
                &pe,
                "PE32 executable for MS Windows 4.00 (GUI), Intel i386, 5 sections",
            ),
            (b"MZ\0\0", "MS-DOS executable"),
            (
                b"PK\x03\x04\x14\0\0\0\x08\0",
                "Zip archive data, at least v2.0 to extract, compression method=deflate",
            ),
            (b"hello\n", "ASCII text"),
            (b"hello", "ASCII text, with no line terminators"),
            (b"a\r\nb\r\n", "ASCII text, with CRLF line terminators"),
            ("gr\u{fc}n\n".as_bytes(), "Unicode text, UTF-8 text"),
            (b"<html>\n", "HTML document, ASCII text"),
            (b"<?xml version=\"1.0\"?>\n", "XML 1.0 document, ASCII text"),
            (b"{\"a\": 1}", "JSON text data"),
            (b"#!/bin/sh\n", "POSIX shell script, ASCII text"),
            (b"\0\x01\x02\x03\x04", "data"),
        ] {
            assert_eq!(magic(head), expected, "{head:?}");
        }
        // No beginning of anything panics.
        for all in [
            &pe[..],
            png,
            b"PK\x03\x04\x14\0\0\0\x08\0",
            b"\x7fELF\x02\x01\x01\0",
        ] {
            for n in 0..=all.len().min(200) {
                assert!(!magic(&all[..n]).is_empty());
            }
        }
    }
}
