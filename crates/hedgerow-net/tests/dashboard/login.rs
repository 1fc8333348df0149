//! Who may read, and who may change something.

use hedgerow_net::serve::metrics::Metrics;
use serde_json::{Value, json};

use super::invented::Invented;
use super::{Answer, Fake, Served};

const READING: [&str; 4] = ["/api/status", "/api/history", "/events", "/metrics"];

fn served(guards_reading: bool) -> Served {
    let fake = Fake::new(Invented::new("run-7", "mk", 30, 100));
    Served::guarded(0, fake, Metrics::new(), guards_reading)
}

impl Served {
    fn post(&self, path: &str, headers: &str, body: &str) -> Answer {
        let length = body.len();
        self.ask_raw(
            format!(
                "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
                 Content-Length: {length}\r\n{headers}\r\n{body}"
            )
            .as_bytes(),
        )
    }

    fn log_in(&self, token: &str) -> Answer {
        self.post("/api/login", "", &json!({ "token": token }).to_string())
    }

    /// Headers of a session, and the one that its changes need.
    fn session(&self) -> (String, String) {
        let answer = self.log_in(&self.token());
        assert_eq!(answer.code, 200, "{}", answer.text());
        let cookie = answer.header("set-cookie").split(';').next().unwrap().to_owned();
        let csrf = answer.json()["csrf"].as_str().unwrap().to_owned();
        (format!("Cookie: {cookie}\r\n"), format!("X-Hedgerow-Csrf: {csrf}\r\n"))
    }
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

#[test]
fn nothing_changes_without_a_login_or_from_another_page() {
    let served = served(false);
    let pause = r#"{"action":"pause"}"#;
    let is_paused = || served.get("/api/status").json()["paused"] == json!(true);
    let (cookie, csrf) = served.session();
    let bearer = format!("Authorization: Bearer {}\r\n", served.token());
    let forged = format!("{cookie}X-Hedgerow-Csrf: {}\r\n", "0".repeat(64));
    let elsewhere = format!("{cookie}{csrf}Sec-Fetch-Site: cross-site\r\n");
    for headers in ["", &cookie, &csrf, &bearer, &forged, &elsewhere] {
        for path in ["/api/operate", "/api/logout"] {
            let answer = served.post(path, headers, pause);
            assert_eq!(answer.code, 403, "{path} {headers}");
            assert_eq!(answer.json()["error"], "not-logged-in");
        }
    }
    assert!(!is_paused());
    let both = format!("{cookie}{csrf}Sec-Fetch-Site: same-origin\r\n");
    let answer = served.post("/api/operate", &both, pause);
    assert_eq!((answer.code, &answer.json()["outcome"]), (200, &json!("done")));
    assert_eq!(answer.header("cache-control"), "no-store");
    // Others than the page of this host.
    let foreign = format!(
        "POST /api/operate HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n{both}Content-Length: 0\r\n\r\n"
    );
    assert_eq!(served.ask_raw(foreign.as_bytes()).code, 421);
    // What can't be done is said.
    for (body, code, part) in [
        (pause, 422, "paused already"),
        (r#"{"action":"ban","node":"nobody"}"#, 422, "nobody"),
        (r#"{"action":"backup","path":"../other.db"}"#, 422, "without folders"),
        (r#"{"action":"reboot"}"#, 400, "reboot"),
        ("", 400, "JSON"),
        (&"x".repeat(70_000), 413, "65536"),
    ] {
        let answer = served.post("/api/operate", &both, body);
        assert_eq!(answer.code, code, "{}", answer.text());
        let message = answer.json()["message"].as_str().unwrap().to_owned();
        assert!(message.contains(part), "{message}");
    }
    let session = served.ask("GET", "/api/session", &cookie).json();
    assert_eq!(session["reads"], json!(true));
    assert!(csrf.contains(session["csrf"].as_str().unwrap()));
    let ended = served.post("/api/logout", &both, "");
    assert_eq!((ended.code, ended.json()), (200, json!({ "reads": true, "csrf": null })));
    assert!(ended.header("set-cookie").contains("Max-Age=0"));
    assert_eq!(served.post("/api/operate", &both, pause).code, 403);
}

#[test]
fn guessing_a_token_is_stopped() {
    let served = served(false);
    for _ in 0..5 {
        let answer = served.log_in("guess");
        assert_eq!((answer.code, &answer.json()["error"]), (401, &json!("wrong-token")));
        assert!(!answer.headers.contains_key("set-cookie"));
    }
    let answer = served.log_in(&served.token());
    assert_eq!((answer.code, &answer.json()["error"]), (429, &json!("too-many")));
    assert!((1..=60).contains(&answer.header("retry-after").parse::<u32>().unwrap()));
    for (body, code) in [("{}", 400), (r#"{"token":"x","also":1}"#, 400), (&"x".repeat(5_000), 413)]
    {
        assert_eq!(served.post("/api/login", "", body).code, code, "{body:.20}");
    }
}

#[test]
fn where_reading_is_guarded_only_who_has_logged_in_reads() {
    let served = served(true);
    let rights = served.get("/api/session").json();
    assert_eq!(rights, json!({ "reads": false, "csrf": null }));
    for path in READING {
        let answer = served.get(path);
        assert_eq!((answer.code, &answer.json()["error"]), (401, &json!("login-needed")), "{path}");
        assert!(!answer.text().contains("run-7"), "{path}");
        assert_eq!(served.ask("GET", path, "Authorization: Bearer x\r\n").code, 401);
    }
    for path in ["/", "/page.js", "/operators.js", "/page.css", "/healthz", "/readyz"] {
        assert_eq!(served.get(path).code, 200, "{path}");
    }
    let (cookie, _) = served.session();
    let bearer = format!("Authorization: Bearer {}\r\n", served.token());
    for path in ["/api/status", "/api/history", "/metrics"] {
        for headers in [&cookie, &bearer] {
            assert_eq!(served.ask("GET", path, headers).code, 200, "{path}");
        }
    }
}
