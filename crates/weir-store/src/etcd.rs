//! etcd's JSON gateway (3.4 and newer): ranges, transactions, watches, leases, and logging in. Numbers of 64 bits are texts there, keys and
//! values base64.
//!
//! A request that fails for the connection is tried at the next member, once round. A transaction is not: whether it was carried out is unknown
//! then, and every transaction here begins with a comparison, so that trying it again is safe for the caller who reads first.

#![expect(
    clippy::indexing_slicing,
    reason = "what a JSON value does not have is null, not a panic"
)]

use std::collections::VecDeque;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::http::{Broken, Connection, Lines, PATIENCE, StoreError, Tls};
use crate::settings::Settings;

/// Most operations of one transaction: etcd's default is 128.
pub(crate) const MOST_OPERATIONS: usize = 120;

/// Most bytes of keys and values of one transaction. etcd takes requests of 1.5 MiB (1,572,864 bytes); comparisons and lengths take some of that.
pub(crate) const MOST_BYTES: usize = 1_400_000;

/// Codes of gRPC.
const OUT_OF_RANGE: u64 = 11;
const UNAUTHENTICATED: u64 = 16;

/// Of every answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The cluster.
    pub cluster: u64,
    /// The store's revision when it answered.
    pub revision: i64,
}

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: Vec<u8>,
    /// The revision that wrote it last.
    pub revision: i64,
}

/// A change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Written.
    Put(KeyValue),
    /// Deleted: key, and the revision that did it.
    Delete(String, i64),
}

/// What is read or watched: one key, or all that begin with a text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Range {
    /// One key.
    Key(String),
    /// All that begin with it.
    Prefix(String),
}

impl Range {
    /// Key and end, as etcd has them.
    fn bounds(&self) -> (String, Option<String>) {
        match self {
            Range::Key(key) => (encoded(key.as_bytes()), None),
            Range::Prefix(prefix) => {
                let mut end = prefix.clone().into_bytes();
                // Keys are ASCII and end in `/`: the last byte can be raised.
                if let Some(last) = end.last_mut() {
                    *last += 1;
                }
                (encoded(prefix.as_bytes()), Some(encoded(&end)))
            }
        }
    }

    fn put_into(&self, request: &mut Value) {
        let (key, end) = self.bounds();
        request["key"] = json!(key);
        if let Some(end) = end {
            request["range_end"] = json!(end);
        }
    }
}

/// What a transaction demands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compare {
    /// The key was last written by that revision; 0: it is not there.
    Revision(String, i64),
}

/// What a transaction does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Writes.
    Put(String, Vec<u8>),
    /// Writes, for as long as a lease lasts.
    PutLeased(String, Vec<u8>, i64),
    /// Deletes.
    Delete(String),
}

impl Op {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Op::Put(key, _) | Op::PutLeased(key, _, _) | Op::Delete(key) => key,
        }
    }

    /// Bytes of key and value.
    pub(crate) fn size(&self) -> usize {
        match self {
            Op::Put(key, value) | Op::PutLeased(key, value, _) => key.len() + value.len(),
            Op::Delete(key) => key.len(),
        }
    }

    fn as_json(&self) -> Value {
        match self {
            Op::Put(key, value) => {
                json!({ "request_put": { "key": encoded(key.as_bytes()), "value": encoded(value) } })
            }
            Op::PutLeased(key, value, lease) => json!({ "request_put": {
                "key": encoded(key.as_bytes()), "value": encoded(value), "lease": lease.to_string()
            } }),
            Op::Delete(key) => {
                json!({ "request_delete_range": { "key": encoded(key.as_bytes()) } })
            }
        }
    }
}

/// A client. One connection for requests, and one for each watch.
#[derive(Debug)]
pub struct Client {
    settings: Settings,
    tls: Tls,
    /// The member that is asked, as a place in the list.
    at: usize,
    connection: Option<Connection>,
    token: Option<String>,
}

impl Client {
    /// Reads keys and certificates; connects with the first request.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn new(settings: &Settings) -> Result<Client, StoreError> {
        Ok(Client {
            tls: Tls::of(settings)?,
            settings: settings.clone(),
            at: spread(settings.endpoints.len() as u64) as usize,
            connection: None,
            token: None,
        })
    }

    /// The member that answers.
    #[must_use]
    pub fn endpoint(&self) -> String {
        let endpoint = self.settings.endpoints.get(self.at);
        endpoint.map(ToString::to_string).unwrap_or_default()
    }

    /// Goes on with the next member.
    pub fn leave(&mut self) {
        self.connection = None;
        self.token = None;
        self.at = (self.at + 1) % self.settings.endpoints.len().max(1);
    }

    /// Everything of a range, at a revision or, if that is 0, at the newest one.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn range(
        &mut self,
        range: &Range,
        revision: i64,
    ) -> Result<(Header, Vec<KeyValue>), StoreError> {
        let mut request = json!({});
        range.put_into(&mut request);
        if revision > 0 {
            request["revision"] = json!(revision.to_string());
        }
        let answer = self.ask_any("/v3/kv/range", &request).await?;
        let empty = Vec::new();
        let found = answer["kvs"].as_array().unwrap_or(&empty);
        let found = found.iter().map(|one| self.key_value(one));
        Ok((self.header(&answer)?, found.collect::<Result<_, _>>()?))
    }

    /// All or nothing. `false`: a comparison failed.
    ///
    /// # Errors
    /// [`StoreError`]; of [`StoreError::Unreachable`], it may have been carried out.
    pub async fn transact(
        &mut self,
        compare: &[Compare],
        then: &[Op],
    ) -> Result<(Header, bool), StoreError> {
        let compare: Vec<Value> = compare
            .iter()
            .map(|Compare::Revision(key, revision)| {
                json!({
                    "target": "MOD", "result": "EQUAL",
                    "key": encoded(key.as_bytes()), "mod_revision": revision.to_string()
                })
            })
            .collect();
        let then: Vec<Value> = then.iter().map(Op::as_json).collect();
        let request = json!({ "compare": compare, "success": then });
        let answer = self.ask("/v3/kv/txn", &request).await?;
        let done = answer["succeeded"].as_bool().unwrap_or_default();
        Ok((self.header(&answer)?, done))
    }

    /// A lease that ends after so many seconds without [`Client::keep_alive`].
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn grant(&mut self, seconds: u64) -> Result<i64, StoreError> {
        let request = json!({ "TTL": seconds.to_string() });
        let answer = self.ask_any("/v3/lease/grant", &request).await?;
        number(&answer["ID"]).ok_or_else(|| self.wrong("a lease without number"))
    }

    /// Lengthens a lease. `false`: it has ended.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn keep_alive(&mut self, lease: i64) -> Result<bool, StoreError> {
        let request = json!({ "ID": lease.to_string() });
        let answer = self.ask("/v3/lease/keepalive", &request).await?;
        Ok(number(&answer["result"]["TTL"]).is_some_and(|left| left > 0))
    }

    /// Watches ranges from a revision on, at the member that answers now. Of one revision, all events of a range come together.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn watch(&mut self, ranges: &[Range], from: i64) -> Result<Watch, StoreError> {
        if self.connection.is_none() {
            self.connect_any().await?;
        }
        let mut body = Vec::new();
        for range in ranges {
            let mut request =
                json!({ "start_revision": from.to_string(), "progress_notify": true });
            range.put_into(&mut request);
            body.extend_from_slice(json!({ "create_request": request }).to_string().as_bytes());
            body.push(b'\n');
        }
        let unreachable = |why: Broken| StoreError::Unreachable { why };
        let Some(endpoint) = self.settings.endpoints.get(self.at) else {
            return Err(unreachable("no endpoints".to_owned()));
        };
        let mut connection = Connection::open(endpoint, &self.tls)
            .await
            .map_err(unreachable)?;
        let lines = connection
            .stream("/v3/watch", self.token.as_deref(), body)
            .await
            .map_err(unreachable)?;
        let mut watch = Watch {
            endpoint: endpoint.to_string(),
            lines,
            early: VecDeque::new(),
            _connection: connection,
        };
        let wait = tokio::time::timeout(PATIENCE, watch.confirm(ranges.len()));
        match wait.await {
            Ok(done) => done.map(|()| watch),
            Err(_) => Err(unreachable(format!(
                "{endpoint}: {} ranges are not watched within {} s",
                ranges.len(),
                PATIENCE.as_secs()
            ))),
        }
    }

    /// Asks one member after the other. For what may be asked twice.
    async fn ask_any(&mut self, path: &str, request: &Value) -> Result<Value, StoreError> {
        let mut failed = Vec::new();
        for _ in 0..self.settings.endpoints.len() {
            match self.ask(path, request).await {
                Err(StoreError::Unreachable { why }) => {
                    failed.push(why);
                    self.leave();
                }
                done => return done,
            }
        }
        Err(StoreError::Unreachable {
            why: failed.join("; "),
        })
    }

    async fn connect_any(&mut self) -> Result<(), StoreError> {
        let request = json!({ "key": encoded(b"/weir/v1/store"), "count_only": true });
        self.ask_any("/v3/kv/range", &request).await.map(drop)
    }

    /// Asks the member that answered last.
    async fn ask(&mut self, path: &str, request: &Value) -> Result<Value, StoreError> {
        let mut logged_in = false;
        loop {
            let unreachable = |why: Broken| StoreError::Unreachable { why };
            let Some(endpoint) = self.settings.endpoints.get(self.at) else {
                return Err(unreachable("no endpoints".to_owned()));
            };
            if self.connection.is_none() {
                let opened = Connection::open(endpoint, &self.tls).await;
                self.connection = Some(opened.map_err(unreachable)?);
            }
            if self.token.is_none() && self.settings.user.is_some() {
                self.log_in().await?;
                logged_in = true;
            }
            let Some(connection) = self.connection.as_mut() else {
                continue;
            };
            let (status, answer) = match connection.ask(path, self.token.as_deref(), request).await
            {
                Ok(answer) => answer,
                Err(why) => {
                    self.connection = None;
                    return Err(unreachable(why));
                }
            };
            // Streams of one answer wrap their error.
            let error = match answer.get("error") {
                Some(Value::Object(_)) => Some(&answer["error"]),
                Some(Value::String(_)) => Some(&answer),
                _ if status != 200 => Some(&answer),
                _ => None,
            };
            let Some(error) = error else {
                return Ok(answer);
            };
            let code = ["code", "grpc_code"]
                .iter()
                .find_map(|name| error[name].as_u64())
                .unwrap_or_default();
            let text = ["message", "error"]
                .iter()
                .find_map(|name| error[name].as_str())
                .unwrap_or("no reason given")
                .to_owned();
            // A token ends; the next one is asked for once.
            if code == UNAUTHENTICATED && self.settings.user.is_some() && !logged_in {
                self.token = None;
                continue;
            }
            return Err(match text.as_str() {
                _ if code == OUT_OF_RANGE && text.contains("compacted") => {
                    StoreError::Compacted { revision: 0 }
                }
                // The member lives and its cluster does not: another may be on the other side.
                _ if text.contains("no leader")
                    || text.contains("timed out")
                    || text.contains("unavailable")
                    || text.contains("leader changed")
                    || text.contains("server stopped") =>
                {
                    StoreError::Unreachable {
                        why: format!("{}: {text}", self.endpoint()),
                    }
                }
                _ => StoreError::Refused {
                    endpoint: self.endpoint(),
                    code,
                    text: explained(&text),
                },
            });
        }
    }

    async fn log_in(&mut self) -> Result<(), StoreError> {
        let (Some(user), Some(path)) = (&self.settings.user, &self.settings.password_file) else {
            return Ok(());
        };
        let password = std::fs::read_to_string(path).map_err(|error| StoreError::File {
            path: path.display().to_string(),
            why: error.to_string(),
        })?;
        let request = json!({ "name": user, "password": password.trim_end_matches(['\n', '\r']) });
        let endpoint = self.endpoint();
        let Some(connection) = self.connection.as_mut() else {
            return Ok(());
        };
        let answer = connection
            .ask("/v3/auth/authenticate", None, &request)
            .await;
        let (_, answer) = answer.map_err(|why| StoreError::Unreachable { why })?;
        match answer["token"].as_str() {
            Some(token) => {
                self.token = Some(token.to_owned());
                Ok(())
            }
            None => {
                let text = answer["message"].as_str().or(answer["error"].as_str());
                Err(StoreError::Refused {
                    endpoint,
                    code: UNAUTHENTICATED,
                    text: format!("user {user}: {}", text.unwrap_or("no token in the answer")),
                })
            }
        }
    }

    fn header(&self, answer: &Value) -> Result<Header, StoreError> {
        header(&answer["header"]).ok_or_else(|| self.wrong("no header"))
    }

    fn key_value(&self, value: &Value) -> Result<KeyValue, StoreError> {
        key_value(value).ok_or_else(|| self.wrong("an entry that is not one"))
    }

    fn wrong(&self, why: &str) -> StoreError {
        StoreError::Answer {
            endpoint: self.endpoint(),
            why: why.to_owned(),
        }
    }
}

/// Ranges that are watched. Dropping it ends that.
#[derive(Debug)]
pub struct Watch {
    endpoint: String,
    lines: Lines,
    /// What came before everything was watched.
    early: VecDeque<(Header, Vec<Event>)>,
    _connection: Connection,
}

impl Watch {
    /// The next events, with the revision of the store when they were sent; no events: a sign of life. Dropping the future loses nothing.
    ///
    /// # Errors
    /// [`StoreError::Compacted`], or the watch has ended: read again, and watch from there.
    pub async fn next(&mut self) -> Result<(Header, Vec<Event>), StoreError> {
        match self.early.pop_front() {
            Some(message) => Ok(message),
            None => self
                .message()
                .await
                .map(|(_, header, events)| (header, events)),
        }
    }

    /// Waits until so many ranges are watched: each is confirmed.
    async fn confirm(&mut self, ranges: usize) -> Result<(), StoreError> {
        let mut created = 0;
        while created < ranges {
            let (is_created, header, events) = self.message().await?;
            created += usize::from(is_created);
            if !events.is_empty() {
                self.early.push_back((header, events));
            }
        }
        Ok(())
    }

    /// The next message: whether it confirms a range, and its events.
    async fn message(&mut self) -> Result<(bool, Header, Vec<Event>), StoreError> {
        let unreachable = |why: Broken| StoreError::Unreachable {
            why: format!("{}: {why}", self.endpoint),
        };
        let message = self.lines.next().await.map_err(unreachable)?;
        let wrong = |why: String| StoreError::Answer {
            endpoint: self.endpoint.clone(),
            why,
        };
        if let Some(error) = message.get("error") {
            return Err(unreachable(error.to_string()));
        }
        let result = &message["result"];
        if result["canceled"].as_bool().unwrap_or_default() {
            return Err(match number(&result["compact_revision"]) {
                Some(revision) => StoreError::Compacted { revision },
                None => {
                    let why = result["cancel_reason"].as_str().unwrap_or("watch canceled");
                    unreachable(why.to_owned())
                }
            });
        }
        let header = header(&result["header"]).ok_or_else(|| wrong("no header".to_owned()))?;
        let empty = Vec::new();
        let mut events = Vec::new();
        for one in result["events"].as_array().unwrap_or(&empty) {
            let found = key_value(&one["kv"]);
            let found = found.ok_or_else(|| wrong(format!("an event that is not one: {one}")))?;
            events.push(match one["type"].as_str() {
                Some("DELETE") => Event::Delete(found.key, found.revision),
                _ => Event::Put(found),
            });
        }
        let is_created = result["created"].as_bool().unwrap_or_default();
        Ok((is_created, header, events))
    }
}

/// What etcd says, with the next step where its own words have none.
fn explained(text: &str) -> String {
    let next = match text {
        _ if text.contains("CommonName") => {
            ". Where etcd has users, it takes certificates without a common name only: give `cert` a subject like /O=NAME"
        }
        _ if text.contains("user name is empty") => {
            ". etcd has users: write `user` and `password-file` in [store]"
        }
        _ => "",
    };
    format!("{text}{next}")
}

/// A number below `many` that differs from process to process and from call to call: who waits at random does not wait with all others.
pub(crate) fn spread(many: u64) -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    // Each of these has keys that the system chose at random.
    let random = std::collections::hash_map::RandomState::new();
    random
        .build_hasher()
        .finish()
        .checked_rem(many)
        .unwrap_or_default()
}

fn header(value: &Value) -> Option<Header> {
    Some(Header {
        cluster: value["cluster_id"].as_str()?.parse().ok()?,
        revision: number(&value["revision"])?,
    })
}

fn key_value(value: &Value) -> Option<KeyValue> {
    let bytes = |name: &str| match value.get(name) {
        // An empty one is left out.
        None => Some(Vec::new()),
        Some(text) => STANDARD.decode(text.as_str()?).ok(),
    };
    Some(KeyValue {
        key: String::from_utf8(bytes("key")?).ok()?,
        value: bytes("value")?,
        revision: number(&value["mod_revision"])?,
    })
}

/// Numbers of 64 bits are texts.
fn number(value: &Value) -> Option<i64> {
    value.as_str()?.parse().ok()
}

fn encoded(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_end_behind_their_last_key() {
        let (key, end) = Range::Prefix("/weir/v1/".to_owned()).bounds();
        assert_eq!(STANDARD.decode(key).expect("base64"), b"/weir/v1/");
        assert_eq!(
            STANDARD.decode(end.expect("an end")).expect("base64"),
            b"/weir/v10"
        );
    }

    #[test]
    fn entries_are_read_as_the_gateway_writes_them() {
        let one =
            json!({ "key": "YS8x", "create_revision": "2", "mod_revision": "7", "value": "eA==" });
        let found = key_value(&one).expect("an entry");
        assert_eq!(
            (found.key.as_str(), found.value.as_slice(), found.revision),
            ("a/1", b"x".as_slice(), 7)
        );
        let deleted = key_value(&json!({ "key": "YS8x", "mod_revision": "4" })).expect("an entry");
        assert!(deleted.value.is_empty());
        for wrong in [
            json!({}),
            json!({ "key": 1 }),
            json!({ "key": "?", "mod_revision": "1" }),
            json!({ "key": "YS8x", "mod_revision": 7 }),
        ] {
            assert_eq!(key_value(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_spread_stays_below() {
        assert!((0..100).all(|_| spread(3) < 3));
        assert_eq!(spread(0), 0);
    }
}
