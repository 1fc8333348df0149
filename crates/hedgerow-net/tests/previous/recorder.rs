//! Records what programs of the previous release say to each other.

use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::{Stream, StreamExt};
use hedgerow_net::transport::protocol::wire;
use hedgerow_net::transport::protocol::wire::federation_client::FederationClient;
use hedgerow_net::transport::protocol::wire::federation_server::{Federation, FederationServer};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use prost::Message;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tonic::transport::Endpoint;
use tonic::{Request, Response, Status, Streaming};

use super::full::{Programs, previous_programs};
use super::{NAMES, RECORDED, SAMPLES, SETTINGS, fixture, samples};
use crate::common::until;

/// Stands between nodes and their server, and writes down what they say.
#[derive(Clone)]
struct Recorder {
    server: String,
    written: Arc<Mutex<Vec<u8>>>,
    joined: Arc<AtomicU8>,
}

impl Recorder {
    fn write(&self, node: u8, direction: u8, message: &impl Message) {
        let message = message.encode_to_vec();
        let mut written = self.written.lock().unwrap();
        written.extend([node, direction]);
        written.extend((message.len() as u32).to_le_bytes());
        written.extend(message);
    }
}

#[tonic::async_trait]
impl Federation for Recorder {
    type JoinStream = Pin<Box<dyn Stream<Item = Result<wire::FromServer, Status>> + Send>>;

    async fn join(
        &self,
        request: Request<Streaming<wire::FromNode>>,
    ) -> Result<Response<Self::JoinStream>, Status> {
        let node = self.joined.fetch_add(1, Ordering::SeqCst);
        let (up, down) = (self.clone(), self.clone());
        let said = request.into_inner().filter_map(move |message| {
            let message = message.ok();
            message.iter().for_each(|message| up.write(node, 0, message));
            std::future::ready(message)
        });
        let endpoint = Endpoint::from_shared(self.server.clone()).unwrap();
        let mut client = FederationClient::new(endpoint.connect().await.unwrap());
        let answers = client.join(said).await?.into_inner();
        let answers = answers.inspect(move |message| {
            message.iter().for_each(|message| down.write(node, 1, message));
        });
        Ok(Response::new(Box::pin(answers)))
    }
}

async fn record(programs: &Programs, folder: &Path, changes: &[&str]) -> Vec<u8> {
    let server = programs.serve(folder, &[&SETTINGS, changes].concat());
    let recorder = Recorder {
        server: format!("http://{}", server.address),
        written: Arc::default(),
        joined: Arc::default(),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let service = FederationServer::new(recorder.clone());
    let accepting = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = TowerToHyperService::new(service.clone());
            tokio::spawn(async move {
                let builder = Builder::new(TokioExecutor::new());
                _ = builder.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    let mut nodes = Vec::new();
    for (number, name) in NAMES.into_iter().enumerate() {
        let flags = ["--plain-text", "--name", name].map(str::to_owned).to_vec();
        nodes.push(programs.join(folder, name, &address, &samples(number, 0..SAMPLES), flags));
        until("the node has been welcomed", async || {
            let written = recorder.written.lock().unwrap().clone();
            written.len() > 2 && recorder.joined.load(Ordering::SeqCst) as usize == number + 1 && {
                let welcomes = super::parsed(&written)[number].len();
                welcomes >= 2
            }
        })
        .await;
    }
    for mut node in nodes {
        assert!(node.wait().unwrap().success());
    }
    accepting.abort();
    recorder.written.lock().unwrap().clone()
}

/// `cargo xtask previous --write` runs it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the programs of the previous release, and writes files of the repository"]
async fn records_the_previous_release() {
    let programs = previous_programs();
    for (name, changes) in RECORDED {
        let folder = TempDir::new().unwrap();
        let written = record(&programs, folder.path(), changes).await;
        assert!(written.len() > 1_000);
        std::fs::create_dir_all(fixture(name).parent().unwrap()).unwrap();
        std::fs::write(fixture(name), written).unwrap();
    }
}
