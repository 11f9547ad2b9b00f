//! Alerts of sensors on this host: what they append to `eve.json` in a folder below that of the logs is followed, and each alert is an event.
//!
//! Clients of the API see them beside drops and changes. The sensors' own logs stay the whole record: where alerts come faster than they are
//! worth reading one by one, an event says how many more there were.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use serde_json::Value;

use crate::event::Event;

/// The file of a sensor's records.
const NAME: &str = "eve.json";

/// Between two looks.
const INTERVAL: Duration = Duration::from_secs(2);

/// Bytes of one file that are in memory at once.
const MOST: u64 = 1 << 20;

/// Bytes of one file that are read at one look. Of more, the last are read, and an event says how many were skipped.
const LOOK: u64 = 64 * MOST;

/// Events of one file at one look.
const EVENTS: usize = 20;

/// Characters of a text of a record that an event keeps: records are written by another process, events stay in memory.
const TEXT: usize = 200;

/// A file that is read. It stays open: a file that was rotated is read to its end.
#[derive(Debug)]
struct Log {
    file: File,
    inode: u64,
    offset: u64,
}

/// The files of a folder's sensors.
#[derive(Debug, Default)]
pub(crate) struct Alerts {
    looked: Option<Instant>,
    /// `None`: nobody looked yet, and what is there is old.
    files: Option<BTreeMap<PathBuf, Log>>,
    /// Why something cannot be read. Said once.
    error: Option<String>,
}

impl Alerts {
    /// Alerts since the last look.
    pub(crate) fn look(&mut self, folder: &Path, now: Instant) -> Vec<Event> {
        if self.looked.is_some_and(|looked| looked + INTERVAL > now) {
            return Vec::new();
        }
        self.looked = Some(now);
        let mut events = Vec::new();
        let result = self.read(folder, &mut events);
        let error = result.err().map(|(path, error)| {
            format!(
                "no alerts of sensors: {}: {error}; the agent needs the group of the log",
                path.display()
            )
        });
        if let Some(text) = error.clone().filter(|_| error != self.error) {
            events.push(Event::Warning { text });
        }
        self.error = error;
        events
    }

    fn read(&mut self, folder: &Path, events: &mut Vec<Event>) -> Result<(), (PathBuf, io::Error)> {
        let found = match found(folder) {
            Ok(found) => found,
            // No sensor ever logged here.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err((folder.to_owned(), error)),
        };
        let is_first = self.files.is_none();
        let mut before = self.files.take().unwrap_or_default();
        let mut files = BTreeMap::new();
        let mut failed = Ok(());
        for path in found {
            let mut log = before.remove(&path);
            let result = follow(&path, &mut log, is_first, events);
            if let Some(log) = log {
                files.insert(path.clone(), log);
            }
            match result {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => failed = Err((path, error)),
            }
        }
        self.files = Some(files);
        failed
    }
}

/// The files of the folder, and of those below it.
fn found(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = vec![folder.join(NAME)];
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            paths.push(entry.path().join(NAME));
        }
    }
    paths.sort();
    Ok(paths)
}

/// Reads what was appended to a file since the last look, also where it was rotated in between.
fn follow(
    path: &Path,
    log: &mut Option<Log>,
    is_first: bool,
    events: &mut Vec<Event>,
) -> io::Result<()> {
    let state = match fs::metadata(path) {
        Ok(state) => Some(state),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let is_rotated = state.as_ref().map(|state| state.ino()) != log.as_ref().map(|log| log.inode);
    if !is_rotated {
        return log.as_mut().map_or(Ok(()), |log| append(path, log, events));
    }
    // What was written to the file before it was renamed.
    if let Some(mut old) = log.take() {
        append(path, &mut old, events)?;
    }
    if state.is_none() {
        return Ok(());
    }
    // A FIFO would block until it has a writer.
    let flags = OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let state = file.metadata()?;
    if !state.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let log = log.insert(Log {
        file,
        inode: state.ino(),
        // Alerts from before the agent started are old.
        offset: if is_first { state.len() } else { 0 },
    });
    append(path, log, events)
}

/// Reads what was appended to an open file.
fn append(path: &Path, log: &mut Log, events: &mut Vec<Event>) -> io::Result<()> {
    let length = log.file.metadata()?.len();
    // Truncated, as by `copytruncate` of logrotate.
    log.offset = if log.offset <= length { log.offset } else { 0 };
    let skipped = (length - log.offset).saturating_sub(LOOK);
    log.offset += skipped;
    if skipped > 0 {
        events.push(Event::Warning {
            text: format!(
                "{}: {skipped} bytes were written faster than alerts are read, and were skipped; the file has them",
                path.display()
            ),
        });
    }
    let sensor = path.parent().and_then(Path::file_name);
    let sensor = sensor.map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let mut found = Vec::new();
    let mut more = 0;
    // After a skip the first line is a rest; so is one behind a line that fills the whole buffer.
    let mut is_rest = skipped > 0;
    let mut bytes = Vec::new();
    while log.offset < length {
        bytes.clear();
        log.file.seek(SeekFrom::Start(log.offset))?;
        let most = MOST.min(length - log.offset);
        (&log.file).take(most).read_to_end(&mut bytes)?;
        let is_full = bytes.len() as u64 == MOST;
        // The rest of a line comes with the next look.
        let end = bytes.iter().rposition(|byte| *byte == b'\n');
        let whole = match end {
            Some(end) => end + 1,
            None if is_full => bytes.len(),
            None => break,
        };
        let lines = bytes.get(..whole).unwrap_or_default();
        let lines = lines.split(|byte| *byte == b'\n');
        for line in lines.skip(usize::from(is_rest)) {
            let Some(event) = alert(line, &sensor) else {
                continue;
            };
            match found.len() < EVENTS {
                true => found.push(event),
                false => more += 1,
            }
        }
        is_rest = end.is_none();
        log.offset += whole as u64;
    }
    if let Some(Event::Alert { more: others, .. }) = found.last_mut() {
        *others = more;
    }
    events.append(&mut found);
    Ok(())
}

/// The beginning of a text.
fn short(text: &str) -> String {
    match text.char_indices().nth(TEXT) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// The alert of a record; `None`: it is another record, or none.
fn alert(line: &[u8], sensor: &str) -> Option<Event> {
    // Cheaper than to read all records of a busy sensor.
    if !line.windows(7).any(|part| part == b"\"alert\"") {
        return None;
    }
    let record: Value = serde_json::from_slice(line).ok()?;
    if record.get("event_type")? != "alert" {
        return None;
    }
    let alert = record.get("alert")?;
    let number = |name: &str| alert.get(name).and_then(Value::as_u64).unwrap_or_default();
    let text = |name: &str| short(record.get(name).and_then(Value::as_str).unwrap_or_default());
    let end = |address: &str, port: &str| {
        let address = text(address);
        match record.get(port).and_then(Value::as_u64) {
            Some(port) if address.contains(':') => format!("[{address}]:{port}"),
            Some(port) => format!("{address}:{port}"),
            None => address,
        }
    };
    Some(Event::Alert {
        sensor: sensor.to_owned(),
        rule: format!(
            "{}:{}:{}",
            number("gid"),
            number("signature_id"),
            number("rev")
        ),
        signature: short(alert.get("signature")?.as_str()?),
        severity: number("severity"),
        flow: format!(
            "{} {} > {}",
            text("proto"),
            end("src_ip", "src_port"),
            end("dest_ip", "dest_port")
        ),
        flow_id: record
            .get("flow_id")
            .and_then(Value::as_u64)
            .unwrap_or_default(),
        more: 0,
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use rustix::fs::FileType;

    use super::*;

    fn record(number: u64) -> String {
        format!(
            r#"{{"event_type":"alert","src_ip":"10.0.0.1","src_port":1,"dest_ip":"2001:db8::1","dest_port":80,"proto":"TCP","flow_id":{number},"alert":{{"gid":1,"signature_id":{number},"rev":2,"signature":"bad","severity":1}}}}"#
        ) + "\n"
    }

    #[test]
    fn what_sensors_append_is_told_once() {
        let folder = std::env::temp_dir().join(format!("weir-alerts-{}", std::process::id()));
        fs::create_dir_all(folder.join("eth0")).expect("made");
        let path = folder.join("eth0").join(NAME);
        fs::write(&path, record(1)).expect("written");
        let mut alerts = Alerts::default();
        let begin = Instant::now();
        let mut seconds = 0;
        let mut look = |folder: &Path| -> Vec<String> {
            seconds += 2;
            let events = alerts.look(folder, begin + Duration::from_secs(seconds));
            events.iter().map(Event::to_string).collect()
        };
        let append = |text: &str| {
            let mut file = File::options().append(true).open(&path).expect("there");
            file.write_all(text.as_bytes()).expect("written");
        };
        let line = |number: u64| {
            format!(
                "sensor eth0: alert 1:{number}:2 \"bad\", severity 1: TCP 10.0.0.1:1 > [2001:db8::1]:80"
            )
        };
        assert_eq!(look(&folder), [""; 0], "it was there before");
        let second = record(2);
        let (half, rest) = second.split_at(40);
        append(&format!(
            "{{\"event_type\":\"flow\",\"x\":\"alert\"}}\nno JSON \"alert\"\n{half}"
        ));
        assert_eq!(look(&folder), [""; 0]);
        append(rest);
        assert_eq!(look(&folder), [line(2)]);
        // Many at once.
        append(&(10..40).map(record).collect::<String>());
        let said = look(&folder);
        assert_eq!(said.len(), EVENTS);
        assert_eq!(said[EVENTS - 1], line(29) + ", and 10 more alerts");
        // Rotated: another file, read from its beginning.
        fs::rename(&path, folder.join("eth0/eve.json.1")).expect("renamed");
        fs::write(&path, record(3)).expect("written");
        assert_eq!(look(&folder), [line(3)]);
        // Rotated: what was written to the old file after the last look is read, too.
        append(&record(5));
        fs::rename(&path, folder.join("eth0/eve.json.1")).expect("renamed");
        fs::write(&path, record(6)).expect("written");
        assert_eq!(look(&folder), [line(5), line(6)]);
        // More than is in memory at once: all of it is read, also behind a line that is longer.
        let flood = |size: u64| format!("{}\n", "x".repeat(1023)).repeat((size / 1024) as usize);
        append(&format!("{}{}{}", record(7), flood(3 * MOST), record(8)));
        assert_eq!(look(&folder), [line(7), line(8)]);
        append(&format!("{}\n{}", "x".repeat(2 * MOST as usize), record(4)));
        assert_eq!(look(&folder), [line(4)]);
        // More than is read at one look: the last of it, and how much is missing.
        append(&format!("{}{}{}", record(9), flood(LOOK), record(10)));
        let said = look(&folder);
        assert_eq!(said.last(), Some(&line(10)), "{said:?}");
        let skipped = record(9).len() + record(10).len();
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(
            said[0].contains(&format!("eve.json: {skipped} bytes were written faster")),
            "{said:?}"
        );
        assert_eq!(look(&folder.join("none")), [""; 0]);
        let _ = fs::remove_dir_all(&folder);
    }

    #[test]
    fn a_fifo_blocks_nothing_and_long_texts_are_cut() {
        let folder = std::env::temp_dir().join(format!("weir-alerts-fifo-{}", std::process::id()));
        fs::create_dir_all(folder.join("eth0")).expect("made");
        fs::create_dir_all(folder.join("eth1")).expect("made");
        let fifo = folder.join("eth0").join(NAME);
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, mode, 0).expect("made");
        let path = folder.join("eth1").join(NAME);
        fs::write(&path, "").expect("written");
        let mut alerts = Alerts::default();
        let begin = Instant::now();
        let said = alerts.look(&folder, begin);
        assert_eq!(said.len(), 1, "{said:?}");
        let said = said[0].to_string();
        assert!(said.contains("not a regular file"), "{said}");
        fs::write(&path, record(1).replace("bad", &"a".repeat(1 << 19))).expect("written");
        let said = alerts.look(&folder, begin + Duration::from_secs(2));
        assert_eq!(said.len(), 1, "the FIFO is reported once: {said:?}");
        assert!(said[0].to_string().len() < 2 * TEXT, "{said:?}");
        let _ = fs::remove_dir_all(&folder);
    }
}
