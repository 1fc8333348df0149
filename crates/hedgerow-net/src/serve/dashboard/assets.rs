//! The files of the page. A browser asks for them each time, and gets only those that changed.

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};

use super::is_known;

const SCRIPT: &str = "text/javascript; charset=utf-8";

#[derive(Clone, Copy)]
pub(super) struct File {
    pub(super) path: &'static str,
    kind: &'static str,
    text: &'static str,
}

pub(super) const FILES: [File; 11] = [
    File { path: "/", kind: "text/html; charset=utf-8", text: include_str!("index.html") },
    File { path: "/page.js", kind: SCRIPT, text: include_str!("page.js") },
    File { path: "/charts.js", kind: SCRIPT, text: include_str!("charts.js") },
    File { path: "/plot.js", kind: SCRIPT, text: include_str!("plot.js") },
    File { path: "/nodes.js", kind: SCRIPT, text: include_str!("nodes.js") },
    File { path: "/events.js", kind: SCRIPT, text: include_str!("events.js") },
    File { path: "/operators.js", kind: SCRIPT, text: include_str!("operators.js") },
    File { path: "/track.js", kind: SCRIPT, text: include_str!("track.js") },
    File { path: "/words.js", kind: SCRIPT, text: include_str!("words.js") },
    File { path: "/page.css", kind: "text/css; charset=utf-8", text: include_str!("page.css") },
    File { path: "/icon.svg", kind: "image/svg+xml", text: include_str!("icon.svg") },
];

impl File {
    /// The file, or that the client's copy is current.
    pub(super) fn answer(self, headers: &HeaderMap) -> Response {
        let Self { kind, text, .. } = self;
        let tag = format!("\"{:08x}-{:x}\"", crc32fast::hash(text.as_bytes()), text.len());
        let head = [(ETAG, tag.as_str()), (CACHE_CONTROL, "no-cache")];
        if is_known(headers, &tag) {
            return (StatusCode::NOT_MODIFIED, head).into_response();
        }
        (head, [(CONTENT_TYPE, kind)], text).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_ask_nothing_of_other_hosts_and_have_nothing_inline() {
        for File { path, text, .. } in FILES {
            // A name, not an address.
            let text = text.replace("http://www.w3.org/2000/svg", "");
            for foreign in ["http:", "https:", "url(", "@import", "innerHTML", "eval("] {
                assert!(!text.contains(foreign), "{path}: {foreign}");
            }
        }
        for inline in ["style=", "<style", "onclick", "<script>", "javascript:"] {
            assert!(!FILES[0].text.contains(inline), "{inline}");
        }
    }
}
