//! Which exit code an error has.

use hedgerow_config::ConfigError;
use hedgerow_data::DataError;
use hedgerow_data::catalog::{NotFound, UnknownName};
use hedgerow_data::fetch::FetchError;
use hedgerow_data::rows::ReadError;
use hedgerow_lab::output::OutputError;
use hedgerow_lab::run::RunError;
use hedgerow_lab::settings::SettingsError;
use hedgerow_lab::suite::SuiteError;
use hedgerow_net::export::ModelError;
use hedgerow_net::file::FileError;
use hedgerow_net::pki::PkiError;
use hedgerow_net::serve::ServeError;

use hedgerow_net::storage::StoreError;
use hedgerow_node::{Exit, JoinError};

use crate::predict::PredictError;
use crate::reproduce::Incomplete;

/// The code for an error: by what went wrong first.
pub(crate) fn of(error: &anyhow::Error) -> Exit {
    for cause in error.chain() {
        if cause.is::<OutputError>() {
            return Exit::Output;
        }
        // An error that only passes another on is not followed by it in the chain.
        if let Some(suite) = cause.downcast_ref::<SuiteError>() {
            return match suite {
                SuiteError::Experiment { .. } => Exit::Failure,
                SuiteError::Settings(settings) => of_settings(settings),
                SuiteError::Run(run) => of_running(run),
                SuiteError::Output(_) => Exit::Output,
            };
        }
        if let Some(settings) = cause.downcast_ref::<SettingsError>() {
            return of_settings(settings);
        }
        if cause.is::<UnknownName>() {
            return Exit::Usage;
        }
        if cause.is::<Incomplete>() {
            return Exit::Incomplete;
        }
        if cause.is::<NotFound>() || cause.is::<ReadError>() || cause.is::<DataError>() {
            return Exit::Data;
        }
        if let Some(fetch) = cause.downcast_ref::<FetchError>() {
            return of_fetching(fetch);
        }
        if let Some(run) = cause.downcast_ref::<RunError>() {
            return of_running(run);
        }
        if let Some(join) = cause.downcast_ref::<JoinError>() {
            return join.exit();
        }
        if let Some(pki) = cause.downcast_ref::<PkiError>() {
            return of_certificates(pki);
        }
        if let Some(model) = cause.downcast_ref::<ModelError>() {
            return of_model(model);
        }
        if let Some(file) = cause.downcast_ref::<FileError>() {
            return of_file(file);
        }
        if let Some(predict) = cause.downcast_ref::<PredictError>() {
            let is_usage = matches!(predict, PredictError::SameFile { .. });
            return if is_usage { Exit::Usage } else { Exit::Data };
        }
        if cause.is::<ConfigError>() {
            return Exit::Usage;
        }
        if let Some(serve) = cause.downcast_ref::<ServeError>() {
            return of_serving(serve);
        }
    }
    Exit::Failure
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
        | RunError::BadLabel { .. }
        | RunError::NothingSeen(_)
        | RunError::Trial(_) => Exit::Data,
    }
}

fn of_fetching(error: &FetchError) -> Exit {
    match error {
        FetchError::BadMirror(_) | FetchError::NoFolder | FetchError::NotBuilt => Exit::Usage,
        FetchError::Unreachable(..) | FetchError::Timeout(..) => Exit::Network,
        FetchError::BrokeOff { .. } | FetchError::Status(..) => Exit::Network,
        FetchError::GaveUp(..) => Exit::Network,
        FetchError::Unwritable(..) | FetchError::Busy(_) => Exit::Output,
        FetchError::BadArchive(..) | FetchError::Unreadable(..) => Exit::Data,
        FetchError::WrongChecksum { .. } => Exit::Data,
    }
}

fn of_certificates(error: &PkiError) -> Exit {
    match error {
        PkiError::Name(_) | PkiError::Twice(_) | PkiError::Host(_) | PkiError::Days(_) => {
            Exit::Usage
        }
        PkiError::Exists { .. } | PkiError::Enrolled { .. } | PkiError::Revoked { .. } => {
            Exit::Usage
        }
        PkiError::Unknown { .. } | PkiError::NoAuthority { .. } => Exit::Usage,
        PkiError::File(_) | PkiError::Index { .. } | PkiError::Ended { .. } => Exit::Data,
        PkiError::Output(_) | PkiError::InTheWay { .. } => Exit::Output,
        PkiError::Signing(_) | PkiError::Random => Exit::Failure,
    }
}

fn of_model(error: &ModelError) -> Exit {
    match error {
        ModelError::Kept(_) => Exit::Output,
        ModelError::File(file) => of_file(file),
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
        ServeError::Run { .. } | ServeError::Identity(_) => Exit::Data,
        ServeError::Listen { .. } => Exit::Network,
        ServeError::NotStored(_) => Exit::Output,
        ServeError::NoRandomness | ServeError::NoThread(_) => Exit::Failure,
    }
}

fn of_storing(error: &StoreError) -> Exit {
    match error {
        StoreError::InUse { .. } | StoreError::Full { .. } | StoreError::Unusable { .. } => {
            Exit::Output
        }
        StoreError::File(_) => Exit::Output,
        _ => Exit::Data,
    }
}
