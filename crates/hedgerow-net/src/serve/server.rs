//! [`serve`]: runs a server from its settings until it is asked to stop.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hedgerow::Plan;
use hedgerow_data::schema::TableSchema;
use rustls::crypto::ring::default_provider;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep_until, timeout};

use super::certificates::CertificateWatch;
use super::config::ServeSettings;
use super::dashboard::{self, Hosts, Logins};
use super::descriptors::{Places, raise_limit};
use super::history_cache::HistoryCache;
use super::hub::{Hub, NotStored};
use super::listener::Listener;
use super::live_settings::LiveSettings;
use super::status::{SettingStatus, Source};
use super::ticks::every_second;
use crate::admin;
#[cfg(unix)]
use crate::admin::socket::Socket;
use crate::admin::token::TokenError;
use crate::coordinator::events::Event;
use crate::coordinator::records::Run;
use crate::coordinator::{BadRun, Coordinator, Window};
use crate::operations::{Action, ActionError, Actor, Outcome};
use crate::pki::identity::{
    IdentityError, ListNumbers, PlainTextRefused, ServerIdentity, check_plain_text,
};
use crate::pki::{Authority, Passphrase};
use crate::plan_json::{plan_from_json, plan_to_json};
use crate::storage::sqlite::KEPT_WHOLE;
use crate::storage::{Store, StoreError};
use crate::transport::grpc;

/// How long connections have to receive the last message.
const LAST_MESSAGE_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a server can't run, or failed to end properly.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The store can't be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The stored run can't be continued.
    #[error("{}: {source}", path.display())]
    Run {
        /// The store.
        path: PathBuf,
        /// What doesn't fit.
        source: BadRun,
    },
    /// The stored run has another learning configuration.
    #[error(
        "{}: the run in there learns something else: {difference}; choose another store, or put the settings right",
        path.display()
    )]
    OtherRun {
        /// The store.
        path: PathBuf,
        /// The first difference.
        difference: String,
    },
    /// The environment asks for metrics in a way that makes no sense.
    #[cfg(feature = "otlp")]
    #[error(transparent)]
    Otlp(#[from] super::otlp::OtlpError),
    /// The server's certificate can't be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The token of operators can't be used.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// Plain text is allowed on loopback only.
    #[error("without TLS, {0}")]
    PlainText(#[from] PlainTextRefused),
    /// The address can't be listened on.
    #[error("can't listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The system has no randomness for a new run's name.
    #[error("the system has no randomness for the name of a new run")]
    NoRandomness,
    /// The system gives no thread for the store.
    #[error("can't start the thread that writes the store: {0}")]
    NoThread(io::Error),
    /// The last round could not be stored.
    #[error(transparent)]
    NotStored(#[from] NotStored),
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// The run.
    pub run: String,
    /// The round that is open now.
    pub round: u64,
}

/// Runs a server until `shutdown`; then the open round closes if enough have answered
/// (`rounds.least`), everything is stored, and streams end.
pub async fn serve(
    settings: ServeSettings,
    shutdown: impl Future<Output = ()>,
) -> Result<Served, ServeError> {
    let server = Server::start(settings).await?;
    shutdown.await;
    server.stop().await
}

/// A running server. If dropped, it stops at once, as if it were killed.
pub struct Server {
    hub: Arc<Hub>,
    run: String,
    address: SocketAddr,
    dashboard: Option<SocketAddr>,
    /// Stops accepting connections.
    stop: watch::Sender<bool>,
    listener: JoinHandle<()>,
    chores: JoinSet<()>,
}

impl Server {
    /// Opens the store, begins or continues the run, and listens.
    pub async fn start(settings: ServeSettings) -> Result<Self, ServeError> {
        let live = LiveSettings::new(&settings);
        let ServeSettings {
            plan,
            limits,
            snapshots,
            address,
            dashboard,
            names,
            guards_reading,
            identity,
            store: path,
            durability,
            passphrase_file,
            ..
        } = settings;
        if identity.is_none() {
            check_plain_text(address)?;
        }
        #[cfg(feature = "otlp")]
        let exporter = super::otlp::Exporter::from_environment()?;
        let identity =
            identity.map(|folder| ServerIdentity::open(&folder)).transpose()?.map(Arc::new);
        let passphrase = passphrase_file.as_deref().map(Passphrase::read).transpose()?;
        let authority = identity.as_ref().map(|identity| {
            Authority::at(identity.folder()).with_passphrase(passphrase).acting_for("server")
        });
        if let Some(warning) = identity.as_ref().and_then(|identity| identity.warning()) {
            tracing::warn!("{warning}");
        }
        let places = places(limits.connections);
        let inputs = TableSchema::of_plan(plan.config()).map(|table| table.describe());
        let inputs = inputs.unwrap_or_default();
        let mut store = Store::open(&path, durability)?;
        store.keep_snapshots(snapshots)?;
        let condition = store.condition();
        let decisions = store.decisions()?;
        // The checksum of the text was right.
        let lists: ListNumbers = decisions.lists.parse().unwrap_or_default();
        if let Some(identity) = &identity {
            identity.check_lists(&lists)?;
        }
        let (live, unfit) = live.with_stored(&decisions.settings);
        for (key, error) in unfit {
            tracing::warn!("{key}, as an operator has set it, can't be used any more: {error}");
        }
        let run = begin(&mut store, &plan, &path)?;
        let saved = store.load()?;
        let refused = |source| ServeError::Run { path: path.clone(), source };
        let now = tokio::time::Instant::now().into_std();
        let mut coordinator = Coordinator::new(
            plan,
            live.rules(),
            live.limits(),
            saved.as_ref(),
            store.nodes()?,
            now,
        )
        .map_err(refused)?;
        let records = store.history(2 * KEPT_WHOLE as usize)?;
        let mut window = Window::default();
        let past = HistoryCache::from_records(&records, coordinator.totals(), &mut window);
        coordinator.set_window(window);
        let round = coordinator.opening().round;
        for SettingStatus { key, value, in_file } in live.differences() {
            tracing::info!(
                "{key} is {value}, as an operator has set it; in the file it is {in_file}"
            );
        }
        crate::log::set_level(live.log().level);
        let hub = Hub::new(run.clone(), (live, &decisions), coordinator, Box::new(store), past)
            .map_err(ServeError::NoThread)?;
        if let Some(identity) = &identity {
            // Certificates may have been revoked while no server ran.
            hub.expel(|serial| identity.is_revoked(serial));
        }
        if let Some(reason) = condition.warning() {
            hub.note(Event::StoreSuspect { reason: reason.to_owned() });
        }

        let failed = |address| move |source| ServeError::Listen { address, source };
        let listener =
            Listener::bind((address, places), identity.clone(), authority.clone(), &hub).await;
        let listener = listener.map_err(failed(address))?;
        let address = listener.address().map_err(failed(address))?;
        let (stop, stopped) = watch::channel(false);
        let mut chores = JoinSet::new();
        let dashboard = match dashboard {
            Some(wanted) => {
                let listener = TcpListener::bind(wanted).await.map_err(failed(wanted))?;
                let bound = listener.local_addr().map_err(failed(wanted))?;
                if !guards_reading && !bound.ip().to_canonical().is_loopback() {
                    tracing::warn!(
                        address = %bound,
                        "the dashboard shows everything to whoever reaches it: listen.login is \
                         \"never\""
                    );
                }
                let logins = Arc::new(Logins::open(&path, guards_reading)?);
                let (metrics, hosts) = (hub.metrics().clone(), Hosts::new(names));
                let (desk, readers) = (Arc::clone(&hub) as _, places.readers);
                let router = dashboard::router(desk, metrics, hosts, Arc::clone(&logins), readers);
                // They end with the chores.
                chores.spawn(dashboard::serve(listener, router, readers));
                chores.spawn(watch_token(logins));
                Some(bound)
            }
            None => None,
        };
        #[cfg(unix)]
        match Socket::bind(&path) {
            Ok(socket) => drop(chores.spawn(admin::serve(socket, Arc::clone(&hub) as _))),
            // Nodes can be served all the same.
            Err(error) => {
                tracing::error!("`hedgerow admin` can't be used on this machine: {error}")
            }
        }
        #[cfg(feature = "otlp")]
        if let Some(exporter) = exporter {
            chores.spawn(exporter.run(Arc::clone(&hub)));
        }
        chores.spawn(keep_time(Arc::clone(&hub)));
        chores.spawn(keep_tidy(Arc::clone(&hub)));
        if let (Some(identity), Some(authority)) = (identity, authority) {
            let watch = CertificateWatch::new(identity, authority, lists);
            chores.spawn(watch.run(Arc::clone(&hub)));
        }
        let nodes = grpc::service(Arc::clone(&hub));
        // Who joins with an operator's certificate is refused in the language of nodes.
        let operators =
            admin::router::remote(Arc::clone(&hub) as _).route_service(grpc::PATH, nodes.clone());
        let listener = tokio::spawn(listener.serve(nodes, operators, stopped));
        if !inputs.is_empty() {
            tracing::info!("inputs, which nodes make of their rows: {inputs}");
        }
        tracing::info!(run = run.id, round, %address, "serving");
        Ok(Self { hub, run: run.id, address, dashboard, stop, listener, chores })
    }

    /// Identity of the run.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// Where nodes connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the dashboard is, if anywhere.
    pub fn dashboard(&self) -> Option<SocketAddr> {
        self.dashboard
    }

    /// What the dashboard reads.
    pub fn source(&self) -> Arc<dyn Source> {
        Arc::clone(&self.hub) as _
    }

    /// Does what an operator asks for.
    pub async fn operate(&self, actor: Actor, action: Action) -> Result<Outcome, ActionError> {
        self.hub.operate(actor, action).await
    }

    /// Closes the open round if enough have answered, stores everything, tells all nodes, and ends.
    pub async fn stop(mut self) -> Result<Served, ServeError> {
        tracing::info!("going down");
        // No timer closes a round after the last one.
        self.chores.shutdown().await;
        let stored = self.hub.close().await;
        _ = self.stop.send(true);
        if timeout(LAST_MESSAGE_TIMEOUT, &mut self.listener).await.is_err() {
            tracing::info!("some nodes did not hear the last word in time");
        }
        stored?;
        let round = self.hub.status().round;
        tracing::info!(round, "ended");
        Ok(Served { run: self.run.clone(), round })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.listener.abort();
        self.hub.abandon();
    }
}

/// The stored run, if its configuration is the same, or a new run.
fn begin(store: &mut Store, plan: &Plan, path: &std::path::Path) -> Result<Run, ServeError> {
    let learning = plan_to_json(plan);
    if let Some(run) = store.run() {
        // Keys that an older version did not write have their defaults.
        let stored = plan_from_json(&run.learning, &[plan.method()])
            .map_or_else(|_| run.learning.clone(), |plan| plan_to_json(&plan));
        return match super::difference::first(&stored, &learning) {
            // Nodes hear which messages this version sends.
            None => Ok(Run { id: run.id.clone(), learning }),
            Some(difference) => Err(ServeError::OtherRun { path: path.to_owned(), difference }),
        };
    }
    let mut name = [0; 12];
    default_provider().secure_random.fill(&mut name).map_err(|_| ServeError::NoRandomness)?;
    let id = name.iter().map(|byte| format!("{byte:02x}")).collect();
    let run = Run { id, learning };
    store.begin(&run)?;
    Ok(run)
}

/// How many connections the system allows. Logs it, if that is fewer than the settings allow.
fn places(connections: usize) -> Places {
    let limit = raise_limit();
    let places = Places::new(connections, limit);
    if places.nodes < connections {
        let (descriptors, room) = (limit, places.nodes);
        tracing::warn!(
            descriptors,
            room,
            connections,
            "the system has room for fewer connections than are allowed: raise its limit \
             (LimitNOFILE), or lower limits.connections"
        );
    }
    places
}

/// Closes rounds when they are due.
async fn keep_time(hub: Arc<Hub>) {
    loop {
        match hub.tick() {
            Some(wake) => tokio::select! {
                () = sleep_until(wake.into()) => {}
                () = hub.rules_changed() => {}
            },
            None => hub.rules_changed().await,
        }
    }
}

/// Once a second: tries failed commits again, and stores nodes.
async fn keep_tidy(hub: Arc<Hub>) {
    let mut seconds = every_second();
    loop {
        seconds.tick().await;
        hub.tidy();
    }
}

/// Once a second: reads the token of the dashboard if it has changed.
async fn watch_token(logins: Arc<Logins>) {
    let mut seconds = every_second();
    let mut has_failed = false;
    loop {
        seconds.tick().await;
        match logins.reload() {
            Ok(true) => {
                tracing::info!("the token of the dashboard is new: all sessions have ended")
            }
            Ok(false) => has_failed = false,
            Err(error) if !std::mem::replace(&mut has_failed, true) => {
                tracing::error!(%error, "the token of the dashboard can't be read; the one before stays in force");
            }
            Err(_) => {}
        }
    }
}
