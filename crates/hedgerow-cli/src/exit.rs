//! What the exit codes mean.

use std::process::ExitCode;

use hedgerow_lab::data::DataError;
use hedgerow_lab::data::catalog::{NotFound, UnknownName};
use hedgerow_lab::data::fetch::FetchError;
use hedgerow_lab::data::rows::ReadError;
use hedgerow_lab::output::OutputError;
use hedgerow_lab::run::RunError;
use hedgerow_lab::settings::SettingsError;
use hedgerow_lab::suite::SuiteError;

use crate::reproduce::Incomplete;

/// The user asked for something that can't be: flags, TOML, values. (Also what the flag parser itself exits with.)
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
                SuiteError::Plan { .. } => ExitCode::FAILURE,
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
        RunError::Memory { .. } | RunError::NodesUnknown | RunError::Ranges(_) => ExitCode::from(USAGE),
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
        FetchError::BadMirror(_) | FetchError::NoFolder => USAGE,
        FetchError::Unreachable { .. } | FetchError::Timeout { .. } | FetchError::BrokeOff { .. } => NETWORK,
        FetchError::Status { .. } | FetchError::GaveUp { .. } => NETWORK,
        FetchError::Unwritable { .. } | FetchError::Busy(_) => OUTPUT,
        FetchError::ArchiveTooLarge { .. } | FetchError::NotAZip { .. } | FetchError::Damaged { .. } => DATA,
        FetchError::NotInArchive { .. } | FetchError::TooLarge { .. } => DATA,
        FetchError::WrongChecksum { .. } | FetchError::Changed { .. } => DATA,
        FetchError::InTheWay { .. } | FetchError::Unreadable { .. } => DATA,
    }
}
