//! What is written out beside logs: certificates that rules choose (`tls-store`), and the store of files (`file-store`, version 2): each by its SHA-256, in a folder by the first two digits, once however often it was seen; beside it, if that is wanted, what its
//! record says, each time.

use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use super::json;
use crate::app::{Kept, hex};
use crate::time;

/// Something that is to be written out.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    /// Packet, phase and flow that it belongs to: all is written in this order.
    pub(crate) key: (u64, u8, u64),
    /// What.
    pub(crate) what: What,
}

/// What is written out.
#[derive(Clone, Debug)]
pub(crate) enum What {
    /// A file that was transferred.
    File(StoredFile),
    /// Certificates of an end of TLS.
    Certificates(StoredCertificates),
}

/// Certificates as they are written out.
#[derive(Clone, Debug)]
pub(crate) struct StoredCertificates {
    /// Nanoseconds since 1970.
    pub(crate) time: u64,
    /// They are those of a client.
    pub(crate) client: bool,
    /// As sent, the end's own first.
    pub(crate) chain: Vec<Vec<u8>>,
    /// Who sent them, and to whom.
    pub(crate) ends: [(IpAddr, u16); 2],
    /// Protocol of IP.
    pub(crate) protocol: u8,
    /// What is said of the first one: names and values.
    pub(crate) about: Vec<(&'static str, String)>,
}

/// A file as it is written out.
#[derive(Clone, Debug)]
pub(crate) struct StoredFile {
    /// Its SHA-256.
    pub(crate) sum: Vec<u8>,
    /// Its bytes.
    pub(crate) bytes: Kept,
    /// Its record, if that is written beside it, and seconds since 1970 of it.
    pub(crate) record: Option<(u64, Vec<u8>)>,
}

/// Where files go.
#[derive(Debug)]
pub(crate) struct Store {
    folder: PathBuf,
    /// Records that were written beside files, which tells them apart.
    records: u64,
    /// Files and records that could not be written.
    pub(crate) errors: u64,
}

impl Store {
    /// Below a folder, which is made when there is something to write.
    pub(crate) fn new(folder: PathBuf) -> Store {
        Store {
            folder,
            records: 0,
            errors: 0,
        }
    }

    /// Writes a file out; what fails is counted.
    pub(crate) fn put(&mut self, stored: &StoredFile) {
        self.errors += u64::from(self.write(stored).is_err());
    }

    fn write(&mut self, stored: &StoredFile) -> io::Result<()> {
        let name = hex(&stored.sum);
        let folder = self.folder.join(name.get(..2).unwrap_or("00"));
        fs::create_dir_all(&folder)?;
        let path = folder.join(&name);
        if !path.exists() {
            whole(&path, |out| stored.bytes.write_to(out))?;
        }
        if let Some((seconds, record)) = &stored.record {
            self.records += 1;
            let name = format!("{name}.{seconds}.{}.json", self.records);
            whole(&folder.join(name), |out| out.write_all(record))?;
        }
        Ok(())
    }
}

/// Where certificates go (`tls-store`).
#[derive(Debug)]
pub(crate) struct CertificateStore {
    folder: PathBuf,
    /// Chains that were written, which tells them apart.
    count: u64,
    /// Those that could not be written.
    pub(crate) errors: u64,
}

impl CertificateStore {
    /// In a folder, which is made when there is something to write.
    pub(crate) fn new(folder: PathBuf) -> CertificateStore {
        CertificateStore {
            folder,
            count: 0,
            errors: 0,
        }
    }

    /// Writes a chain, and what is said of it; what fails is counted.
    pub(crate) fn put(&mut self, stored: &StoredCertificates) {
        self.count += 1;
        self.errors += u64::from(self.write(stored).is_err());
    }

    fn write(&self, stored: &StoredCertificates) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let (seconds, rest) = (stored.time / 1_000_000_000, stored.time % 1_000_000_000);
        let client = if stored.client { "client-" } else { "" };
        let name = format!("{client}{seconds}.{:06}-{}", rest / 1000, self.count);
        let chain: Vec<String> = stored.chain.iter().map(|der| pem(der)).collect();
        whole(&self.folder.join(format!("{name}.pem")), |out| {
            out.write_all(chain.concat().as_bytes())
        })?;
        whole(&self.folder.join(format!("{name}.meta")), |out| {
            out.write_all(&about(stored))
        })
    }
}

/// What is said of a chain, a line each.
fn about(stored: &StoredCertificates) -> Vec<u8> {
    let mut text = b"TIME:              ".to_vec();
    time::fast(&mut text, stored.time);
    let [source, destination] = stored.ends;
    let mut line = |name: &str, value: &str| {
        text.extend_from_slice(format!("\n{:<19}{value}", format!("{name}:")).as_bytes());
    };
    line("SRC IP", &source.0.to_string());
    line("DST IP", &destination.0.to_string());
    line("PROTO", &stored.protocol.to_string());
    line("SRC PORT", &source.1.to_string());
    line("DST PORT", &destination.1.to_string());
    let whose = if stored.client { "TLS CLIENT" } else { "TLS" };
    for (name, value) in &stored.about {
        line(&format!("{whose} {name}"), value);
    }
    text.push(b'\n');
    text
}

/// A certificate as text (RFC 7468).
fn pem(der: &[u8]) -> String {
    let mut quoted = Vec::new();
    json::base64(&mut quoted, der);
    let digits: Vec<u8> = quoted.into_iter().filter(|b| *b != b'"').collect();
    let mut text = "-----BEGIN CERTIFICATE-----\n".to_owned();
    for line in digits.chunks(64) {
        text.push_str(&String::from_utf8_lossy(line));
        text.push('\n');
    }
    text + "-----END CERTIFICATE-----\n"
}

/// Writes a file so that it is there as a whole or not at all.
fn whole(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<fs::File>) -> io::Result<()>,
) -> io::Result<()> {
    let part = path.with_extension("part");
    let mut options = OpenOptions::new();
    let file = options
        .write(true)
        .create(true)
        .truncate(true)
        .open(&part)?;
    let mut out = BufWriter::new(file);
    let written = write(&mut out).and_then(|()| out.flush());
    match written {
        Ok(()) => fs::rename(&part, path),
        Err(e) => {
            let _ = fs::remove_file(&part);
            Err(e)
        }
    }
}
