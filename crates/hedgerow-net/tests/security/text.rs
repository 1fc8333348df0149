//! Bytes that are invalid messages, invalid gRPC or invalid HTTP/2.

use hedgerow_net::transport::protocol::wire::{self, from_node};
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::raw::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, Raw, SETTINGS, WINDOW_UPDATE,
    frame, grpc, header, request_headers,
};
use super::server::{AttackedServer, Style, reach, upload};
use crate::common::PATIENCE;

/// More than the server ever has to take.
const PLENTY: u32 = 0x7fff_ffff;

fn good_upload() -> Vec<u8> {
    wire::FromNode::from(from_node::Message::Upload(upload(1))).encode_to_vec()
}

/// On a stream that is open: no messages.
fn no_messages() -> Vec<(&'static str, Vec<u8>)> {
    let good = good_upload();
    let data = |body: &[u8]| frame(DATA, 0, 1, body);
    // An upload's numbers, longer than they are.
    let mut overlong = good.clone();
    overlong.truncate(good.len() / 2);
    let huge = vec![0x1a; 100_000];
    vec![
        ("bytes that mean nothing", data(&grpc(&[0xff; 40]))),
        ("an upload that ends in the middle", data(&grpc(&overlong))),
        ("a field of the wrong type", data(&grpc(&[0x10, 0x01]))),
        ("a name that is no text", data(&grpc(&[0x0a, 0x04, 0x12, 0x02, 0xff, 0xfe]))),
        ("a number without an end", data(&grpc(&[0x80; 64]))),
        ("groups in groups", data(&grpc(&[0x0b; 200]))),
        ("a compressed message", data(&[&[1, 0, 0, 0, 4], &good[..4]].concat())),
        ("a flag that there isn't", data(&[&[7, 0, 0, 0, 4], &good[..4]].concat())),
        ("a message of four gigabytes", data(&[0, 0xff, 0xff, 0xff, 0xff, 1, 2, 3])),
        (
            "a message above the limit",
            [data(&grpc(&huge)[..16_000]), data(&huge[..16_000])].concat(),
        ),
        ("an end within a message", frame(DATA, END_STREAM, 1, &grpc(&good)[..50])),
    ]
}

#[tokio::test]
async fn what_is_no_message_ends_its_stream_and_harms_nobody() {
    let attacked = AttackedServer::new(&[]).await;
    let tls = attacked.tls("mallory");
    let wrongs = no_messages();
    let times = attacked
        .besiege(async || {
            for (_, bytes) in &wrongs {
                // From a node that has joined, and as the first thing that is said.
                let mut raw = Raw::open(attacked.address(), Some(tls.clone()), PLENTY).await;
                raw.join("mallory").await;
                raw.write(bytes).await;
                raw.ended().await;
                let mut raw = Raw::open(attacked.address(), Some(tls.clone()), PLENTY).await;
                raw.request().await;
                raw.write(bytes).await;
                raw.ended().await;
                attacked.log.says(&["turned away", "mallory", &raw.address.to_string()]).await;
            }
        })
        .await;
    let expected = times * wrongs.len() as u64;
    assert_eq!((attacked.status().refused, attacked.node("mallory").refused), (expected, expected));
    assert_eq!(attacked.refused().await, expected);
    assert_eq!(attacked.turned_away().await, expected);
    let node = format!("node={}", attacked.node("mallory").number);
    assert_eq!(attacked.log.count(&["refused", &node, "too long, or no message"]) as u64, expected);
    attacked.until("alone", |status| status.connected == 2).await;
}

#[tokio::test]
async fn what_is_no_http_ends_its_connection_and_harms_nobody() {
    // Some of it ends the stream before it ends the connection, which then has so long for another.
    let attacked = AttackedServer::new(&["limits.handshake=1s"]).await;
    let tls = attacked.tls("mallory");
    let mut noise = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (noise >> 56) as u8
    })
    .take(40_000)
    .collect();
    let many: Vec<u8> = (0..2_000).flat_map(|_| header("x-filler", &"y".repeat(100))).collect();
    let first_headers = frame(HEADERS, 0, 3, &request_headers());
    let continued: Vec<u8> =
        many.chunks(16_000).flat_map(|part| frame(CONTINUATION, 0, 3, part)).collect();
    let beyond: Vec<u8> = (0..10).flat_map(|_| frame(DATA, 0, 1, &[0; 16_000])).collect();
    let resets: Vec<u8> = (0..5_000)
        .flat_map(|at| {
            let stream = 2 * at + 3;
            let open = frame(HEADERS, END_HEADERS, stream, &request_headers());
            [open, frame(3, 0, stream, &[0, 0, 0, 8])].concat()
        })
        .collect();
    let settings: Vec<u8> =
        (0..2_000).flat_map(|_| frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 9])).collect();
    let wrongs: [(&str, Vec<u8>); 8] = [
        ("noise", noise),
        ("data on no stream", frame(DATA, 0, 0, b"data")),
        ("a frame that is too long", frame(DATA, 0, 1, &[0; 20_000])),
        ("headers without an end", [first_headers, continued].concat()),
        ("a window beyond its bound", frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff])),
        ("more than the window allows", [frame(DATA, 0, 1, &[0, 0, 0, 5, 0]), beyond].concat()),
        ("streams opened and reset", resets),
        ("settings of the wrong length", [settings, frame(SETTINGS, 0, 0, &[1, 2, 3])].concat()),
    ];
    attacked
        .besiege(async || {
            for (_, bytes) in &wrongs {
                for has_joined in [false, true] {
                    let mut raw = Raw::open(attacked.address(), Some(tls.clone()), PLENTY).await;
                    if has_joined {
                        raw.join("mallory").await;
                    }
                    let Raw { io, address } = raw;
                    let (mut reader, mut writer) = tokio::io::split(io);
                    // Both at once: neither may wait for the other.
                    let writing = async {
                        _ = writer.write_all(bytes).await;
                        _ = writer.flush().await;
                    };
                    let mut heard = vec![];
                    let reading = timeout(PATIENCE, reader.read_to_end(&mut heard));
                    let ((), read) = tokio::join!(writing, reading);
                    read.unwrap_or_else(|_| panic!("still there")).ok();
                    if !has_joined {
                        attacked.log.says(&["turned away", &address.to_string()]).await;
                    }
                }
            }
        })
        .await;
    attacked.until("alone", |status| status.connected == 2).await;
}

#[tokio::test]
async fn who_speaks_another_language_is_turned_away() {
    let attacked = AttackedServer::new(&[]).await;
    let times = attacked
        .besiege(async || {
            for bytes in
                [b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", PREFACE, &[0x16; 300], &[0; 10]]
            {
                let mut socket = TcpStream::connect(attacked.address()).await.unwrap();
                socket.write_all(bytes).await.unwrap();
                let mut heard = vec![];
                _ = timeout(PATIENCE, socket.read_to_end(&mut heard)).await.expect("it is cut off");
                // At most an alert.
                assert!(heard.len() <= 7, "{heard:?}");
                let from = socket.local_addr().unwrap().to_string();
                attacked.log.says(&["turned away", &from, "TLS"]).await;
            }
        })
        .await;
    assert_eq!(attacked.turned_away().await, 4 * times);

    let plain = AttackedServer::with(Style { is_plain: true, ..Style::default() }).await;
    let times = plain
        .besiege(async || {
            let tcp = TcpStream::connect(plain.address()).await.unwrap();
            let from = tcp.local_addr().unwrap().to_string();
            let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
            let connector = tokio_rustls::TlsConnector::from(plain.tls("a"));
            let shaken =
                timeout(PATIENCE, connector.connect(name, tcp)).await.expect("it is cut off");
            assert!(shaken.is_err());
            plain.log.says(&["turned away", &from, "a node that speaks TLS"]).await;
            // HTTP/1 is none either.
            let (mut old, from) = reach(plain.address(), None).await.unwrap();
            old.write_all(b"POST /hedgerow.v1.Federation/Join HTTP/1.1\r\n\r\n").await.unwrap();
            _ = timeout(PATIENCE, old.read_to_end(&mut vec![])).await.expect("it is cut off");
            plain.log.says(&["turned away", &from.to_string()]).await;
        })
        .await;
    assert_eq!(plain.turned_away().await, 2 * times);
}
