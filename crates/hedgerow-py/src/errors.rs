//! Conversion of errors to Python exceptions.

use std::error::Error;
use std::fmt::Display;
use std::io;

use hedgerow::node::BadInput;
use hedgerow_config::ConfigError;
use hedgerow_data::DataError;
use hedgerow_data::rows::ReadError;
use hedgerow_lab::run::RunError;
use hedgerow_lab::settings::SettingsError;
use hedgerow_lab::suite::SuiteError;
use pyo3::PyErr;
use pyo3::exceptions::{
    PyConnectionError, PyFileNotFoundError, PyKeyError, PyOSError, PyPermissionError, PyTypeError,
    PyValueError,
};

/// ValueError.
pub(crate) fn value(error: impl Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// TypeError.
pub(crate) fn kind(error: impl Display) -> PyErr {
    PyTypeError::new_err(error.to_string())
}

/// A wrong setting: Python calls an unknown name and a value of the wrong type type errors.
pub(crate) fn config(error: &ConfigError) -> PyErr {
    match error {
        ConfigError::UnknownKey { .. } | ConfigError::WrongType { .. } => kind(error),
        _ => of_system(error),
    }
}

/// What is wrong with a sample or a label.
pub(crate) fn input(error: BadInput) -> PyErr {
    match error {
        BadInput::UnknownId { .. } => PyKeyError::new_err(error.to_string()),
        _ => value(error),
    }
}

/// ConnectionError.
pub(crate) fn connection(error: impl Display) -> PyErr {
    PyConnectionError::new_err(error.to_string())
}

/// What the system says, if that is where it comes from; a bad value otherwise.
pub(crate) fn of_system(error: &(dyn Error + 'static)) -> PyErr {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    let message = error.to_string();
    match causes.filter_map(|cause| cause.downcast_ref::<io::Error>()).next() {
        Some(cause) => of_io(cause.kind(), message),
        None => value(message),
    }
}

fn of_io(cause: io::ErrorKind, message: String) -> PyErr {
    match cause {
        io::ErrorKind::NotFound => PyFileNotFoundError::new_err(message),
        io::ErrorKind::PermissionDenied => PyPermissionError::new_err(message),
        io::ErrorKind::InvalidData => value(message),
        _ => PyOSError::new_err(message),
    }
}

/// What went wrong with one or more runs.
pub(crate) fn suite(error: &SuiteError) -> PyErr {
    match error {
        SuiteError::Settings(error) => settings(error),
        SuiteError::Run(error) => run(error),
        _ => of_system(error),
    }
}

/// What went wrong with an experiment.
fn run(error: &RunError) -> PyErr {
    match error {
        RunError::Settings(error) => settings(error),
        RunError::Data(DataError::Read(ReadError::Unreadable(_, cause))) => {
            of_io(cause.kind(), error.to_string())
        }
        _ => of_system(error),
    }
}

/// What is wrong with the settings of an experiment.
pub(crate) fn settings(error: &SettingsError) -> PyErr {
    match error {
        SettingsError::Config(error) => config(error),
        SettingsError::NotFound(_) => PyFileNotFoundError::new_err(error.to_string()),
        _ => of_system(error),
    }
}
