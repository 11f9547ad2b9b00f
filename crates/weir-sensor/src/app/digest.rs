//! Sums of files, as bytes come.

use md5::{Digest, Md5};
use sha1::Sha1;
use sha2::Sha256;

/// Which sums are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// MD5.
    pub md5: bool,
    /// SHA-1.
    pub sha1: bool,
    /// SHA-256.
    pub sha256: bool,
    /// What they are is found by their first bytes.
    pub magic: bool,
    /// The files themselves are kept until rules have decided whether they are written out.
    pub kept: bool,
}

impl Sums {
    /// Whether any is.
    pub fn any(self) -> bool {
        self.md5 || self.sha1 || self.sha256
    }
}

/// Sums being computed.
#[derive(Clone, Debug)]
pub(crate) struct Digests {
    md5: Option<Md5>,
    sha1: Option<Sha1>,
    sha256: Option<Sha256>,
}

impl Digests {
    /// `None`: nothing is wanted.
    pub(crate) fn new(sums: Sums) -> Option<Box<Digests>> {
        sums.any().then(|| {
            Box::new(Digests {
                md5: sums.md5.then(Md5::new),
                sha1: sums.sha1.then(Sha1::new),
                sha256: sums.sha256.then(Sha256::new),
            })
        })
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        if let Some(d) = &mut self.md5 {
            d.update(bytes);
        }
        if let Some(d) = &mut self.sha1 {
            d.update(bytes);
        }
        if let Some(d) = &mut self.sha256 {
            d.update(bytes);
        }
    }

    /// Names and sums.
    pub(crate) fn finish(self) -> Vec<(&'static str, Vec<u8>)> {
        let mut sums = Vec::new();
        if let Some(d) = self.md5 {
            sums.push(("md5", d.finalize().to_vec()));
        }
        if let Some(d) = self.sha1 {
            sums.push(("sha1", d.finalize().to_vec()));
        }
        if let Some(d) = self.sha256 {
            sums.push(("sha256", d.finalize().to_vec()));
        }
        sums
    }
}
