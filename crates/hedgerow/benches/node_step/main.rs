//! Node steps per second: features, prediction, learning and upload of MK-OFL, compared with the
//! least time the machine needs.
//!
//! Prints one JSON object per case. `cargo xtask bench` runs it alternately with numpy and makes
//! the table. Arguments: `main` is one shape alone, `threads` compares two threads with one,
//! `draws` structured frequencies with shared ones, `methods` GR-OFL with MK-OFL, `floors` TR-OFL
//! and the own layer with the least time the machine needs.

#![allow(clippy::print_stdout, clippy::unwrap_used)]

mod draws;
mod floors;
mod methods;
mod step;
mod tr_round;

use step::Case;

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("methods") => [5, 77].into_iter().for_each(methods::compare),
        Some("floors") => floors::report(),
        Some("draws") => {
            for (inputs, frequencies) in
                [(77, 49), (77, 512), (1000, 49), (1000, 512), (10_000, 49), (10_000, 512)]
            {
                draws::compare(inputs, frequencies);
            }
        }
        Some("threads") => {
            step::cases().filter(Case::is_default).for_each(|case| step::compare_threads(&case))
        }
        Some("main") => {
            step::cases().filter(Case::is_main).for_each(|case| step::report(&case));
        }
        _ => step::cases().for_each(|case| step::report(&case)),
    }
}
