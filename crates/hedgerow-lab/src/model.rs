//! The model that a run has learned: of its first federated method, in its first trial.

use hedgerow::federation::Contact;
use hedgerow::importance::ImportanceScope;
use hedgerow::learning::{Calibration, ErrorQuantiles};
use hedgerow::plan::Scaling;
use hedgerow::{NodeId, Plan};
use hedgerow_data::schema::TableSchema;
use hedgerow_model::{Card, CardData, CardError, Model};

use crate::preprocessor::{Preprocessor, Scaler};
use crate::results::{MethodResult, Results};
use crate::round_generator::Turn;
use crate::run::RunError;

/// What a trial has learned, before nodes have their names.
#[derive(Debug, Clone)]
pub(crate) struct TrialModel {
    /// Name of the method in the results.
    pub(crate) method: String,
    pub(crate) shared: Model,
    /// What each node saved.
    pub(crate) nodes: Vec<Vec<u8>>,
}

/// A turn of every node, to hear the server once more.
pub(crate) fn all_in_contact(nodes: usize) -> Vec<Turn> {
    (0..nodes as NodeId).map(|node| Turn { node, samples: 0, contact: Contact::Full }).collect()
}

/// The model of a federation whose samples a preprocessor has scaled.
pub(crate) fn of_federation(
    method: String,
    federation: &hedgerow::Federation,
    scaler: &Scaler,
    preprocessor: &Preprocessor,
    (errors, calibration): (impl Fn(NodeId) -> Vec<ErrorQuantiles>, impl Fn(NodeId) -> Calibration),
) -> Result<TrialModel, String> {
    let scaling = match scaler {
        Scaler::None => Scaling::None,
        Scaler::Fixed(scale) => Scaling::Fixed(scale.clone()),
        Scaler::Online { kind, .. } => Scaling::Online { kind: *kind },
    };
    // Nodes that only predict measure nothing.
    let config = federation.plan().config().clone().scaling(scaling);
    let config = config.importance(ImportanceScope::None).column_groups(Vec::new());
    let plan = Plan::new(config).map_err(|error| error.to_string())?;
    let shared = Model::new(&plan, federation.server(), preprocessor.agreed_scale());
    let nodes = federation.nodes().iter().map(|node| {
        let id = node.id();
        node.save_with(preprocessor.scaling(id), errors(id), calibration(id))
    });
    let (nodes, shared) = (nodes.collect(), shared.map_err(|error| error.to_string())?);
    Ok(TrialModel { method, shared, nodes })
}

/// Gives the results their model: its nodes have the names of the results, or else numbers from 1.
pub(crate) fn attach(
    results: &mut Results,
    model: Option<TrialModel>,
    schema: Option<&TableSchema>,
) -> Result<(), RunError> {
    let Some(TrialModel { method, shared, nodes }) = model else { return Ok(()) };
    let mut model = shared.with_schema(schema.cloned());
    for (at, saved) in nodes.iter().enumerate() {
        let name = results.node_names.get(at).cloned().unwrap_or_else(|| (at + 1).to_string());
        model.add_saved_node(&name, saved).map_err(|error| RunError::Model(error.to_string()))?;
    }
    let known = |number: f64| Some(number).filter(|number| number.is_finite());
    let error = |method: &MethodResult| CardError {
        method: method.label(),
        mse: known(method.mse.mean),
        rmse: known(method.mse.mean.sqrt()).filter(|_| method.classes.is_none()),
        mae: method.mae.and_then(|mae| known(mae.mean)),
        r2: method.r2.and_then(known),
        accuracy: method.classes.as_ref().and_then(|classes| known(classes.accuracy.mean)),
        log_loss: method.classes.as_ref().and_then(|classes| known(classes.log_loss.mean)),
        target_rmse: method.targets.iter().map(|target| target.mse.sqrt()).collect(),
    };
    model.set_card(Card {
        created: None,
        data: Some(CardData {
            name: results.data.name.clone(),
            provenance: results.data.provenance.clone(),
            samples: results.data.samples as u64,
            nodes: results.nodes as u64,
        }),
        method,
        interval: Some(results.interval),
        errors: results.methods.iter().map(error).collect(),
        settings: results.settings.clone(),
    });
    results.model = Some(model);
    Ok(())
}
