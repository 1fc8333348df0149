//! Many connections at once: idle ones, and more than the limit.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hedgerow_config::Layer;
use hedgerow_net::serve::{ServeError, ServeSettings, Server};
use rustls::ClientConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::raw::{DATA, PING, PREFACE, Raw, frame};
use super::server::{AttackedServer, ROUNDS, ScriptedClient, hello, reach};
use crate::common::{PATIENCE, until};

/// A way to block a connection slot.
#[derive(Debug, Clone, Copy)]
enum Idler {
    /// Says nothing at all.
    Silent,
    /// Begins TLS, a byte at a time.
    Dribbling,
    /// Stops after TLS.
    Secured,
    /// Begins HTTP/2, a byte at a time.
    Prefacing,
    /// Opens no stream.
    Streamless,
    /// Opens one and says nothing.
    Speechless,
    /// Says Hello, a byte at a time.
    Stammering,
    /// Asks for signs of life and doesn't take them.
    Deaf,
}

const IDLERS: [Idler; 8] = [
    Idler::Silent,
    Idler::Dribbling,
    Idler::Secured,
    Idler::Prefacing,
    Idler::Streamless,
    Idler::Speechless,
    Idler::Stammering,
    Idler::Deaf,
];

impl Idler {
    /// Waits until the server ends the connection. Returns its address.
    async fn stand(self, server: SocketAddr, tls: Arc<ClientConfig>) -> SocketAddr {
        match self {
            Self::Silent => {
                let (mut io, from) = reach(server, None).await.unwrap();
                _ = io.read_to_end(&mut vec![]).await;
                from
            }
            Self::Dribbling => {
                let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
                let mut hello = vec![];
                rustls::ClientConnection::new(tls, name).unwrap().write_tls(&mut hello).unwrap();
                let (io, from) = reach(server, None).await.unwrap();
                dribble(io, &hello).await;
                from
            }
            Self::Secured => {
                let (mut io, from) = reach(server, Some(tls)).await.unwrap();
                _ = io.read_to_end(&mut vec![]).await;
                from
            }
            Self::Prefacing => {
                let (io, from) = reach(server, Some(tls)).await.unwrap();
                dribble(io, PREFACE).await;
                from
            }
            Self::Streamless => {
                let mut raw = Raw::open(server, Some(tls), 1 << 16).await;
                _ = raw.io.read_to_end(&mut vec![]).await;
                raw.address
            }
            Self::Speechless => {
                let mut client = ScriptedClient::open(server, Some(tls)).await.unwrap();
                client.end().await;
                client.address
            }
            Self::Stammering => {
                let mut raw = Raw::open(server, Some(tls), 1 << 16).await;
                raw.request().await;
                raw.write(&frame(DATA, 0, 1, &[0, 0, 0, 1, 0])).await;
                let bytes: Vec<u8> = (0..256).flat_map(|_| frame(DATA, 0, 1, &[0x0a])).collect();
                dribble(raw.io, &bytes).await;
                raw.address
            }
            Self::Deaf => {
                let mut raw = Raw::open(server, Some(tls), 1 << 16).await;
                let pings: Vec<u8> = (0..1_000).flat_map(|_| frame(PING, 0, 0, &[1; 8])).collect();
                while raw.io.write_all(&pings).await.is_ok() {}
                raw.address
            }
        }
    }
}

/// Writes a byte now and then, and never the last one, until the other side ends it.
async fn dribble(io: Box<dyn hedgerow_net::transport::Connection>, bytes: &[u8]) {
    let (mut reader, mut writer) = tokio::io::split(io);
    let writing = async {
        for byte in &bytes[..bytes.len() - 1] {
            if writer.write_all(&[*byte]).await.is_err() || writer.flush().await.is_err() {
                return;
            }
            sleep(Duration::from_millis(40)).await;
        }
        std::future::pending().await
    };
    let mut heard = vec![];
    tokio::select! {
        () = writing => {}
        _ = reader.read_to_end(&mut heard) => {}
    }
}

#[tokio::test]
async fn whoever_only_stands_there_is_cut_off() {
    const EACH: usize = 8;
    let changes = ["limits.handshake=2s", "limits.connections_per_address=68"];
    let attacked = AttackedServer::new(&changes).await;
    let tls = attacked.tls("idler");
    // Honest rounds close while idlers stand there. A busy machine may need several crowds for it;
    // a server that waits for idlers closes none, however many there are.
    let (mut rounds, mut crowds) = (0, 0);
    while rounds < ROUNDS && crowds < 10 {
        let begin = attacked.status().round;
        crowd_of_idlers(&attacked, EACH, &tls).await;
        rounds += attacked.status().round - begin;
        crowds += 1;
    }
    assert!(rounds >= ROUNDS, "{rounds} rounds during {crowds} crowds\n{}", attacked.log.tail());
    attacked.is_well();
    let status = attacked.status();
    assert_eq!((status.nodes_known, status.connected), (2, 2));
    assert_eq!(attacked.turned_away().await, (crowds * EACH * IDLERS.len()) as u64);
    // All their slots are free again.
    let mut places = vec![];
    for at in 0..60 {
        places.push(attacked.client(&format!("n{at}")).await);
    }
    attacked.until("all there", |status| status.connected == 62).await;
}

/// Idlers of every kind at once, until the server has cut off each of them with its reason.
async fn crowd_of_idlers(attacked: &AttackedServer, each: usize, tls: &Arc<ClientConfig>) {
    // On a thread of their own: what they do themselves is not the server's time.
    let (server, (told, mut stood)) = (attacked.address(), mpsc::unbounded_channel());
    let tls = Arc::clone(tls);
    let crowd = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut crowd = JoinSet::new();
            for idler in IDLERS.repeat(each) {
                let (standing, told) = (idler.stand(server, tls.clone()), told.clone());
                crowd.spawn(async move {
                    let stood = timeout(PATIENCE, standing).await;
                    _ = told.send((
                        idler,
                        stood.unwrap_or_else(|_| panic!("{idler:?} is still there")),
                    ));
                });
            }
            crowd.join_all().await;
        });
    });
    for _ in 0..each * IDLERS.len() {
        let (idler, from) = timeout(2 * PATIENCE, stood.recv()).await.unwrap().unwrap();
        let expected = match idler {
            Idler::Silent | Idler::Dribbling => "no TLS within 2s",
            Idler::Deaf => "nobody",
            Idler::Speechless | Idler::Stammering => "",
            Idler::Secured | Idler::Prefacing | Idler::Streamless => "nobody joined",
        };
        attacked.log.says(&["turned away", &from.to_string(), expected]).await;
    }
    crowd.join().unwrap();
}

#[tokio::test]
async fn a_flood_of_connections_finds_no_place() {
    const FLOOD: u64 = 400;
    let changes =
        ["limits.handshake=60s", "limits.connections_per_address=40", "limits.connections=60"];
    let attacked = AttackedServer::new(&changes).await;
    let mut crowd = vec![];
    for _ in 0..38 {
        crowd.push(TcpStream::connect(attacked.address()).await.unwrap());
    }
    let flood = async || {
        let mut refused = TcpStream::connect(attacked.address()).await.unwrap();
        let read = timeout(PATIENCE, refused.read(&mut [0])).await.expect("it is cut off");
        assert!(matches!(read, Ok(0) | Err(_)));
        refused.local_addr().unwrap()
    };
    // Until all of the crowd have been accepted, one that comes later may be let in before.
    until("a full server", async || {
        crowd.push(TcpStream::connect(attacked.address()).await.unwrap());
        attacked.log.count(&["turned away", "too many connections"]) > 0
    })
    .await;
    let before = attacked.turned_away().await;
    let mut times = 0;
    attacked
        .besiege(async || {
            for _ in 0..FLOOD / 10 {
                let from = flood().await;
                attacked
                    .log
                    .says(&["turned away", &from.to_string(), "too many connections"])
                    .await;
                times += 1;
            }
        })
        .await;
    assert_eq!(attacked.turned_away().await, before + times);
    let warnings = attacked.log.count(&["WARN", "too many connections"]) as u64;
    assert!((1..=times / 2).contains(&warnings), "{warnings} of {times}");
    // Other addresses still have slots.
    if cfg!(target_os = "linux") {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let tcp = socket.connect(attacked.address()).await.unwrap();
        let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
        tokio_rustls::TlsConnector::from(attacked.tls("far")).connect(name, tcp).await.unwrap();
    }
    attacked.rounds(ROUNDS).await;
    // This address too, once the crowd has disconnected.
    drop(crowd);
    let tls = attacked.tls("late");
    until("a place", async || {
        let Ok(mut client) = ScriptedClient::open(attacked.address(), Some(tls.clone())).await
        else {
            return false;
        };
        client.say(hello("late")).await;
        client.welcome().await;
        true
    })
    .await;
}

#[tokio::test]
async fn plain_text_stays_at_home() {
    let folder = tempfile::tempdir().unwrap();
    let read = |address: &str| {
        let store = format!("store.path={:?}", folder.path().join("run.db"));
        let address = format!("listen.address={address:?}");
        let more = ["learning.inputs=1", "listen.tls=false", "listen.dashboard=never"];
        let changes: Vec<String> =
            more.map(str::to_owned).into_iter().chain([store, address]).collect();
        ServeSettings::read(&Layer::sets(&changes).unwrap())
    };
    for address in ["0.0.0.0:0", "192.0.2.1:7443", "[::]:0", "[2001:db8::1]:7443"] {
        let message = read(address).unwrap_err().to_string();
        assert!(message.contains("listen.tls") && message.contains("loopback"), "{message}");
    }
    // Nor by settings that were changed after they had been read.
    let mut settings = read("127.0.0.1:0").unwrap();
    settings.address = "0.0.0.0:0".parse().unwrap();
    let error = Server::start(settings).await.err().unwrap();
    assert!(
        matches!(error, ServeError::PlainText(_)) && error.to_string().contains("0.0.0.0"),
        "{error}"
    );
    assert!(!folder.path().join("run.db").exists());
    Server::start(read("[::1]:0").unwrap()).await.unwrap();
}
