//! Embeds the page: each file of the folder `page` that browsers load, compressed, with its path, media type and ETag.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::{env, fs};

use flate2::Compression;
use flate2::write::GzEncoder;

/// Media types by extension. Files of other extensions, as licences, are not served.
const MEDIA: [(&str, &str); 4] = [
    ("css", "text/css; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("js", "text/javascript; charset=utf-8"),
    ("svg", "image/svg+xml"),
];

fn main() -> io::Result<()> {
    let variable = |name: &str| env::var_os(name).ok_or_else(|| io::Error::other(name.to_owned()));
    let folder = Path::new(&variable("CARGO_MANIFEST_DIR")?).join("page");
    let out = PathBuf::from(variable("OUT_DIR")?);
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files = Vec::new();
    collect(&folder, &mut files)?;
    files.sort();
    let mut table = "/// All of them.\nconst ASSETS: &[Asset] = &[\n".to_owned();
    for (at, file) in files.iter().enumerate() {
        let extension = file.extension().and_then(|one| one.to_str());
        let media = MEDIA.iter().find(|(name, _)| Some(*name) == extension);
        let Some((_, media)) = media else { continue };
        let bytes = fs::read(file)?;
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&bytes)?;
        let packed = format!("{at}.gz");
        fs::write(out.join(&packed), encoder.finish()?)?;
        let name = file.strip_prefix(&folder).map_err(io::Error::other)?;
        let path = match name.to_str() {
            Some("index.html") => "/".to_owned(),
            Some(name) => format!("/{name}"),
            None => return Err(io::Error::other(format!("{}", name.display()))),
        };
        let etag = format!("\"{:016x}\"", digest(&bytes));
        // The folder by its variable: the digest of this file is in the debug information, which names no folder of a builder.
        let _ = writeln!(
            table,
            "Asset {{ path: {path:?}, media: {media:?}, etag: {etag:?}, bytes: include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{packed}\")) }},"
        );
    }
    table.push_str("];\n");
    fs::write(out.join("assets.rs"), table)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => collect(&entry.path(), files)?,
            false => files.push(entry.path()),
        }
    }
    Ok(())
}

/// FNV-1a: an ETag tells versions apart, it protects nothing.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
