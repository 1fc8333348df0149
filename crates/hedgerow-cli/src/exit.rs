//! Which exit code an error has.

use std::error::Error;

use hedgerow_config::ConfigError;
use hedgerow_data::DataError;
use hedgerow_data::catalog::{NotFound, UnknownName};
use hedgerow_data::fetch::FetchError;
use hedgerow_data::rows::ReadError;
use hedgerow_lab::output::OutputError;
use hedgerow_lab::run::RunError;
use hedgerow_lab::settings::SettingsError;
use hedgerow_lab::suite::SuiteError;
use hedgerow_model::{ModelError, NoModel};
use hedgerow_net::admin::client::ClientError;
use hedgerow_net::admin::token::TokenError;
use hedgerow_net::audit::Broken;
use hedgerow_net::export::ExportError;
use hedgerow_net::file::FileError;
use hedgerow_net::pki::request::UnreadRequest;
use hedgerow_net::pki::{EnrolmentError, PkiError};
use hedgerow_net::serve::ServeError;
use hedgerow_net::storage::StoreError;
use hedgerow_node::{Exit, JoinError, WipeError};

use crate::admin::{AdminError, AuditError};
use crate::predict::PredictError;
use crate::reproduce::Incomplete;

/// The code for an error: by what went wrong first.
pub(crate) fn of(error: &anyhow::Error) -> Exit {
    error.chain().find_map(code).unwrap_or(Exit::Failure)
}

fn code(cause: &(dyn Error + 'static)) -> Option<Exit> {
    let plain = [
        (cause.is::<OutputError>(), Exit::Output),
        (cause.is::<UnknownName>() || cause.is::<ConfigError>(), Exit::Usage),
        (cause.is::<TokenError>() || cause.is::<AuditError>(), Exit::Data),
        (cause.is::<Incomplete>(), Exit::Incomplete),
        (cause.is::<ExportError>() || cause.is::<Broken>(), Exit::Data),
        (cause.is::<UnreadRequest>(), Exit::Data),
        (cause.is::<NotFound>() || cause.is::<ReadError>() || cause.is::<DataError>(), Exit::Data),
    ];
    let plain = plain.into_iter().find_map(|(is, exit)| is.then_some(exit));
    plain
        .or_else(|| cause.downcast_ref().map(of_suite))
        .or_else(|| cause.downcast_ref().map(of_settings))
        .or_else(|| cause.downcast_ref().map(of_fetching))
        .or_else(|| cause.downcast_ref().map(of_running))
        .or_else(|| cause.downcast_ref().map(JoinError::exit))
        .or_else(|| cause.downcast_ref().map(WipeError::exit))
        .or_else(|| cause.downcast_ref().map(of_certificates))
        .or_else(|| cause.downcast_ref().map(of_enrolling))
        .or_else(|| cause.downcast_ref().map(of_model))
        .or_else(|| cause.downcast_ref().map(of_file))
        .or_else(|| cause.downcast_ref().map(of_predicting))
        .or_else(|| cause.downcast_ref().map(of_serving))
        .or_else(|| cause.downcast_ref().map(of_storing))
        .or_else(|| cause.downcast_ref().map(of_asking))
        .or_else(|| cause.downcast_ref().map(of_commanding))
}

/// An error that only passes another on is not followed by it in the chain.
fn of_suite(error: &SuiteError) -> Exit {
    match error {
        SuiteError::Experiment { .. } => Exit::Failure,
        SuiteError::Settings(settings) => of_settings(settings),
        SuiteError::Run(run) => of_running(run),
        SuiteError::Output(_) => Exit::Output,
        SuiteError::NoFile { .. } | SuiteError::NoColumn { .. } | SuiteError::TooFewRows { .. } => {
            Exit::Data
        }
    }
}

fn of_predicting(error: &PredictError) -> Exit {
    match error {
        PredictError::SameFile { .. } | PredictError::Level { .. } | PredictError::NoIntervals => {
            Exit::Usage
        }
        PredictError::NoModel { source: NoModel::UnknownNode { .. }, .. } => Exit::Usage,
        _ => Exit::Data,
    }
}

fn of_settings(error: &SettingsError) -> Exit {
    match error {
        SettingsError::NotFound(_) | SettingsError::NoFiles(_) => Exit::Data,
        _ => Exit::Usage,
    }
}

fn of_running(error: &RunError) -> Exit {
    match error {
        RunError::Settings(settings) => of_settings(settings),
        RunError::Memory { .. } | RunError::NodesUnknown | RunError::Ranges(_) => Exit::Usage,
        RunError::Threads { .. } => Exit::Failure,
        RunError::Data(_)
        | RunError::Partition { .. }
        | RunError::NothingSeen(_)
        | RunError::Model(_)
        | RunError::Trial(_) => Exit::Data,
    }
}

fn of_fetching(error: &FetchError) -> Exit {
    match error {
        FetchError::BadMirror(_) | FetchError::NoFolder | FetchError::NotBuilt => Exit::Usage,
        FetchError::Unreachable { .. }
        | FetchError::Timeout { .. }
        | FetchError::BrokeOff { .. }
        | FetchError::Status { .. }
        | FetchError::GaveUp { .. } => Exit::Network,
        FetchError::Unwritable { .. } | FetchError::Busy(_) => Exit::Output,
        _ => Exit::Data,
    }
}

fn of_certificates(error: &PkiError) -> Exit {
    match error {
        PkiError::File(_) | PkiError::Index { .. } | PkiError::Ended { .. } => Exit::Data,
        PkiError::WrongPassphrase { .. } | PkiError::Audit { .. } => Exit::Data,
        PkiError::Output(_) | PkiError::InTheWay { .. } => Exit::Output,
        PkiError::Signing(_) | PkiError::Random => Exit::Failure,
        _ => Exit::Usage,
    }
}

fn of_enrolling(error: &EnrolmentError) -> Exit {
    match error {
        EnrolmentError::Pki(error) => of_certificates(error),
        EnrolmentError::Request(_) => Exit::Data,
        _ => Exit::Usage,
    }
}

fn of_model(error: &ModelError) -> Exit {
    match error {
        ModelError::Kept(_) | ModelError::Unwritable { .. } | ModelError::TooLarge { .. } => {
            Exit::Output
        }
        _ => Exit::Data,
    }
}

fn of_file(error: &FileError) -> Exit {
    match error {
        FileError::Unwritable { .. } | FileError::Busy { .. } | FileError::Kept(_) => Exit::Output,
        _ => Exit::Data,
    }
}

fn of_serving(error: &ServeError) -> Exit {
    match error {
        ServeError::Store(store) => of_storing(store),
        ServeError::OtherRun { .. } | ServeError::PlainText(_) => Exit::Usage,
        #[cfg(feature = "otlp")]
        ServeError::Otlp(_) => Exit::Usage,
        ServeError::Run { .. } | ServeError::Identity(_) | ServeError::Token(_) => Exit::Data,
        ServeError::Listen { .. } => Exit::Network,
        ServeError::NotStored(_) => Exit::Output,
        ServeError::NoRandomness | ServeError::NoThread(_) => Exit::Failure,
    }
}

/// A server that can't do what it was asked for, or one that can't be asked.
fn of_asking(error: &ClientError) -> Exit {
    match error {
        ClientError::Refused { status: 400..500, .. } | ClientError::Address(_) => Exit::Usage,
        ClientError::Identity(_) => Exit::Data,
        _ => Exit::Network,
    }
}

fn of_commanding(error: &AdminError) -> Exit {
    match error {
        AdminError::Declined => Exit::Failure,
        AdminError::NoStore(_) => Exit::Data,
        _ => Exit::Usage,
    }
}

fn of_storing(error: &StoreError) -> Exit {
    match error {
        StoreError::InUse { .. }
        | StoreError::Full { .. }
        | StoreError::Unusable { .. }
        | StoreError::File(_) => Exit::Output,
        _ => Exit::Data,
    }
}
