//! Answers of the agent to HTTP requests.

use axum::http::StatusCode;
use hedgerow::node::BadInput;
use hedgerow_data::live::NoSample;
use hedgerow_data::schema::TableSchema;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::driver::Agent;
use super::http::{Question, Reply};
use super::local::{LocalNode, Refused, Taken};
use super::sample::{BadRow, Sample, Schema};
use crate::plan_json::plan_to_json;

/// Which of the two is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Predict,
    Learn,
}

impl Agent {
    /// Answers a question.
    pub(super) fn answer(&mut self, question: &Question) -> Reply {
        self.counts.requests += 1;
        match question {
            Question::Predict(body) => self.take_samples(Wish::Predict, body),
            Question::Learn(body) => self.take_samples(Wish::Learn, body),
            Question::Sample(sample) => self.take_sample(sample),
            Question::Status => Reply::ok(self.status()),
            Question::Plan => match &self.node {
                Some(local) => Reply::ok(plan_to_json(local.node.plan()).into()),
                None => self.not_ready(),
            },
            Question::Health => Reply::ok(self.health()),
            Question::Ready => match &self.node {
                Some(node) if node.node.is_scaled() => Reply::ok(json!({ "ready": true })),
                Some(_) => {
                    let message = "the nodes have not agreed on a first scale yet";
                    Reply::error(StatusCode::SERVICE_UNAVAILABLE, message)
                }
                None => self.not_ready(),
            },
        }
    }

    /// The process runs. The answer also names problems with the server.
    fn health(&self) -> Value {
        let mut health = json!({ "alive": true });
        if let Some(trouble) = &self.link.trouble {
            health["trouble"] = trouble.to_string().into();
            health["needs_help"] = trouble.is_lasting().into();
        }
        health
    }

    fn not_ready(&self) -> Reply {
        let mut message = "the node has never heard from its server what is learned".to_owned();
        if let Some(trouble) = &self.link.trouble {
            message = format!("{message}: {trouble}");
        }
        Reply::error(StatusCode::SERVICE_UNAVAILABLE, message)
    }

    fn take_sample(&mut self, sample: &Sample) -> Reply {
        let Some(node) = &mut self.node else { return self.not_ready() };
        let reply = reply_to(node, sample);
        self.saving.is_due = true;
        reply
    }

    fn take_samples(&mut self, wish: Wish, body: &[u8]) -> Reply {
        let most = self.settings.http.most_samples;
        let Some(node) = &mut self.node else { return self.not_ready() };
        let samples = match read_all(&node.schema, wish, body, most) {
            Ok(samples) => samples,
            Err(reply) => return reply,
        };
        let label = node.schema.label();
        let reply = match samples {
            Samples::One(sample) => reply_to(node, &sample),
            Samples::Many(samples) => {
                let answers = samples.iter().map(|sample| {
                    let answer = answer_to(node, sample).map(|(_, answer)| answer);
                    answer.unwrap_or_else(|bad| trouble_with(sample, &bad, &label))
                });
                Reply::ok(Value::Array(answers.collect()))
            }
        };
        self.saving.is_due = true;
        reply
    }

    fn status(&self) -> Value {
        let node = self.node.as_ref().map(|LocalNode { node, unseen_texts, series, .. }| {
            let (tally, (pending, held)) = (node.tally(), node.waiting());
            let config = node.plan().config();
            let unit = node.importance_unit();
            let names = TableSchema::group_names(node.plan());
            let importance = node.importance().iter().enumerate().map(|(place, group)| {
                json!({
                    "column": names.get(place),
                    "number": place + 1,
                    "increase": group.mean() * unit,
                    "recent": group.recent * unit,
                    "measured": group.measured,
                })
            });
            json!({
                "run": node.run(),
                "number": node.id(),
                "method": config.method,
                "columns": config.columns,
                "target": config.target,
                "classes": config.classes,
                "inputs": config.inputs,
                "inputs_are": series.schema().describe(),
                "round": node.round(),
                "scaled": node.is_scaled(),
                "samples": tally.samples,
                "mse": tally.mse(),
                "importance": importance.collect::<Vec<_>>(),
                "imputed": tally.imputed,
                "unseen_texts": unseen_texts,
                "uploads": tally.uploads,
                "taken": tally.taken,
                "refused": tally.refused,
                "forgotten": tally.forgotten,
                "pending": pending,
                "held": held,
            })
        });
        json!({
            "schema": 1,
            "name": self.name,
            "software": concat!("hedgerow-node ", env!("CARGO_PKG_VERSION")),
            "uptime_ms": self.began.elapsed().as_millis() as u64,
            "server": self.settings.server.address,
            "connected": self.link.stream.is_some(),
            "certificate_end": self.certificate_end,
            "connections": self.counts.connections,
            "trouble": self.link.trouble.as_ref().map(ToString::to_string),
            "node": node,
            "lines": self.counts.lines,
            "bad_lines": self.counts.bad_lines,
            "bad_times": self.counts.bad_times,
            "waiting_lines": self.counts.waiting_lines,
            "requests": self.counts.requests,
            "message_bytes_up": self.counts.message_bytes_up,
            "message_bytes_down": self.counts.message_bytes_down,
            "wire_bytes_up": self.traffic.written(),
            "wire_bytes_down": self.traffic.read(),
            "state": self.settings.state.path.display().to_string(),
            "state_trouble": self.saving.trouble,
        })
    }
}

enum Samples {
    One(Sample),
    Many(Vec<Sample>),
}

/// An object, or a list of them; all of them are read before any is taken.
fn read_all(schema: &Schema, wish: Wish, body: &[u8], most: usize) -> Result<Samples, Reply> {
    let one = |text: &[u8]| {
        let sample = schema.read_object(text)?;
        check(wish, &sample).map(|()| sample)
    };
    if !body.trim_ascii_start().starts_with(b"[") {
        return one(body).map(Samples::One).map_err(|bad| bad.reply(schema, None));
    }
    let list: Vec<&RawValue> = serde_json::from_slice(body).map_err(|error| {
        Reply::error(StatusCode::BAD_REQUEST, format!("it is no JSON list: {error}"))
    })?;
    if list.len() > most {
        let message =
            format!("a request has at most {most} samples, but this one has {}", list.len());
        return Err(Reply::error(StatusCode::PAYLOAD_TOO_LARGE, message));
    }
    let samples = list.iter().enumerate().map(|(index, object)| {
        one(object.get().as_bytes()).map_err(|bad| bad.reply(schema, Some(index)))
    });
    samples.collect::<Result<_, _>>().map(Samples::Many)
}

/// What is wrong with a request.
#[derive(Debug, thiserror::Error)]
enum BadRequest {
    #[error(transparent)]
    Row(#[from] BadRow),
    #[error("a prediction needs inputs")]
    NoInputs,
    #[error("the label is for POST /learn")]
    Label,
    #[error("learning needs the label")]
    NoLabel,
}

impl BadRequest {
    fn reply(&self, schema: &Schema, index: Option<usize>) -> Reply {
        let field = match self {
            Self::Row(row) => row.field().map(str::to_owned),
            Self::NoInputs => Some("x".to_owned()),
            Self::Label | Self::NoLabel => Some(schema.label()),
        };
        let mut body = json!({ "error": self.to_string() });
        if let Some(field) = field {
            body["field"] = field.into();
        }
        if let Some(index) = index {
            body["index"] = index.into();
        }
        Reply { status: StatusCode::BAD_REQUEST, body }
    }
}

fn check(wish: Wish, sample: &Sample) -> Result<(), BadRequest> {
    match (wish, &sample.x, &sample.y) {
        (Wish::Predict, _, Some(_)) => Err(BadRequest::Label),
        (Wish::Predict, None, None) => Err(BadRequest::NoInputs),
        (Wish::Learn, _, None) => Err(BadRequest::NoLabel),
        _ => Ok(()),
    }
}

fn reply_to(node: &mut LocalNode, sample: &Sample) -> Reply {
    match answer_to(node, sample) {
        Ok((status, body)) => Reply { status, body },
        Err(bad) => {
            let body = trouble_with(sample, &bad, &node.schema.label());
            Reply { status: status_of(&bad), body }
        }
    }
}

fn answer_to(node: &mut LocalNode, sample: &Sample) -> Result<(StatusCode, Value), Refused> {
    // Without a label, and without an id that one could come with later.
    let is_question = sample.y.is_none() && sample.id.is_none();
    let (status, mut answer) = match node.take(sample, is_question)? {
        Taken::Predicted(predicted) => (StatusCode::OK, json!(predicted)),
        Taken::Waits(rows) => {
            let message = NoSample::Waits { rows }.to_string();
            (StatusCode::ACCEPTED, json!({ "waits_for_rows": rows, "message": message }))
        }
    };
    if let Some(id) = &sample.id {
        answer["id"] = id.as_str().into();
    }
    Ok((status, answer))
}

fn trouble_with(sample: &Sample, bad: &Refused, label: &str) -> Value {
    let field = match bad {
        Refused::Row(NoSample::Waits { .. }) => None,
        Refused::Row(_) => Some("time"),
        Refused::Input(BadInput::WrongLength { .. }) => Some("x"),
        Refused::Input(
            BadInput::UnknownId { .. } | BadInput::RepeatedId { .. } | BadInput::LongId { .. },
        ) => Some("id"),
        Refused::Input(_) => Some(label),
    };
    let mut trouble = json!({ "error": bad.to_string() });
    if let Some(field) = field {
        trouble["field"] = field.into();
    }
    if let Some(id) = &sample.id {
        trouble["id"] = id.as_str().into();
    }
    trouble
}

fn status_of(bad: &Refused) -> StatusCode {
    match bad {
        Refused::Input(BadInput::UnknownId { .. }) => StatusCode::NOT_FOUND,
        Refused::Input(BadInput::RepeatedId { .. }) | Refused::Row(NoSample::Waits { .. }) => {
            StatusCode::CONFLICT
        }
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    }
}
