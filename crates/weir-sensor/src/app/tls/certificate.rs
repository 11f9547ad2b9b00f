//! X.509 certificates: the fields that rules and logs name, in the text form that users know. DER is walked, nothing is verified.

use crate::app::text::{colons, string};

/// A certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Certificate {
    /// `C=US, O=..., CN=...`, in the order encoded.
    pub(crate) subject: String,
    pub(crate) issuer: String,
    /// Hexadecimal with colons.
    pub(crate) serial: String,
    /// Seconds since 1970; `None`: not as times are written.
    pub(crate) not_before: Option<i64>,
    pub(crate) not_after: Option<i64>,
    pub(crate) names: Vec<Vec<u8>>,
}

/// Tag, content, and what follows.
fn tlv(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    // Tags of several bytes are not used by certificates.
    if tag & 0x1f == 0x1f {
        return None;
    }
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let n = usize::from(first & 0x7f);
        if n == 0 || n > 4 {
            return None;
        }
        let (digits, rest) = rest.split_at_checked(n)?;
        (digits.iter().fold(0, |l, b| l << 8 | usize::from(*b)), rest)
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

fn expect(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, content, rest) = tlv(bytes)?;
    (found == tag).then_some((content, rest))
}

impl Certificate {
    /// Reads a certificate; an event if there is none. Names are read as far as they go: what is wrong in one hides nothing else.
    pub(crate) fn parse(der: &[u8]) -> Result<Certificate, &'static str> {
        if der.is_empty() {
            return Err("certificate_invalid_length");
        }
        if der.first() != Some(&0x30) || der.get(1) == Some(&0x80) {
            return Err("certificate_invalid_der");
        }
        let (certificate, _) = expect(der, 0x30).ok_or("invalid_certificate")?;
        let (tbs, _) = expect(certificate, 0x30).ok_or("certificate_invalid_der")?;
        let mut rest = tbs;
        if let Some((0xa0, _, after)) = tlv(rest) {
            rest = after;
        }
        let (serial, rest) = expect(rest, 2).ok_or("certificate_invalid_serial")?;
        let (_, rest) = expect(rest, 0x30).ok_or("certificate_invalid_algorithmidentifier")?;
        let (issuer, rest) = expect(rest, 0x30).ok_or("certificate_invalid_x509name")?;
        let (validity, rest) = expect(rest, 0x30).ok_or("certificate_invalid_date")?;
        let (subject, rest) = expect(rest, 0x30).ok_or("certificate_invalid_x509name")?;
        let from = tlv(validity);
        let not_before = from.and_then(|(tag, text, _)| time(tag, text));
        let until = from.and_then(|(_, _, after)| tlv(after));
        let not_after = until.and_then(|(tag, text, _)| time(tag, text));
        let mut names = Vec::new();
        // The key, then what is optional.
        let mut rest = expect(rest, 0x30).map_or(&[][..], |(_, after)| after);
        while let Some((tag, content, after)) = tlv(rest) {
            if tag == 0xa3 {
                names = alternative_names(content).unwrap_or_default();
            }
            rest = after;
        }
        Ok(Certificate {
            subject: name(subject),
            issuer: name(issuer),
            serial: colons(serial, true),
            not_before,
            not_after,
            names,
        })
    }
}

/// A distinguished name as text, up to where it cannot be read.
fn name(rdns: &[u8]) -> String {
    let mut out = String::new();
    // What ends early has said what it says.
    let _ = append_name(rdns, &mut out);
    out
}

fn append_name(mut rdns: &[u8], out: &mut String) -> Option<()> {
    while !rdns.is_empty() {
        let (mut set, after) = expect(rdns, 0x31)?;
        let mut first = true;
        while !set.is_empty() {
            let (attribute, next) = expect(set, 0x30)?;
            let (oid, value) = expect(attribute, 6)?;
            let (tag, value, _) = tlv(value)?;
            if !out.is_empty() {
                out.push_str(if first { ", " } else { " + " });
            }
            first = false;
            out.push_str(&attribute_name(oid));
            out.push('=');
            // BMPString has two bytes a character.
            if tag == 0x1e {
                let units: Vec<u16> = value
                    .as_chunks()
                    .0
                    .iter()
                    .map(|pair| u16::from_be_bytes(*pair))
                    .collect();
                out.push_str(&String::from_utf16_lossy(&units));
            } else {
                out.push_str(&string(value));
            }
            set = next;
        }
        rdns = after;
    }
    Some(())
}

fn attribute_name(oid: &[u8]) -> String {
    let known = match oid {
        [0x55, 4, n] => match n {
            3 => "CN",
            4 => "surname",
            5 => "serialNumber",
            6 => "C",
            7 => "L",
            8 => "ST",
            9 => "streetAddress",
            10 => "O",
            11 => "OU",
            12 => "title",
            13 => "description",
            15 => "businessCategory",
            17 => "postalCode",
            41 => "name",
            42 => "givenName",
            43 => "initials",
            44 => "generationQualifier",
            46 => "dnQualifier",
            _ => "",
        },
        b"\x2a\x86\x48\x86\xf7\x0d\x01\x09\x01" => "Email",
        b"\x2a\x86\x48\x86\xf7\x0d\x01\x09\x02" => "unstructuredName",
        b"\x09\x92\x26\x89\x93\xf2\x2c\x64\x01\x19" => "DC",
        b"\x09\x92\x26\x89\x93\xf2\x2c\x64\x01\x01" => "uid",
        b"\x2b\x06\x01\x04\x01\x82\x37\x3c\x02\x01\x03" => "msJurisdictionCountry",
        b"\x2b\x06\x01\x04\x01\x82\x37\x3c\x02\x01\x02" => "msJurisdictionStateOrProvince",
        _ => "",
    };
    if !known.is_empty() {
        return known.to_string();
    }
    // Numbers with dots.
    let mut words = Vec::new();
    let mut value: u64 = 0;
    for b in oid {
        value = value.wrapping_shl(7) | u64::from(b & 0x7f);
        if b & 0x80 == 0 {
            if words.is_empty() {
                let first = (value / 40).min(2);
                words.push(first.to_string());
                value -= first * 40;
            }
            words.push(value.to_string());
            value = 0;
        }
    }
    format!("OID({})", words.join("."))
}

/// UTCTime or GeneralizedTime as seconds since 1970.
fn time(tag: u8, text: &[u8]) -> Option<i64> {
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let number = |at: usize, n: usize| -> Option<i64> {
        let part = text.get(at..at + n)?;
        std::str::from_utf8(part).ok()?.parse().ok()
    };
    let (year, at) = match (tag, digits) {
        (0x17, 10..) => {
            let year = number(0, 2)?;
            (if year < 50 { 2000 + year } else { 1900 + year }, 2)
        }
        (0x18, 12..) => (number(0, 4)?, 4),
        _ => return None,
    };
    let (month, day) = (number(at, 2)?, number(at + 2, 2)?);
    let (hour, minute) = (number(at + 4, 2)?, number(at + 6, 2)?);
    let second = if digits >= at + 10 {
        number(at + 8, 2)?
    } else {
        0
    };
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    Some(days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
}

/// Days from 1970-01-01 in the Gregorian calendar; years begin in March, so that the leap day is the last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let of_era = y - era * 400;
    let of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// `2024-05-06T07:08:09`.
pub(crate) fn date(seconds: i64) -> String {
    let day = seconds.div_euclid(86_400);
    let second = seconds.rem_euclid(86_400);
    let z = day + 719_468;
    let era = z.div_euclid(146_097);
    let of_era = z - era * 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let m = (5 * of_year + 2) / 153;
    let d = of_year - (153 * m + 2) / 5 + 1;
    let month = if m < 10 { m + 3 } else { m - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{d:02}T{:02}:{:02}:{:02}",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

fn alternative_names(extensions: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut list, _) = expect(extensions, 0x30)?;
    let mut out = Vec::new();
    while !list.is_empty() {
        let (extension, next) = expect(list, 0x30)?;
        list = next;
        let (oid, mut rest) = expect(extension, 6)?;
        if oid != [0x55, 0x1d, 0x11] {
            continue;
        }
        if let Some((1, _, after)) = tlv(rest) {
            rest = after;
        }
        let (value, _) = expect(rest, 4)?;
        let (mut names, _) = expect(value, 0x30)?;
        while let Some((tag, name, after)) = tlv(names) {
            match (tag, name.len()) {
                (0x81 | 0x82 | 0x86, _) => out.push(name.to_vec()),
                (0x87, 4) => {
                    let a: [u8; 4] = name.try_into().ok()?;
                    out.push(std::net::Ipv4Addr::from(a).to_string().into_bytes());
                }
                (0x87, 16) => {
                    let a: [u8; 16] = name.try_into().ok()?;
                    out.push(std::net::Ipv6Addr::from(a).to_string().into_bytes());
                }
                _ => {}
            }
            names = after;
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_written() {
        for (tag, text, date_) in [
            (0x17, &b"700101000000Z"[..], "1970-01-01T00:00:00"),
            (0x17, b"240229235959Z", "2024-02-29T23:59:59"),
            (0x17, b"491231000000Z", "2049-12-31T00:00:00"),
            (0x18, b"20510301010203Z", "2051-03-01T01:02:03"),
            (0x17, b"2001020304Z", "2020-01-02T03:04:00"),
        ] {
            assert_eq!(date(time(tag, text).unwrap()), date_);
        }
        assert_eq!(time(0x17, b"241329000000Z"), None);
        assert_eq!(time(0x17, b"x"), None);
    }

    #[test]
    fn names_are_text() {
        let name_ = b"\x31\x0b\x30\x09\x06\x03\x55\x04\x06\x13\x02US\x31\x0d\x30\x0b\x06\x03\x55\x04\x03\x0c\x04a\xff.b\x31\x09\x30\x07\x06\x03\x2a\x03\x04\x0c\x00";
        assert_eq!(name(name_), "C=US, CN=a\\xff.b, OID(1.2.3.4)=");
        // What cannot be read hides nothing before it.
        assert_eq!(name(&name_[..name_.len() - 2]), "C=US, CN=a\\xff.b");
        assert_eq!(name(&name_[..10]), "");
    }
}
