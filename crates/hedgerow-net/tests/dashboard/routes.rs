//! Every route, with good and bad requests.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use hedgerow_net::serve::dashboard::{Hosts, Logins, router, serve};
use hedgerow_net::serve::metrics::{Metrics, Outcome};
use hedgerow_net::serve::status::{Point, Status};

use super::invented::Invented;
use super::{Answer, CONNECTIONS, Fake, Served};
use crate::common::PATIENCE;

const PATHS: [&str; 17] = [
    "/",
    "/page.js",
    "/charts.js",
    "/nodes.js",
    "/events.js",
    "/operators.js",
    "/track.js",
    "/words.js",
    "/page.css",
    "/icon.svg",
    "/plot.js",
    "/api/status",
    "/api/history",
    "/events",
    "/metrics",
    "/healthz",
    "/readyz",
];

fn served() -> Served {
    Served::start(Fake::new(Invented::new("run-7", "mk", 30, 5_000)))
}

fn assert_guarded(answer: &Answer, what: &str) {
    let policy = answer.header("content-security-policy");
    for part in
        ["default-src 'none'", "script-src 'self';", "connect-src 'self'", "frame-ancestors 'none'"]
    {
        assert!(policy.contains(part), "{what}: {policy}");
    }
    assert_eq!(answer.header("x-content-type-options"), "nosniff", "{what}");
    assert_eq!(answer.header("x-frame-options"), "DENY", "{what}");
    assert_eq!(answer.header("referrer-policy"), "no-referrer", "{what}");
    assert_eq!(answer.header("cross-origin-resource-policy"), "same-origin", "{what}");
    assert!(answer.headers.contains_key("cache-control"), "{what}");
    assert!(!answer.headers.contains_key("access-control-allow-origin"), "{what}");
}

#[test]
fn every_route_answers_with_its_kind_and_its_headers() {
    let served = served();
    for path in PATHS.into_iter().filter(|path| *path != "/events") {
        let answer = served.get(path);
        assert_eq!(answer.code, 200, "{path}");
        assert_guarded(&answer, path);
        let kind = match path {
            "/" => "text/html",
            path if path.ends_with(".js") => "text/javascript",
            path if path.ends_with(".css") => "text/css",
            path if path.ends_with(".svg") => "image/svg+xml",
            path if path.starts_with("/api/") => "application/json",
            "/metrics" => "application/openmetrics-text",
            _ => "text/plain",
        };
        assert!(answer.header("content-type").starts_with(kind), "{path}: {answer:?}");
        assert!(!answer.body.is_empty(), "{path}");
    }
}

#[test]
fn the_page_finds_all_that_it_asks_for() {
    let served = served();
    let page = served.get("/");
    let mut found = 0;
    for address in
        page.text().split(['"']).filter(|part| part.contains(".js") || part.contains(".css"))
    {
        assert_eq!(served.get(&format!("/{address}")).code, 200, "{address}");
        found += 1;
    }
    assert_eq!(found, 2, "a style and a module");
    for module in PATHS.into_iter().filter(|path| path.ends_with(".js")) {
        for line in served.get(module).text().lines().filter(|line| line.starts_with("import ")) {
            let imported = line.split("\"./").nth(1).unwrap().trim_end_matches("\";");
            assert!(PATHS.contains(&format!("/{imported}").as_str()), "{module}: {line}");
        }
    }
}

#[test]
fn status_and_history_are_what_the_source_says() {
    let served = served();
    let status: Status = serde_json::from_slice(&served.get("/api/status").body).unwrap();
    assert_eq!((status.schema, status.run.as_str(), status.nodes.len()), (1, "run-7", 30));
    assert!(status.round >= 5_000 && status.mse.is_some());

    let points = |query: &str| -> Vec<Point> {
        let answer = served.get(&format!("/api/history{query}"));
        assert_eq!(answer.code, 200, "{query}");
        serde_json::from_slice(&answer.body).unwrap()
    };
    let all = points("");
    assert!((1_000..=2_000).contains(&all.len()), "{}", all.len());
    assert!(all.windows(2).all(|two| two[0].round < two[1].round));
    assert_eq!(
        points("?most=2000000").len(),
        points("?most=2000").len(),
        "there is an upper bound"
    );
    let few = points("?most=5");
    assert_eq!(few.len(), 5);
    assert!(few[4].round >= all[all.len() - 1].round && few[0].round < 10);
    assert_eq!(points("?most=0"), []);
    for bad in [
        "?most=-1",
        "?most=99999999999999999999999",
        "?most=x",
        "?most=",
        "?least=3",
        "?most=1&most=2",
    ] {
        let answer = served.get(&format!("/api/history{bad}"));
        assert_eq!(answer.code, 400, "{bad}");
        assert!(answer.text().contains("at most 2000"), "{bad}: {}", answer.text());
        assert_guarded(&answer, bad);
    }
}

#[test]
fn what_is_known_is_not_sent_again() {
    let served = served();
    for path in ["/", "/page.js", "/page.css"] {
        let first = served.get(path);
        let tag = first.header("etag").to_owned();
        assert!(tag.len() > 8, "{path}");
        let again = served.ask("GET", path, &format!("If-None-Match: \"other\", {tag}\r\n"));
        assert_eq!((again.code, again.body.len()), (304, 0), "{path}");
        assert_eq!(again.header("etag"), tag, "{path}");
        let changed = served.ask("GET", path, "If-None-Match: \"other\"\r\n");
        assert_eq!((changed.code, changed.body.len()), (200, first.body.len()), "{path}");
    }
}

#[test]
fn nothing_but_reading_is_possible() {
    let served = served();
    for path in PATHS {
        for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"] {
            let answer = served.ask(method, path, "Content-Length: 0\r\n");
            assert_eq!(answer.code, 405, "{method} {path}");
            assert_guarded(&answer, path);
        }
    }
}

#[test]
fn other_hosts_are_refused() {
    let served = served();
    let with_host = |host: &str, path: &str| {
        served.ask_raw(format!("GET {path} HTTP/1.1\r\n{host}Connection: close\r\n\r\n").as_bytes())
    };
    for ours in
        ["localhost", "127.0.0.1:8080", "[::1]:9", "hedgerow.example", "HEDGEROW.EXAMPLE:80"]
    {
        assert_eq!(with_host(&format!("Host: {ours}\r\n"), "/healthz").code, 200, "{ours}");
    }
    for path in PATHS {
        for stranger in [
            "Host: evil.example\r\n",
            "Host: localhost.evil.example\r\n",
            "Host: evil.example:80\r\nX-Forwarded-Host: localhost\r\n",
            "Host: \r\n",
            "Host: localhost\r\nHost: evil.example\r\n",
            "",
        ] {
            let answer = with_host(stranger, path);
            assert!(matches!(answer.code, 400 | 421), "{path} {stranger}: {}", answer.code);
            assert!(!answer.text().contains("run-7"), "{path} {stranger}");
            if answer.code == 421 {
                assert_guarded(&answer, stranger);
            }
        }
    }
}

#[test]
fn hostile_requests_get_nothing_and_break_nothing() {
    let served = served();
    let long = format!("/{}", "a".repeat(5_000));
    for path in [
        "/../Cargo.toml",
        "/..%2f..%2fetc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//",
        "//evil.example/",
        "/page.js/",
        "/page.js%00",
        "/./page.js",
        "/PAGE.JS",
        "/api",
        "/api/",
        "/api/status/x",
        "/index.html",
        "/<script>alert(1)</script>",
        "/%ff%fe",
        &long,
    ] {
        let answer = served.get(path);
        assert!(matches!(answer.code, 400 | 404), "{path}: {}", answer.code);
        assert!(!answer.text().contains("script"), "{path}");
        if answer.code == 404 {
            assert_guarded(&answer, path);
        }
    }
    for garbage in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        // Refused, or not worth an answer.
        let mut answer = Vec::new();
        let ended = served.connect(garbage).read_to_end(&mut answer).map_err(|error| error.kind());
        assert!(matches!(ended, Ok(_) | Err(ErrorKind::ConnectionReset)), "{ended:?}");
        let code = if answer.is_empty() { 400 } else { Answer::parse(&answer).code };
        assert!((400..600).contains(&code), "{}: {code}", garbage.escape_ascii());
    }
    assert_eq!(served.get("/healthz").code, 200);
}

#[test]
fn who_never_finishes_asking_is_hung_up_on() {
    let served = served();
    let half = [&b"GET /healthz HTTP/1.1\r\nHost: loc"[..], b"", b"G"];
    let waiting: Vec<_> = half.iter().map(|half| served.connect(half)).collect();
    for mut stream in waiting {
        let mut answer = Vec::new();
        // An end, or an answer and an end; the reader gives up long after the server should have.
        let ended = stream.read_to_end(&mut answer).map_err(|error| error.kind());
        assert!(matches!(ended, Ok(_) | Err(ErrorKind::ConnectionReset)), "{ended:?}");
        assert!(!answer.escape_ascii().to_string().contains("200 OK"));
    }
}

#[test]
fn stopping_ends_the_streams_that_have_no_end() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let mut listener_stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let source = Fake::new(Invented::new("run-7", "mk", 3, 10));
    let folder = tempfile::tempdir().unwrap();
    let logins = Arc::new(Logins::open(&folder.path().join("run.db"), false).unwrap());
    let routes = router(source, Metrics::new(), Hosts::default(), logins, CONNECTIONS);
    let serving = runtime.spawn(serve(listener, routes, 64));
    listener_stream.set_read_timeout(Some(PATIENCE)).unwrap();
    listener_stream.write_all(LISTEN).unwrap();
    let mut events = BufReader::new(listener_stream);
    next_status(&mut events);
    serving.abort();
    let ended = runtime.block_on(async { tokio::time::timeout(PATIENCE, serving).await });
    assert!(ended.expect("it stops").unwrap_err().is_cancelled());
    let ended = std::io::copy(&mut events, &mut std::io::sink()).map_err(|error| error.kind());
    assert!(matches!(ended, Ok(_) | Err(ErrorKind::ConnectionReset)), "{ended:?}");
}

#[test]
fn readiness_tells_why_not_and_health_goes_on() {
    let fake = Fake::new(Invented::new("run-7", "mk", 3, 10));
    let served = Served::start(fake.clone());
    fake.is_ready.store(false, SeqCst);
    let answer = served.get("/readyz");
    assert_eq!((answer.code, answer.text()), (503, "not ready: the disk is full\n"));
    assert_eq!(served.get("/healthz").code, 200);
}

#[test]
fn a_source_that_fails_is_not_the_end() {
    let fake = Fake::new(Invented::new("run-7", "mk", 3, 10));
    let served = Served::start(fake.clone());
    fake.is_broken.store(true, SeqCst);
    for path in ["/api/status", "/api/history", "/metrics"] {
        let answer = served.get(path);
        assert_eq!(answer.code, 500, "{path}");
        assert!(!answer.text().contains("as told"), "{path}");
    }
    assert_eq!(served.get("/healthz").code, 200);
    fake.is_broken.store(false, SeqCst);
    assert_eq!(served.get("/api/status").code, 200);
}

#[test]
fn a_crowd_asks_the_source_no_more_than_one_does() {
    let fake = Fake::new(Invented::new("run-7", "mk", 300, 10));
    let served = Served::start(fake.clone());
    let begun = std::time::Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for most in 0..10 {
                    assert_eq!(served.get("/api/status").code, 200);
                    assert_eq!(served.get("/metrics").code, 200);
                    assert_eq!(served.get(&format!("/api/history?most={most}")).code, 200);
                }
            });
        }
    });
    // One status and one history for each half second that began.
    let most = 2 * (begun.elapsed().as_millis() as usize / 500 + 1);
    let asked = fake.asked.load(SeqCst);
    assert!((2..=most).contains(&asked), "{asked} of at most {most}");
}

/// The head of an answer that may have no end.
fn read_head(stream: &mut impl BufRead) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(stream.read_line(&mut head).unwrap(), 0, "{head}");
    }
    head
}

/// The next event of a stream.
fn next_status(stream: &mut impl BufRead) -> Status {
    let (mut name, mut line) = (String::new(), String::new());
    loop {
        line.clear();
        assert_ne!(stream.read_line(&mut line).unwrap(), 0, "the stream goes on");
        if let Some(event) = line.strip_prefix("event: ") {
            name = event.trim().to_owned();
        }
        if let Some(data) = line.strip_prefix("data: ") {
            assert_eq!(name, "status");
            return serde_json::from_str(data).unwrap();
        }
    }
}

const LISTEN: &[u8] = b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n";

#[test]
fn events_tell_the_status_every_second() {
    let served = served();
    let mut stream = BufReader::new(served.connect(LISTEN));
    let head = read_head(&mut stream);
    assert!(
        head.contains("content-type: text/event-stream")
            && head.contains("content-security-policy")
    );
    let rounds: Vec<_> = (0..3).map(|_| next_status(&mut stream).round).collect();
    assert!(rounds[0] >= 5_000 && rounds[0] < rounds[1] && rounds[1] < rounds[2], "{rounds:?}");
}

#[test]
fn there_is_an_end_to_listeners_and_a_place_when_one_leaves() {
    let served = served();
    let mut listeners: Vec<_> = (0..CONNECTIONS / 2)
        .map(|_| {
            let mut stream = BufReader::new(served.connect(LISTEN));
            next_status(&mut stream);
            stream
        })
        .collect();
    let refused = read_head(&mut BufReader::new(served.connect(LISTEN)));
    assert!(
        refused.starts_with("HTTP/1.1 503") && refused.contains("retry-after: 10"),
        "{refused}"
    );
    assert_eq!(served.get("/api/status").code, 200);
    listeners.pop();
    let begun = std::time::Instant::now();
    // The server notices with the next event that it can't send.
    while !read_head(&mut BufReader::new(served.connect(LISTEN))).starts_with("HTTP/1.1 200") {
        assert!(begun.elapsed() < PATIENCE, "no place became free");
        std::thread::yield_now();
    }
}

#[test]
fn metrics_only_grow() {
    let metrics = Metrics::new();
    let served =
        Served::start_at(0, Fake::new(Invented::new("run-7", "mk", 3, 10)), metrics.clone());
    let taken = || {
        let page = served.get("/metrics");
        let line = page
            .text()
            .lines()
            .find(|line| line.starts_with("hedgerow_uploads_total{outcome=\"taken\"}"));
        line.unwrap().rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()
    };
    assert_eq!(taken(), 0);
    metrics.upload(Outcome::Taken);
    metrics.upload(Outcome::Late);
    assert_eq!(taken(), 1);
    metrics.upload(Outcome::Taken);
    assert_eq!(taken(), 2);
}
