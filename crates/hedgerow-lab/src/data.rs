//! Data sets in memory: generated from a seed ([`builtin`]), read from a file ([`csv`]), and dealt to nodes
//! ([`partition`]).

pub mod builtin;
pub mod csv;
pub mod partition;

/// Samples in order of time.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    /// Name of the stream, or the path of the file.
    pub name: String,
    /// Numbers per sample, d.
    pub features: usize,
    /// The inputs, row by row: `len() * features` numbers.
    pub x: Vec<f32>,
    /// The labels, one per sample.
    pub y: Vec<f32>,
    /// The node of each sample, when the data itself says so.
    pub owner: Option<Vec<u32>>,
}

/// A series too short to look back that far.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{order} lags need more than {order} samples, and there are {samples}")]
pub struct TooShort {
    /// Lags asked for.
    pub order: usize,
    /// Samples there are.
    pub samples: usize,
}

impl Dataset {
    /// Number of samples, n.
    pub fn len(&self) -> usize {
        self.y.len()
    }

    /// Whether there is no sample at all.
    pub fn is_empty(&self) -> bool {
        self.y.is_empty()
    }

    /// Input and label of one sample.
    ///
    /// # Panics
    /// If `index` is not below [`len`](Self::len).
    pub fn sample(&self, index: usize) -> (&[f32], f32) {
        let start = index * self.features;
        (&self.x[start..start + self.features], self.y[index])
    }

    /// Appends the `order` labels before each sample to its features, the latest first. The first `order` samples, which
    /// have no such past, go. Lags run over the order of time, whoever owns the samples.
    pub fn lagged(self, order: usize) -> Result<Self, TooShort> {
        if self.len() <= order {
            return Err(TooShort { order, samples: self.len() });
        }
        let (lags, y) = autoregressive(&self.y, order);
        let features = self.features + order;
        let mut x = Vec::with_capacity(y.len() * features);
        for row in 0..y.len() {
            x.extend_from_slice(self.sample(row + order).0);
            x.extend_from_slice(&lags[row * order..(row + 1) * order]);
        }
        let owner = self.owner.map(|mut owner| owner.split_off(order));
        Ok(Self { name: self.name, features, x, y, owner })
    }
}

/// A series as samples of AR(`order`): inputs x_t = (y_{t-1}, …, y_{t-order}), row by row, and labels y_t. A series of no
/// more than `order` values makes no sample.
pub fn autoregressive(series: &[f32], order: usize) -> (Vec<f32>, Vec<f32>) {
    let labels = series.get(order..).unwrap_or_default();
    let x = (0..labels.len()).flat_map(|start| series[start..start + order].iter().rev().copied()).collect();
    (x, labels.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn five() -> Dataset {
        Dataset {
            name: "five".into(),
            features: 2,
            x: vec![0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5],
            y: vec![10.0, 11.0, 12.0, 13.0, 14.0],
            owner: Some(vec![0, 1, 2, 0, 1]),
        }
    }

    #[test]
    fn a_sample_is_its_row_and_label() {
        assert_eq!(five().sample(3), ([3.0, 3.5].as_slice(), 13.0));
        assert_eq!((five().len(), five().is_empty()), (5, false));
    }

    #[test]
    fn autoregressive_inputs_are_the_past_latest_first() {
        let (x, y) = autoregressive(&[1.0, 2.0, 3.0, 4.0, 5.0], 3);
        assert_eq!(x, [3.0, 2.0, 1.0, 4.0, 3.0, 2.0]);
        assert_eq!(y, [4.0, 5.0]);
        assert_eq!(autoregressive(&[1.0, 2.0], 3), (vec![], vec![]));
    }

    #[test]
    fn lags_stand_behind_the_sample_s_own_features() {
        let lagged = five().lagged(2).unwrap();
        assert_eq!((lagged.features, lagged.len()), (4, 3));
        assert_eq!(lagged.sample(0), ([2.0, 2.5, 11.0, 10.0].as_slice(), 12.0));
        assert_eq!(lagged.sample(2), ([4.0, 4.5, 13.0, 12.0].as_slice(), 14.0));
        assert_eq!(lagged.owner, Some(vec![2, 0, 1]));
    }

    #[test]
    fn no_lags_change_nothing() {
        assert_eq!(five().lagged(0).unwrap(), five());
    }

    #[test]
    fn lags_need_one_sample_more_than_their_number() {
        assert_eq!(five().lagged(4).unwrap().len(), 1);
        let error = five().lagged(5).unwrap_err();
        assert_eq!(error.to_string(), "5 lags need more than 5 samples, and there are 5");
    }
}
