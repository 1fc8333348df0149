//! What watches a server: alarms, the board of Grafana and the page about them name only metrics
//! that a running server exports.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;

use hedgerow_config::Layer;
use hedgerow_net::agent::client;
use hedgerow_net::agent::config::Settings;
use hedgerow_net::agent::driver::{self, Parts};
use hedgerow_net::agent::input::Input;
use hedgerow_net::agent::output::Output;
use hedgerow_net::coordinator::events::Event;
use hedgerow_net::serve::{ServeSettings, Server};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::common::until;

fn file(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).unwrap()
}

/// The alarms of the rules.
fn alarms() -> BTreeSet<String> {
    let rules = file("deploy/prometheus/hedgerow.rules.yml");
    let names = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    names.map(str::to_owned).collect()
}

/// Names of Hedgerow's metrics in a text.
fn metrics(text: &str) -> BTreeSet<String> {
    let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let words = text.split(|character| !is_part(character));
    words.filter(|word| word.starts_with("hedgerow_")).map(str::to_owned).collect()
}

/// A server with every kind of metric: it learns, and shares the importance of columns.
async fn server(folder: &Path) -> Server {
    let changes = [
        "learning.method=mk",
        "learning.columns=[\"u\", \"v\"]",
        "learning.nodes=1",
        "learning.importance=shared",
        "learning.scaling=none",
        "rounds.deadline=never",
        "listen.tls=false",
        "listen.address=127.0.0.1:0",
        "listen.dashboard=127.0.0.1:0",
    ];
    let mut changes = changes.map(str::to_owned).to_vec();
    changes.push(format!("store.path={:?}", folder.join("store.db")));
    Server::start(ServeSettings::read(&Layer::sets(&changes).unwrap()).unwrap()).await.unwrap()
}

/// A node that learns a sample in each of 40 rounds.
async fn learn(folder: &Path, server: SocketAddr) {
    let changes = [
        format!("server.address=\"{server}\""),
        "server.node=a".to_owned(),
        format!("state.path={:?}", folder.join("a.state")),
        "server.plain_text=true".to_owned(),
        "samples.pace=round".to_owned(),
    ];
    let settings = Settings::read(&Layer::sets(&changes).unwrap()).unwrap();
    let rows = (0..40).map(|row| format!("{},{},{}\n", row % 7, row % 5, row % 3));
    let samples: String = std::iter::once("u,v,y\n".to_owned()).chain(rows).collect();
    let parts = Parts {
        dial: client::tcp(&settings.server.address, true),
        security: settings.security().unwrap(),
        input: Box::new(move |_| Input::reading(std::io::Cursor::new(samples))),
        output: Output::to(std::io::sink()),
        asked: None,
        methods: &[],
    };
    driver::run(settings, parts, std::future::pending()).await.unwrap();
}

/// The names of the series on a page of metrics.
async fn scrape(address: SocketAddr) -> BTreeSet<String> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let question = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(question.as_bytes()).await.unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).await.unwrap();
    let (head, page) = page.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let names = page.lines().filter(|line| !line.starts_with('#'));
    names.filter_map(|line| line.split(['{', ' ']).next()).map(str::to_owned).collect()
}

#[tokio::test]
async fn a_server_exports_every_metric_that_is_watched() {
    let folder = TempDir::new().unwrap();
    let server = server(folder.path()).await;
    learn(folder.path(), server.address()).await;
    let dashboard = server.dashboard().unwrap();
    let mut exported = BTreeSet::new();
    until("the importance of columns is exported", async || {
        exported = scrape(dashboard).await;
        exported.contains("hedgerow_column_importance")
    })
    .await;
    for path in ["deploy/prometheus/hedgerow.rules.yml", "docs/operations.md"] {
        let watched = metrics(&file(path));
        assert!(watched.len() > 5, "{path}: {watched:?}");
        let missing: Vec<_> = watched.difference(&exported).collect();
        assert!(missing.is_empty(), "{path} names {missing:?}, and a server has {exported:?}");
    }
    let documented = metrics(&file("docs/operations.md"));
    let is_part = |name: &&String| !name.ends_with("_count") && !name.ends_with("_sum");
    let missing: Vec<_> = exported.difference(&documented).filter(is_part).collect();
    assert!(missing.is_empty(), "docs/operations.md lacks {missing:?}");
    server.stop().await.unwrap();
}

/// Values of the label `kind` in the rules.
fn kinds(rules: &str) -> BTreeSet<&str> {
    let labels = rules.split("kind=").skip(1);
    let values = labels.filter_map(|rest| rest.trim_start_matches('~').split('"').nth(1));
    values.flat_map(|kinds| kinds.split('|')).collect()
}

#[test]
fn events_of_alarms_exist() {
    let rules = file("deploy/prometheus/hedgerow.rules.yml");
    let (found, known) = (kinds(&rules), BTreeSet::from_iter(Event::KINDS.iter().copied()));
    assert!(found.len() > 3 && found.is_subset(&known), "{found:?} of {known:?}");
}

#[test]
fn every_alarm_has_a_section_a_test_and_a_link() {
    let (page, rules) = (file("docs/operations.md"), file("deploy/prometheus/hedgerow.rules.yml"));
    let test = file("deploy/prometheus/hedgerow.test.yml");
    let sections = page.lines().filter_map(|line| line.strip_prefix("### "));
    let sections: BTreeSet<_> =
        sections.filter(|name| name.starts_with("Hedgerow")).map(str::to_owned).collect();
    let alarms = alarms();
    assert!(alarms.len() > 10, "{alarms:?}");
    assert_eq!(sections, alarms, "docs/operations.md has a section for each alarm");
    for alarm in alarms {
        assert!(
            test.contains(&format!("alertname=\"{alarm}\"")),
            "{alarm} never fires in the test"
        );
        let link = format!("runbook: docs/operations.md#{}", alarm.to_lowercase());
        assert!(rules.contains(&link), "{alarm} has no {link:?}");
    }
}
