//! One row of rates, and how readings of `weir status` are compared.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) packets: f64,
    pub(super) bits: f64,
    pub(super) verdicts: BTreeMap<String, f64>,
    pub(super) reasons: BTreeMap<String, f64>,
    /// Of a packet from entry to end; ports only, and only if it is measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ns: Option<f64>,
}

/// Difference of two counters by second. A replaced program that could not keep its counters begins at 0.
pub(super) fn rate(before: &Value, now: &Value, seconds: f64) -> f64 {
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    number(now).saturating_sub(number(before)) as f64 / seconds.max(f64::MIN_POSITIVE)
}

/// The elements of an array; none, if it is none.
pub(super) fn rows(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The row with the same value of a member.
pub(super) fn same<'v>(all: &'v [Value], row: &Value, member: &str) -> &'v Value {
    let mut all = all.iter();
    all.find(|one| one[member] == row[member])
        .unwrap_or(&Value::Null)
}

/// Text of a value; empty, if it is none.
pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
