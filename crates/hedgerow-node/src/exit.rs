//! [`Exit`]: what the exit codes of `hedgerow` and `hedgerow-node` mean.

use std::process::ExitCode;

/// Why a program ended. The number is its exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum Exit {
    /// The command did what it was asked for.
    Success = 0,
    /// An error that none of the others describes.
    Failure = 1,
    /// A flag, a settings file or a value that can't be used. The parser of flags uses it too.
    Usage = 2,
    /// Data, a certificate or a stored state that can't be used.
    Data = 3,
    /// Results or a state that can't be written.
    Output = 4,
    /// Everything is done except for data sets that are missing.
    Incomplete = 5,
    /// The network or a server failed, or an address can't be listened on.
    Network = 6,
    /// Ctrl-C.
    Interrupted = 130,
}

/// The codes as help texts and man pages show them.
pub const EXIT_CODES: &str = "\
Exit codes:
  0    the command did what it was asked for
  1    an error that none of the others describes
  2    a flag, a settings file or a value that can't be used
  3    data, a certificate or a stored state that can't be used
  4    results or a state that can't be written
  5    everything is done except for data sets that are missing
  6    the network or a server failed, or an address can't be listened on
  130  interrupted by Ctrl-C";

impl Exit {
    /// Ends the program at once.
    pub fn now(self) -> ! {
        hedgerow_net::log::flush();
        std::process::exit(self as u8 as i32)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
