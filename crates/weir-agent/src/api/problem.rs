//! What a request is refused with: a problem of RFC 9457, with the next step in the member `next`.

use hyper::StatusCode;
use serde_json::{Value, json};

/// Media type of problems.
pub(crate) const MEDIA: &str = "application/problem+json";

/// Why a request was not answered with what it asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub(crate) status: StatusCode,
    /// What went wrong with this request.
    pub detail: String,
    /// What to do.
    pub next: String,
}

impl Problem {
    pub(crate) fn new(
        status: StatusCode,
        detail: impl Into<String>,
        next: impl Into<String>,
    ) -> Problem {
        Problem {
            status,
            detail: detail.into(),
            next: next.into(),
        }
    }

    /// 404: what the path names is not here.
    pub fn not_found(detail: impl Into<String>, next: impl Into<String>) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, detail, next)
    }

    /// 409: the state of the host does not allow it.
    pub fn conflict(detail: impl Into<String>, next: impl Into<String>) -> Problem {
        Problem::new(StatusCode::CONFLICT, detail, next)
    }

    /// 422: a file has mistakes.
    pub fn mistakes(detail: impl Into<String>, next: impl Into<String>) -> Problem {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail, next)
    }

    /// 500: the host failed.
    pub fn failed(detail: impl Into<String>) -> Problem {
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            detail,
            "see `journalctl -u weir-agent`; `weir doctor` checks the host",
        )
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "type": "about:blank",
            "title": self.status.canonical_reason().unwrap_or("Error"),
            "status": self.status.as_u16(),
            "detail": self.detail,
            "next": self.next,
        })
    }
}
