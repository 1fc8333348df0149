//! Standard output, and progress bars on standard error.

use std::io::{ErrorKind, IsTerminal, Write};

use hedgerow_lab::output::OutputError;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

/// Prints to standard output; a reader that has seen enough is no error.
pub(crate) fn print(text: &str) -> Result<(), OutputError> {
    let mut output = std::io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(OutputError::Unwritable { path: "standard output".into(), source: error })
        }
        _ => Ok(()),
    }
}

pub(crate) fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    Ok(print(&(serde_json::to_string_pretty(value)? + "\n"))?)
}

/// A bar of this template; hidden if it is not wanted or standard error is no terminal. Without a
/// length it is a spinner.
pub(crate) fn bar(template: &str, length: Option<u64>, wanted: bool) -> ProgressBar {
    let target = match wanted && std::io::stderr().is_terminal() {
        true => ProgressDrawTarget::stderr_with_hz(8),
        false => ProgressDrawTarget::hidden(),
    };
    let style = ProgressStyle::with_template(template);
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(length, target).with_style(style)
}

/// A bar of steps with an estimate of the time left.
pub(crate) fn steps_bar(steps: u64, wanted: bool) -> ProgressBar {
    bar("{bar:40} {percent:>3}%  {elapsed} gone, {eta} left  {msg}", Some(steps), wanted)
}
