//! What the exit codes mean.

use std::process::ExitCode;

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
use hedgerow_net::serve::config::ConfigError;
use hedgerow_net::storage::StoreError;
use hedgerow_node::JoinError;

use crate::predict::PredictError;
use crate::reproduce::Incomplete;

/// The user asked for something that can't be: flags, TOML, values. (Also what the flag parser
/// itself exits with.)
const USAGE: u8 = 2;
/// The data can't be used.
const DATA: u8 = 3;
/// The results can't be written.
const OUTPUT: u8 = 4;
/// All that could be done was done, but data sets were not there.
const INCOMPLETE: u8 = 5;
/// The network, or a server on it, failed.
const NETWORK: u8 = 6;

pub(crate) const HELP: &str = "\
Exit codes:
  0  all went well
  1  something unforeseen
  2  flags, TOML or values that make no sense
  3  data that can't be used
  4  results that can't be written
  5  all done but what data sets were missing for
  6  a network or a server that failed";

/// The code for an error: by what went wrong first.
pub(crate) fn code(error: &anyhow::Error) -> ExitCode {
    for cause in error.chain() {
        if cause.is::<OutputError>() {
            return ExitCode::from(OUTPUT);
        }
        // An error that only passes another on is not followed by it in the chain.
        if let Some(suite) = cause.downcast_ref::<SuiteError>() {
            return match suite {
                SuiteError::Experiment { .. } => ExitCode::FAILURE,
                SuiteError::Settings(settings) => ExitCode::from(of_settings(settings)),
                SuiteError::Run(run) => of_running(run),
                SuiteError::Output(_) => ExitCode::from(OUTPUT),
            };
        }
        if let Some(settings) = cause.downcast_ref::<SettingsError>() {
            return ExitCode::from(of_settings(settings));
        }
        if cause.is::<UnknownName>() {
            return ExitCode::from(USAGE);
        }
        if cause.is::<Incomplete>() {
            return ExitCode::from(INCOMPLETE);
        }
        if cause.is::<NotFound>() || cause.is::<ReadError>() || cause.is::<DataError>() {
            return ExitCode::from(DATA);
        }
        if let Some(fetch) = cause.downcast_ref::<FetchError>() {
            return ExitCode::from(of_fetching(fetch));
        }
        if let Some(run) = cause.downcast_ref::<RunError>() {
            return of_running(run);
        }
        if let Some(join) = cause.downcast_ref::<JoinError>() {
            return ExitCode::from(join.code());
        }
        if let Some(pki) = cause.downcast_ref::<PkiError>() {
            return of_certificates(pki);
        }
        if let Some(model) = cause.downcast_ref::<ModelError>() {
            return ExitCode::from(of_model(model));
        }
        if let Some(file) = cause.downcast_ref::<FileError>() {
            return ExitCode::from(of_file(file));
        }
        if let Some(predict) = cause.downcast_ref::<PredictError>() {
            let is_usage = matches!(predict, PredictError::SameFile { .. });
            return ExitCode::from(if is_usage { USAGE } else { DATA });
        }
        if cause.is::<ConfigError>() {
            return ExitCode::from(USAGE);
        }
        if let Some(serve) = cause.downcast_ref::<ServeError>() {
            return of_serving(serve);
        }
    }
    ExitCode::FAILURE
}

fn of_settings(error: &SettingsError) -> u8 {
    match error {
        SettingsError::NotFound(_) | SettingsError::NoFiles(_) => DATA,
        _ => USAGE,
    }
}

fn of_running(error: &RunError) -> ExitCode {
    match error {
        RunError::Settings(settings) => ExitCode::from(of_settings(settings)),
        RunError::Memory { .. } | RunError::NodesUnknown | RunError::Ranges(_) => {
            ExitCode::from(USAGE)
        }
        RunError::Threads { .. } => ExitCode::FAILURE,
        RunError::Data(_)
        | RunError::Partition { .. }
        | RunError::BadLabel { .. }
        | RunError::NothingSeen(_)
        | RunError::Trial(_) => ExitCode::from(DATA),
    }
}

fn of_fetching(error: &FetchError) -> u8 {
    match error {
        FetchError::BadMirror(_) | FetchError::NoFolder | FetchError::NotBuilt => USAGE,
        FetchError::Unreachable { .. }
        | FetchError::Timeout { .. }
        | FetchError::BrokeOff { .. } => NETWORK,
        FetchError::Status { .. } | FetchError::GaveUp { .. } => NETWORK,
        FetchError::Unwritable { .. } | FetchError::Busy(_) => OUTPUT,
        FetchError::ArchiveTooLarge { .. }
        | FetchError::NotAZip { .. }
        | FetchError::Damaged { .. } => DATA,
        FetchError::NotInArchive { .. } | FetchError::TooLarge { .. } => DATA,
        FetchError::WrongChecksum { .. } | FetchError::Changed { .. } => DATA,
        FetchError::InTheWay { .. } | FetchError::Unreadable { .. } => DATA,
    }
}

fn of_certificates(error: &PkiError) -> ExitCode {
    match error {
        PkiError::Name(_) | PkiError::Twice(_) | PkiError::Host(_) | PkiError::Days(_) => {
            ExitCode::from(USAGE)
        }
        PkiError::Exists { .. } | PkiError::Enrolled { .. } | PkiError::Revoked { .. } => {
            ExitCode::from(USAGE)
        }
        PkiError::Unknown { .. } | PkiError::NoAuthority { .. } => ExitCode::from(USAGE),
        PkiError::File(_) | PkiError::Index { .. } | PkiError::Ended { .. } => ExitCode::from(DATA),
        PkiError::Output(_) | PkiError::InTheWay { .. } => ExitCode::from(OUTPUT),
        PkiError::Signing(_) | PkiError::Random => ExitCode::FAILURE,
    }
}

fn of_model(error: &ModelError) -> u8 {
    match error {
        ModelError::Kept(_) => OUTPUT,
        ModelError::File(file) => of_file(file),
        _ => DATA,
    }
}

fn of_file(error: &FileError) -> u8 {
    match error {
        FileError::Unwritable { .. } | FileError::Busy { .. } | FileError::Kept(_) => OUTPUT,
        _ => DATA,
    }
}

fn of_serving(error: &ServeError) -> ExitCode {
    match error {
        ServeError::Store(store) => ExitCode::from(of_storing(store)),
        ServeError::OtherRun { .. } | ServeError::PlainText(_) => ExitCode::from(USAGE),
        ServeError::Run { .. } | ServeError::Identity(_) => ExitCode::from(DATA),
        ServeError::Listen { .. } => ExitCode::from(NETWORK),
        ServeError::NotStored(_) => ExitCode::from(OUTPUT),
        ServeError::NoRandomness | ServeError::NoThread(_) => ExitCode::FAILURE,
    }
}

fn of_storing(error: &StoreError) -> u8 {
    match error {
        StoreError::InUse { .. } | StoreError::Full { .. } | StoreError::Unusable { .. } => OUTPUT,
        StoreError::File(_) => OUTPUT,
        _ => DATA,
    }
}
