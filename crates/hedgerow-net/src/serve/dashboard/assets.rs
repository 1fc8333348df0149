//! The files of the page: ours, which are small and looked up again each time, and the charting
//! library, which is large and kept.

use std::io::Write;
use std::sync::LazyLock;

use axum::extract::Query;
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, VARY,
};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Deserialize;

use super::{broken, is_known};

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// A file of ours, as it stands.
#[derive(Clone, Copy)]
pub(super) struct File {
    pub(super) path: &'static str,
    kind: &'static str,
    text: &'static str,
}

/// All but the index, which has to know the library's version.
pub(super) const FILES: [File; 7] = [
    File { path: "/page.js", kind: SCRIPT, text: include_str!("page.js") },
    File { path: "/charts.js", kind: SCRIPT, text: include_str!("charts.js") },
    File { path: "/nodes.js", kind: SCRIPT, text: include_str!("nodes.js") },
    File { path: "/track.js", kind: SCRIPT, text: include_str!("track.js") },
    File { path: "/words.js", kind: SCRIPT, text: include_str!("words.js") },
    File { path: "/page.css", kind: "text/css; charset=utf-8", text: include_str!("page.css") },
    File { path: "/icon.svg", kind: "image/svg+xml", text: include_str!("icon.svg") },
];

/// Asked for again each time, and sent only if it has changed.
const REVALIDATED: &str = "no-cache";
/// The address changes with the content, so that the content never does.
const FOR_EVER: &str = "public, max-age=31536000, immutable";

/// Packed once, when first asked for: it is four and a half megabytes.
static LIBRARY: LazyLock<Library> = LazyLock::new(Library::new);

static INDEX: LazyLock<String> =
    LazyLock::new(|| include_str!("index.html").replace("{{library}}", &LIBRARY.version));

pub(super) async fn index(headers: HeaderMap) -> Response {
    // Packing takes a while, so it is for a thread that may wait.
    match tokio::task::spawn_blocking(|| INDEX.as_str()).await {
        Ok(index) => small(&headers, HTML, index),
        Err(_) => broken(),
    }
}

/// A handler for one of [`FILES`].
pub(super) async fn file(headers: HeaderMap, File { kind, text, .. }: File) -> Response {
    small(&headers, kind, text)
}

#[derive(Deserialize)]
pub(super) struct Version {
    v: Option<String>,
}

pub(super) async fn plotly(headers: HeaderMap, Query(wanted): Query<Version>) -> Response {
    let Ok(library) = tokio::task::spawn_blocking(|| &*LIBRARY).await else { return broken() };
    let cache = if wanted.v.as_deref() == Some(&library.version) { FOR_EVER } else { REVALIDATED };
    let takes_gzip =
        headers.get_all(ACCEPT_ENCODING).iter().any(|value| value.to_str().is_ok_and(takes_gzip));
    // The two forms are different things to a cache, so each has its tag.
    let tag = format!("\"{}{}\"", library.version, if takes_gzip { "-gzip" } else { "" });
    let head = [(ETAG, tag.as_str()), (CACHE_CONTROL, cache), (VARY, "accept-encoding")];
    if is_known(&headers, &tag) {
        (StatusCode::NOT_MODIFIED, head).into_response()
    } else if takes_gzip {
        let packed = library.packed.clone();
        (head, [(CONTENT_TYPE, SCRIPT), (CONTENT_ENCODING, "gzip")], packed).into_response()
    } else {
        (head, [(CONTENT_TYPE, SCRIPT)], library_script()).into_response()
    }
}

fn small(headers: &HeaderMap, kind: &'static str, text: &'static str) -> Response {
    let tag = format!("\"{}\"", version(text));
    let head = [(ETAG, tag.as_str()), (CACHE_CONTROL, REVALIDATED)];
    if is_known(headers, &tag) {
        return (StatusCode::NOT_MODIFIED, head).into_response();
    }
    (head, [(CONTENT_TYPE, kind)], text).into_response()
}

struct Library {
    version: String,
    packed: Bytes,
}

impl Library {
    fn new() -> Self {
        let script = library_script();
        let mut packer = GzEncoder::new(Vec::new(), Compression::default());
        // Writing to memory can't fail; were it to, a script of no bytes would say so in the
        // browser.
        let packed =
            packer.write_all(script.as_bytes()).and_then(|()| packer.finish()).unwrap_or_default();
        Self { version: version(&script), packed: packed.into() }
    }
}

/// Plotly alone; the crate also offers a typesetter for formulas.
fn library_script() -> String {
    let mut scripts = plotly::Plot::offline_js_sources();
    let start = scripts.find('>').map_or(0, |end_of_tag| end_of_tag + 1);
    let end = scripts.find("</script").unwrap_or(scripts.len());
    scripts.truncate(end);
    scripts.drain(..start);
    scripts
}

fn version(text: &str) -> String {
    format!("{:08x}-{:x}", crc32fast::hash(text.as_bytes()), text.len())
}

fn takes_gzip(accepted: &str) -> bool {
    accepted.split(',').any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let refused = weight.trim().strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0));
        name.trim().eq_ignore_ascii_case("gzip") && !refused
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn the_library_is_plotly_whole_and_alone() {
        let script = library_script();
        assert!(script.trim_start().starts_with("/**\n* plotly.js"), "{}", &script[..80]);
        assert!(!script.contains("MathJax.loader"));
        assert!((4_000_000..5_000_000).contains(&script.len()), "{}", script.len());
        let mut unpacked = String::new();
        flate2::read::GzDecoder::new(&LIBRARY.packed[..]).read_to_string(&mut unpacked).unwrap();
        assert!(unpacked == script);
    }

    #[test]
    fn our_own_files_ask_nothing_of_strangers_and_have_nothing_inline() {
        let page = INDEX.as_str();
        assert!(!page.contains("{{"), "every slot is filled");
        for text in
            FILES.iter().filter(|file| file.path != "/icon.svg").map(|file| file.text).chain([page])
        {
            for foreign in ["http:", "https:", "url(", "@import", "innerHTML", "eval("] {
                assert!(!text.contains(foreign), "{foreign}");
            }
        }
        for inline in ["style=", "<style", "onclick", "<script>", "javascript:"] {
            assert!(!page.contains(inline), "{inline}");
        }
    }

    #[test]
    fn gzip_is_for_those_who_take_it() {
        for yes in ["gzip", "deflate, gzip, br", "GZIP;q=0.5", "br;q=1, gzip;q=0.1"] {
            assert!(takes_gzip(yes), "{yes}");
        }
        for no in ["", "br", "gzip;q=0", "gzip; q=0.0", "x-gzip-like", "identity"] {
            assert!(!takes_gzip(no), "{no}");
        }
    }
}
