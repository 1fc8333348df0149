//! [`ScaleChange`]: how a scale differs from the one before, for people who watch a federation.

use super::scale::{Axis, Scale};
use crate::math;

/// How the latest scale differs from the one before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScaleChange {
    /// The version before; 0 if this is the first scale.
    pub from: u64,
    /// The version now.
    pub to: u64,
    /// Columns that have changed.
    pub changed: usize,
    /// The column that has changed most: the inputs, then the labels, from 0.
    pub column: usize,
    /// Its scale before; none if this is the first scale.
    pub before: Option<Axis>,
    /// Its scale now.
    pub after: Axis,
}

impl ScaleChange {
    pub(crate) fn new((from, before): (u64, Option<&Scale>), (to, after): (u64, &Scale)) -> Self {
        let axes = |column: usize| (before.map(|scale| scale.axis(column)), after.axis(column));
        let apart = |column: usize| match axes(column) {
            (Some(before), after) => distance(before, after),
            (None, after) => distance(Axis::IDENTITY, after),
        };
        let (mut column, mut farthest) = (0, f64::NEG_INFINITY);
        for at in 0..after.columns() {
            let apart = apart(at);
            if apart > farthest {
                (column, farthest) = (at, apart);
            }
        }
        let has_changed = |at: &usize| axes(*at).0 != Some(axes(*at).1);
        let changed = (0..after.columns()).filter(has_changed).count();
        let (before, after) = axes(column);
        Self { from, to, changed, column, before, after }
    }
}

/// How much a column has changed: how many times as wide it is, in powers of e, or how many widths
/// away.
fn distance(before: Axis, after: Axis) -> f64 {
    let (old, new) = (before.width(), after.width());
    let widest = old.max(new);
    if widest <= 0.0 {
        return 0.0;
    }
    let apart = (after.offset() - before.offset()).abs() / widest;
    if old > 0.0 && new > 0.0 { apart.max(math::ln(new / old).abs()) } else { f64::MAX }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_column_that_changed_most_is_named() {
        let scale = |ranges: &[(f64, f64)]| Scale::from_ranges(ranges).unwrap();
        let before = scale(&[(0.0, 1.0), (5.0, 6.0), (0.0, 1.0)]);
        let after = scale(&[(0.0, 2.0), (900.0, 901.0), (0.0, 1.0)]);
        let change = ScaleChange::new((3, Some(&before)), (4, &after));
        assert_eq!((change.from, change.to), (3, 4));
        assert_eq!((change.changed, change.column), (2, 1));
        assert_eq!(change.before.map(Axis::offset), Some(5.0));
        assert_eq!((change.after.offset(), change.after.width()), (900.0, 1.0));
        let wider = scale(&[(0.0, 1e6), (5.0, 6.0), (0.0, 1.0)]);
        assert_eq!(ScaleChange::new((4, Some(&before)), (5, &wider)).column, 0);
        assert_eq!(ScaleChange::new((0, None), (1, &before)).changed, 3);
    }
}
