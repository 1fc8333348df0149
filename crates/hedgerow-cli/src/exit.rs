//! What the exit codes mean.

use std::process::ExitCode;

use hedgerow_lab::output::OutputError;
use hedgerow_lab::run::RunError;
use hedgerow_lab::settings::SettingsError;

/// The user asked for something that can't be: flags, TOML, values. (Also what the flag parser itself exits with.)
const USAGE: u8 = 2;
/// The data can't be used.
const DATA: u8 = 3;
/// The results can't be written.
const OUTPUT: u8 = 4;

pub(crate) const HELP: &str = "\
Exit codes:
  0  all went well
  1  something unforeseen
  2  flags, TOML or values that make no sense
  3  data that can't be used
  4  results that can't be written";

/// The code for an error: by what went wrong first.
pub(crate) fn code(error: &anyhow::Error) -> ExitCode {
    for cause in error.chain() {
        if cause.is::<OutputError>() {
            return ExitCode::from(OUTPUT);
        }
        if cause.is::<SettingsError>() {
            return ExitCode::from(USAGE);
        }
        if let Some(run) = cause.downcast_ref::<RunError>() {
            return match run {
                RunError::Settings(_) | RunError::NoSuchData { .. } => ExitCode::from(USAGE),
                RunError::Memory { .. } | RunError::NothingSeen => ExitCode::from(USAGE),
                RunError::Threads { .. } => ExitCode::FAILURE,
                RunError::Data(_) | RunError::BadLabel { .. } | RunError::Trial(_) => ExitCode::from(DATA),
            };
        }
    }
    ExitCode::FAILURE
}
