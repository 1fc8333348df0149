//! Secrets must not appear in any log.

use std::fmt::Write;
use std::io::Cursor;
use std::path::Path;
use std::time::Duration;

use hedgerow_config::Layer;
use hedgerow_net::agent::client;
use hedgerow_net::agent::config::Settings;
use hedgerow_net::agent::driver::{self, Parts};
use hedgerow_net::agent::input::Input;
use hedgerow_net::agent::output::Output;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::version::TLS13;
use tokio::time::timeout;

use super::raw::{DATA, Raw, frame, grpc};
use super::server::{AttackedServer, ROUNDS, Style};
use crate::common::PATIENCE;
use crate::identity::fixture::{certificates, unchecked_client};

/// Samples of a node with numbers that are found nowhere else.
const SAMPLES: [(&str, &str); 4] = [
    ("0.7351926", "0.2948617"),
    ("-0.4817263", "0.8163957"),
    ("0.1928374", "-0.5647382"),
    ("0.9081726", "0.3736271"),
];

/// Every file of a folder.
fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut all = vec![];
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { all.extend(files(&path)) } else { all.push(path) }
    }
    all
}

/// How bytes might be written.
fn spellings(bytes: &[u8]) -> [String; 3] {
    let hex = bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    });
    let list = format!("{bytes:?}");
    [hex.to_uppercase(), hex, list.trim_matches(['[', ']']).to_owned()]
}

#[tokio::test]
async fn secrets_and_samples_are_never_logged() {
    let nap = Duration::from_millis(20);
    let attacked =
        AttackedServer::with(Style { nap, is_chatty: true, is_tolerant: true, ..Style::default() })
            .await;
    // A real node that learns.
    let file = attacked.fixture.authority.issue("teller", 10).unwrap();
    let changes = [
        format!("server.address=\"localhost:{}\"", attacked.address().port()),
        format!("server.identity={file:?}"),
        format!("state.path={:?}", attacked.fixture.folder.path().join("teller.state")),
        "samples.pace=round".to_owned(),
    ];
    let settings = Settings::read(&Layer::sets(changes).unwrap()).unwrap();
    let text: String = SAMPLES.map(|(x, y)| format!("{{\"a\": {x}, \"y\": {y}}}\n")).concat();
    let parts = Parts {
        dial: client::tcp(&settings.server.address, settings.server.plain_text),
        security: settings.security().unwrap(),
        input: Box::new(move |_| Input::reading(Cursor::new(text))),
        output: Output::none(),
        asked: None,
        methods: &[],
    };
    let learning = timeout(PATIENCE, driver::run(settings, parts, std::future::pending())).await;
    learning.unwrap_or_else(|_| panic!("it still learns:\n{}", attacked.log.tail())).unwrap();
    assert!(attacked.node("teller").samples > 0);
    // ConnectError of all kinds, which is told of.
    let ours = certificates(&attacked.fixture.file("ca.pem"))[0].clone();
    attacked.knock(unchecked_client(None, &ours, &TLS13)).await;
    let mallory = attacked.tls("mallory");
    let mut raw = Raw::open(attacked.address(), Some(mallory.clone()), 1 << 20).await;
    raw.join("mallory").await;
    raw.write(&frame(DATA, 0, 1, &grpc(b"-----BEGIN PRIVATE KEY-----"))).await;
    raw.ended().await;
    attacked.fixture.authority.revoke("mallory").unwrap();
    attacked.log.says(&["read again"]).await;
    attacked.knock(mallory).await;
    // Files that can't be used any more.
    let spoilt = attacked.fixture.file("server.pem");
    let good = std::fs::read_to_string(&spoilt).unwrap();
    std::fs::write(&spoilt, good.replacen("BEGIN CERTIFICATE", "BEGIN NOTHING", 1)).unwrap();
    attacked.log.says(&["ERROR", "can't be read"]).await;
    std::fs::write(&spoilt, good).unwrap();
    attacked.rounds(ROUNDS).await;

    let log = attacked.log.text();
    for said in [
        "turned away",
        "refused",
        "joined",
        "h2::codec",
        "hedgerow_net::serve",
        "hedgerow_net::agent",
    ] {
        assert!(log.contains(said), "nothing of {said}");
    }
    assert!(!log.contains("PRIVATE KEY") && !log.contains("-----BEGIN"));
    let mut keys = 0;
    for file in files(attacked.fixture.authority.folder()) {
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        for line in text.lines().filter(|line| line.len() >= 32 && !line.contains(['-', '{'])) {
            assert!(!log.contains(line), "{}: {line}", file.display());
        }
        if let Ok(key) = PrivateKeyDer::from_pem_file(&file) {
            let der = key.secret_der();
            // What is the same in all of them is no secret.
            for part in der[der.len() / 4..].chunks_exact(12) {
                for spelling in spellings(part) {
                    assert!(!log.contains(&spelling), "{}", file.display());
                }
            }
            keys += 1;
        }
    }
    assert!(keys >= 5, "{keys} keys");
    for (x, y) in SAMPLES {
        for number in [x, y] {
            assert!(!log.contains(number.trim_start_matches(['-', '0', '.'])), "{number}");
        }
    }
}
