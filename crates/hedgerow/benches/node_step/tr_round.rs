//! What a round of TR-OFL was about, told by the broadcasts before and after it.

use hedgerow::message::Broadcast;

/// Numbers of the header at the end of a broadcast, and where it says what the numbers before it
/// are, what is asked for, and whose step it has.
const HEADER: usize = 10;
const FORM: usize = 0;
const ASKED: usize = 1;
const STEP: usize = 5;

/// The work of a round. Rounds without it (a step was refused, a block is asked for once more) are
/// of no kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RoundKind {
    /// GR-OFL's round.
    Ridge,
    /// A step of the output block is made.
    Output,
    /// The same for a group of units.
    Group,
    /// Units are chosen from candidates.
    Growth,
}

impl RoundKind {
    pub(crate) fn of(before: &Broadcast, after: &Broadcast) -> Option<Self> {
        let number = |broadcast: &Broadcast, at: usize| {
            broadcast.numbers[broadcast.numbers.len() - HEADER + at]
        };
        let (asked, step) = (number(before, ASKED), number(after, STEP));
        match (asked, number(after, FORM)) {
            (0.0, _) => Some(Self::Ridge),
            (2.0, 1.0) if step == 1.0 => Some(Self::Output),
            (3.0, 5.0) => Some(Self::Growth),
            (4.0.., 1.0) if step == asked - 1.0 => Some(Self::Group),
            _ => None,
        }
    }
}
