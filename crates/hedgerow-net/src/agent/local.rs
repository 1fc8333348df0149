//! [`LocalNode`]: the node of this process, and how its rows become what it learns from.

use hedgerow::Node;
use hedgerow::node::BadInput;
use hedgerow_data::live::{LiveRow, LiveSeries, NoSample};
use hedgerow_data::schema::TableSchema;
use hedgerow_data::text::excerpt;
use tracing::{info, warn};

use super::output::Predicted;
use super::sample::{Sample, Schema};

/// The node, which exists once the server or a state file has told what is learned.
pub(super) struct LocalNode {
    pub(super) node: Node,
    pub(super) schema: Schema,
    /// Its last rows.
    pub(super) series: LiveSeries,
    /// Inputs that some sample did not name, so that each is logged once.
    is_told_absent: Vec<bool>,
    /// Texts that the federation doesn't know, so far.
    pub(super) unseen_texts: u64,
    /// Uploads that were acknowledged before the last restart.
    pub(super) taken_before: u64,
}

/// What became of a sample.
pub(super) enum Taken {
    /// It was predicted, or learned from.
    Predicted(Predicted),
    /// It became part of the past. Before one like it is predicted, so many rows must come.
    Waits(usize),
}

/// Why a sample was refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error(transparent)]
    Input(#[from] BadInput),
    #[error(transparent)]
    Row(#[from] NoSample),
}

impl LocalNode {
    pub(super) fn new(node: Node, schema: Schema, table: TableSchema) -> Self {
        let is_told_absent = vec![false; schema.inputs()];
        let taken_before = node.tally().taken;
        let series = LiveSeries::new(table);
        Self { node, schema, series, is_told_absent, unseen_texts: 0, taken_before }
    }

    /// Predicts or learns, as the sample asks. A mere question doesn't become part of the past.
    pub(super) fn take(&mut self, sample: &Sample, is_question: bool) -> Result<Taken, Refused> {
        let Self { node, series, .. } = self;
        let id = sample.id.as_deref();
        let answer = match (&sample.x, &sample.y, id) {
            (Some(own), labels, _) => {
                let Sample { lagged, time, .. } = sample;
                let labels = labels.as_deref();
                let row = LiveRow { inputs: own, lagged, labels, time: *time };
                let x = match series.inputs(&row) {
                    Ok(x) => x,
                    Err(NoSample::Waits { rows }) if !is_question => {
                        series.push(&row, id);
                        return Ok(Taken::Waits(rows));
                    }
                    Err(refused) => return Err(refused.into()),
                };
                let answer = match (id, labels) {
                    (_, Some(y)) => node.learn(x, y),
                    (None, None) => node.predict(x),
                    (Some(id), None) => node.predict_later(id, x),
                }?;
                if !is_question {
                    series.push(&row, id);
                }
                answer
            }
            (None, Some(y), Some(id)) => {
                let answer = node.learn_by_id(id, y)?;
                series.set_labels(id, y);
                answer
            }
            // Samples have inputs, or an id and a label.
            (None, ..) => {
                let expected = node.plan().inputs();
                return Err(BadInput::WrongLength { expected, found: 0 }.into());
            }
        };
        for position in &sample.absent {
            let is_told = self
                .is_told_absent
                .get_mut(*position)
                .is_none_or(|told| std::mem::replace(told, true));
            if let Some(column) = self.schema.column(*position).filter(|_| !is_told) {
                warn!("a sample has no {column:?}: it counts as missing, there and from here on");
            }
        }
        for text in &sample.unseen {
            self.unseen_texts += 1;
            // Increasingly rarely.
            if self.unseen_texts.is_power_of_two() {
                let (text, unseen_texts) = (excerpt(text), self.unseen_texts);
                warn!(unseen_texts, "{text:?} is no text that the federation knows");
            }
        }
        Ok(Taken::Predicted(self.schema.predicted(&self.node, &answer)))
    }

    /// Logs what inputs are of, if rows have an order.
    pub(super) fn tell_inputs(&self) {
        let inputs = self.series.schema().describe();
        if !inputs.is_empty() {
            info!("inputs: {inputs}");
        }
        let rows = self.series.schema().history();
        if rows > 0 {
            info!(rows, "a sample needs earlier rows: the first rows wait for them");
        }
    }
}

#[cfg(test)]
mod tests {
    use hedgerow::{Plan, PlanConfig};

    use super::super::sample::Others;
    use super::*;

    #[test]
    fn texts_that_are_not_listed_are_counted_whatever_is_asked() {
        let columns = ["temperature", "sky=clear", "sky=rain"].map(String::from).to_vec();
        let plan = Plan::new(PlanConfig::default().inputs(3).columns(columns).nodes(1)).unwrap();
        let table = TableSchema::of_plan(plan.config()).unwrap();
        let schema = Schema::new(&plan, &table, Others::Refuse, &[]);
        let mut local = LocalNode::new(plan.node(0), schema, table);
        let mut take = |text: &str, is_question| {
            let sample = local.schema.read_object(text.as_bytes()).unwrap();
            let answer = local.take(&sample, is_question);
            assert!(matches!(answer, Ok(Taken::Predicted(_))), "{text}");
            local.unseen_texts
        };
        assert_eq!(take(r#"{"temperature": 1, "sky": "rain", "y": 1}"#, false), 0);
        assert_eq!(take(r#"{"temperature": 1, "sky": "fog", "y": 1}"#, false), 1);
        assert_eq!(take(r#"{"temperature": 1, "sky": "fog"}"#, true), 2);
        assert_eq!(take(r#"{"id": "a", "temperature": 1, "sky": 7}"#, false), 3);
        // Missing is not unseen, and a label that comes later has no text.
        assert_eq!(take(r#"{"temperature": 1, "sky": null}"#, true), 3);
        assert_eq!(take(r#"{"temperature": 1}"#, true), 3);
        assert_eq!(take(r#"{"id": "a", "y": 2}"#, false), 3);
        // What is refused is not counted.
        let sample = local.schema.read_object(br#"{"id": "b", "y": 2}"#).unwrap();
        assert!(local.take(&Sample { unseen: vec!["fog".into()], ..sample }, false).is_err());
        assert_eq!(local.unseen_texts, 3);
    }
}
