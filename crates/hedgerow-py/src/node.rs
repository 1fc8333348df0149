//! [`Node`]: a node of a running server, on threads of its own.

use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use hedgerow_config::Layer;
use hedgerow_net::agent::client;
use hedgerow_net::agent::config::{AtEnd, Settings, SettingsError, Source};
use hedgerow_net::agent::driver::{self, AgentError, Parts};
use hedgerow_net::agent::http::{Asked, Question, Reply};
use hedgerow_net::agent::input::Input;
use hedgerow_net::agent::output::Output;
use hedgerow_net::agent::sample::Sample;
use hedgerow_net::agent::state::StateError;
use pyo3::exceptions::{PyConnectionError, PyFileNotFoundError, PyKeyError, PyOSError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyString, PyTuple};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::arrays;
use crate::batch::{self, lock};
use crate::errors;
use crate::labels;
use crate::plan::Plan;

/// Interval of checks for Ctrl-C.
const SIGNAL_POLL: Duration = Duration::from_millis(50);

/// Questions that may wait.
const QUEUE: usize = 64;

/// A node of a running ``hedgerow serve``: it keeps in touch with the server by itself, and answers
/// while the server is away.
///
/// ``server`` is ``HOST:PORT``. ``identity`` is the file that ``hedgerow pki issue`` made for this
/// node; without one it speaks plain text, on loopback only, under ``name``. ``state`` is the file
/// that the node is kept in between runs; without one it starts from nothing. ``timeout`` is how
/// many seconds the first contact may take; a node that goes on from its state doesn't wait for it.
/// ``settings`` are others, as in ``hedgerow join``: ``{"server.keep_alive": "5s"}``.
///
/// Use it in a ``with`` block, or close it.
#[pyclass(frozen, module = "hedgerow")]
pub(crate) struct Node {
    live: Mutex<Option<Live>>,
    plan: OnceLock<Plan>,
    server: String,
    /// The process that its threads are in: they don't come along into forks.
    process: u32,
}

struct Live {
    asked: mpsc::Sender<Asked>,
    shutdown: oneshot::Sender<()>,
    agent: JoinHandle<Result<(), AgentError>>,
    runtime: Runtime,
    /// Where a node without a state of its own is kept.
    _folder: Option<TempDir>,
}

#[pymethods]
impl Node {
    #[new]
    #[pyo3(signature = (server, identity=None, *, name="", server_name="", state=None, timeout=10.0, settings=None))]
    #[expect(clippy::too_many_arguments, reason = "in Python they have names")]
    fn new(
        py: Python<'_>,
        server: &str,
        identity: Option<PathBuf>,
        name: &str,
        server_name: &str,
        state: Option<PathBuf>,
        timeout: f64,
        settings: Option<std::collections::BTreeMap<String, Bound<'_, PyAny>>>,
    ) -> PyResult<Self> {
        if identity.is_some() != name.is_empty() {
            return Err(errors::value(
                "either identity or name says who this is: a node with a certificate has its name from that",
            ));
        }
        let patience = Duration::try_from_secs_f64(timeout).map_err(|_| {
            errors::value(format!("timeout must be seconds from 0 on, but is {timeout}"))
        })?;
        let folder = state
            .is_none()
            .then(TempDir::new)
            .transpose()
            .map_err(|error| errors::of_system(&error))?;
        let own = || folder.as_ref().map(|folder| folder.path().join("node.state"));
        let state = state.or_else(own).unwrap_or_default();
        let mut layers = vec![
            Layer::value("", "server.address", server),
            Layer::value("", "server.node", name),
            Layer::value("", "server.name", server_name),
            Layer::value("", "state.path", text(&state)?),
            Layer::value("", "server.plain_text", identity.is_none()),
        ];
        if let Some(identity) = &identity {
            layers.push(Layer::value("", "server.identity", text(identity)?));
        }
        for (key, value) in settings.unwrap_or_default() {
            if key.starts_with("samples.") && key != "samples.interval" {
                return Err(errors::value(format!(
                    "{key} has no meaning here: samples come from Python"
                )));
            }
            layers.push(Layer::value("", &key, crate::plan::to_toml(&key, &value)?));
        }
        let mut settings = Settings::read(&layers).map_err(|error| errors::config(&error))?;
        settings.samples.source = Source::None;
        settings.samples.at_end = AtEnd::Stay;
        let security = settings.security().map_err(|error| refused(&error))?;
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| errors::of_system(&error))?;
        let (asked, questions) = mpsc::channel(QUEUE);
        let (shutdown, ended) = oneshot::channel();
        let parts = Parts {
            dial: client::tcp(&settings.server.address, settings.server.plain_text),
            security,
            input: Box::new(|_| Input::None),
            output: Output::none(),
            asked: Some(questions),
            methods: &[],
        };
        let agent = runtime.spawn(driver::run(settings, parts, async move { _ = ended.await }));
        let live = Live { asked, shutdown, agent, runtime, _folder: folder };
        let node = Self {
            live: Mutex::new(Some(live)),
            plan: OnceLock::new(),
            server: server.to_owned(),
            process: process::id(),
        };
        node.wait_until_ready(py, patience)?;
        Ok(node)
    }

    /// Predicts the label of one sample: a number, a tuple of numbers if the federation has several
    /// targets, or the name of a class.
    fn predict_one<'py>(&self, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let answer = self.predicted(x)?;
        predictions(x.py(), &answer["prediction"])
    }

    /// The probability of each class for one sample, by name.
    fn predict_proba_one<'py>(&self, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        let py = x.py();
        let plan = self.told(py)?;
        labels::check_classes(&plan.0)?;
        let (answer, named) = (self.predicted(x)?, PyDict::new(py));
        for class in &plan.0.config().classes {
            named.set_item(class, answer["probabilities"][class].as_f64())?;
        }
        Ok(named)
    }

    /// The interval in which the label of one sample is expected: its lower and upper end, or both
    /// for each of several targets. Ends are NaN before the first label that was predicted by a
    /// model, and for classes. The setting ``samples.interval`` has the probability, 0.9 by
    /// default.
    fn predict_interval_one<'py>(&self, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = x.py();
        let plan = self.told(py)?.0;
        let answer = self.predicted(x)?;
        let end = |name: &str, target: usize| {
            let end = &answer[name];
            end.as_f64().or_else(|| end[target].as_f64()).unwrap_or(f64::NAN)
        };
        let ends = |target| (end("lower", target), end("upper", target));
        if plan.outputs() == 1 || plan.classes().is_some() {
            return Ok(ends(0).into_pyobject(py)?.into_any());
        }
        Ok(PyTuple::new(py, (0..plan.outputs()).map(ends))?.into_any())
    }

    /// Learns from one sample. Returns the prediction made before. Without a label (None, NaN) the
    /// sample is only predicted.
    fn learn_one<'py>(
        &self,
        x: &Bound<'py, PyAny>,
        y: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = x.py();
        let (sample, y) = (self.sample(x)?, labels::read(&self.told(py)?.0, y)?);
        let answer = self.take(py, Sample { y, ..sample })?;
        predictions(py, &answer["prediction"])
    }

    /// Predicts, and remembers the sample until its label arrives.
    fn predict_later<'py>(&self, id: &str, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let sample = Sample { id: Some(id.to_owned()), ..self.sample(x)? };
        let answer = self.take(x.py(), sample)?;
        predictions(x.py(), &answer["prediction"])
    }

    /// Learns the label of an earlier prediction. Returns that prediction. Raises KeyError if no
    /// prediction waits under this id.
    fn learn_by_id<'py>(&self, id: &str, y: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = y.py();
        let y = Some(labels::known(&self.told(py)?.0, y)?);
        let answer = self.take(py, Sample { id: Some(id.to_owned()), y, ..Sample::default() })?;
        predictions(py, &answer["prediction"])
    }

    /// The status, like ``GET /status`` of a node.
    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let reply = self.ask(py, Question::Status)?;
        py.import("json")?.call_method1("loads", (reply.body.to_string(),))
    }

    /// Whether it is connected to the server.
    #[getter]
    fn is_connected(&self, py: Python<'_>) -> PyResult<bool> {
        let reply = self.ask(py, Question::Status)?;
        Ok(reply.body["connected"].as_bool().unwrap_or(false))
    }

    /// The current round.
    #[getter]
    fn round(&self, py: Python<'_>) -> PyResult<u64> {
        let reply = self.ask(py, Question::Status)?;
        Ok(reply.body["node"]["round"].as_u64().unwrap_or(0))
    }

    /// The plan of the server.
    #[getter]
    fn plan(&self, py: Python<'_>) -> PyResult<Plan> {
        self.told(py)
    }

    /// Whether it was closed.
    #[getter]
    fn is_closed(&self, py: Python<'_>) -> bool {
        self.is_elsewhere() || lock(py, &self.live).is_none()
    }

    /// Sends its last messages, saves the state and disconnects. A second call does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_elsewhere() {
            return Ok(());
        }
        let Some(live) = lock(py, &self.live).take() else { return Ok(()) };
        py.detach(|| live.end())
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (kind=None, error=None, trace=None))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<&Bound<'_, PyAny>>,
        error: Option<&Bound<'_, PyAny>>,
        trace: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        // The node leaves, also after an exception in the block.
        _ = (kind, error, trace);
        self.close(py)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let closed = if self.is_closed(py) { ", closed" } else { "" };
        format!("Node('{}'{closed})", self.server)
    }
}

impl Live {
    fn end(self) -> PyResult<()> {
        let Self { asked, shutdown, agent, runtime, _folder } = self;
        drop(asked);
        _ = shutdown.send(());
        let outcome = runtime.block_on(agent);
        runtime.shutdown_timeout(SIGNAL_POLL);
        match outcome {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(failed(&error)),
            Err(error) => Err(errors::connection(error)),
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // A fork has neither the threads that could end nor a right to the files.
        if self.is_elsewhere() {
            std::mem::forget(self.live.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}

impl Node {
    /// Whether this is a fork of the process that it lives in.
    fn is_elsewhere(&self) -> bool {
        process::id() != self.process
    }

    /// A sample without a label.
    fn sample(&self, x: &Bound<'_, PyAny>) -> PyResult<Sample> {
        let plan = self.told(x.py())?.0;
        // First, because it names the column that is wrong.
        let row = Some(batch::sample(&plan, x)?);
        let unseen = arrays::unseen_texts(x, &plan.config().columns)?;
        Ok(Sample { x: row, unseen, ..Sample::default() })
    }

    /// What the node says of a sample.
    fn predicted(&self, x: &Bound<'_, PyAny>) -> PyResult<Value> {
        self.take(x.py(), self.sample(x)?)
    }

    /// What is learned, once the server has told it.
    fn told(&self, py: Python<'_>) -> PyResult<Plan> {
        if let Some(plan) = self.plan.get() {
            return Ok(plan.clone());
        }
        let reply = self.answered(self.ask(py, Question::Plan)?)?;
        let plan = Plan::from_json(reply.as_str().unwrap_or_default())?;
        Ok(self.plan.get_or_init(|| plan).clone())
    }

    fn take(&self, py: Python<'_>, sample: Sample) -> PyResult<Value> {
        let reply = self.ask(py, Question::Sample(sample))?;
        self.answered(reply)
    }

    fn answered(&self, reply: Reply) -> PyResult<Value> {
        let Reply { status, body } = reply;
        let reason = || body["error"].as_str().unwrap_or_default().to_owned();
        match status.as_u16() {
            200 => Ok(body),
            404 => Err(PyKeyError::new_err(reason())),
            503 => Err(errors::connection(reason())),
            _ => Err(errors::value(reason())),
        }
    }

    /// Asks the agent, and lets the user end the wait.
    fn ask(&self, py: Python<'_>, question: Question) -> PyResult<Reply> {
        let closed = || errors::connection(format!("the node of {} is closed", self.server));
        if self.is_elsewhere() {
            let server = &self.server;
            return Err(errors::connection(format!(
                "the node of {server} is in another process: a fork needs one of its own"
            )));
        }
        let (asked, handle) = {
            let live = lock(py, &self.live);
            let live = live.as_ref().ok_or_else(closed)?;
            (live.asked.clone(), live.runtime.handle().clone())
        };
        let (reply, mut answer) = oneshot::channel();
        let mut waiting = Some(Asked { question, reply });
        loop {
            let outcome = py.detach(|| {
                handle.block_on(async {
                    let wait = async {
                        if waiting.is_some() {
                            let place = asked.reserve().await.map_err(|_| ())?;
                            if let Some(question) = waiting.take() {
                                place.send(question);
                            }
                        }
                        (&mut answer).await.map_err(|_| ())
                    };
                    timeout(SIGNAL_POLL, wait).await
                })
            });
            match outcome {
                Ok(Ok(reply)) => return Ok(reply),
                Ok(Err(())) => return Err(self.why_ended(py).unwrap_or_else(closed)),
                Err(_) => py.check_signals()?,
            }
        }
    }

    /// Why the agent has ended by itself.
    fn why_ended(&self, py: Python<'_>) -> Option<PyErr> {
        let live = lock(py, &self.live).take()?;
        py.detach(|| live.end()).err()
    }

    fn wait_until_ready(&self, py: Python<'_>, patience: Duration) -> PyResult<()> {
        let begun = Instant::now();
        loop {
            match self.told(py) {
                Ok(_) => return Ok(()),
                Err(error) => {
                    let waits = error.is_instance_of::<PyConnectionError>(py);
                    if !waits || begun.elapsed() >= patience || self.is_closed(py) {
                        // Why it failed is what counts, not how it ended.
                        _ = self.close(py);
                        return Err(error);
                    }
                }
            }
            py.check_signals()?;
            py.detach(|| std::thread::sleep(SIGNAL_POLL));
        }
    }
}

/// Predictions of a node as Python has them.
fn predictions<'py>(py: Python<'py>, shown: &Value) -> PyResult<Bound<'py, PyAny>> {
    let number = |shown: &Value| shown.as_f64().unwrap_or(f64::NAN);
    match shown {
        Value::String(class) => Ok(PyString::new(py, class).into_any()),
        Value::Array(all) => Ok(PyTuple::new(py, all.iter().map(number))?.into_any()),
        one => Ok(PyFloat::new(py, number(one)).into_any()),
    }
}

fn text(path: &Path) -> PyResult<&str> {
    path.to_str()
        .ok_or_else(|| errors::value(format!("a path must be UTF-8, but is {}", path.display())))
}

fn refused(error: &SettingsError) -> PyErr {
    match error {
        SettingsError::Config(error) => errors::config(error),
        SettingsError::NoIdentity(path) => PyFileNotFoundError::new_err(format!(
            "there is no {}: `hedgerow pki issue NODE` makes a node's identity, on the server's side",
            path.display()
        )),
        _ => errors::of_system(error),
    }
}

fn failed(error: &AgentError) -> PyErr {
    match error {
        AgentError::ConnectError(trouble) => errors::connection(trouble),
        // Without what the command line would say.
        AgentError::State(StateError::File(file) | StateError::System(file))
        | AgentError::Unsaved(file) => errors::of_system(file),
        AgentError::State(StateError::InUse(file)) => PyOSError::new_err(file.to_string()),
        _ => errors::of_system(error),
    }
}
