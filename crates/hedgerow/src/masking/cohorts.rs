//! [`Cohorts`]: which nodes are summed as a whole or not at all.

use core::ops::Range;

use crate::message::NodeId;

/// Fixed groups of nodes, for methods that send sums of whole histories: the sums of two sets that
/// differ by one node would give that node's history away. Without a size there is one group, of
/// which any nodes may be summed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cohorts {
    nodes: usize,
    size: Option<usize>,
}

impl Cohorts {
    /// Of this many nodes, in cohorts of a size that is at most as many. The last cohort has what
    /// is left as well.
    pub(super) fn new(nodes: usize, size: Option<usize>) -> Self {
        Self { nodes, size }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.size.map_or(1, |size| (self.nodes / size).max(1))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.nodes == 0
    }

    /// The cohort of a node, if there is such a node.
    pub fn cohort_of(&self, node: NodeId) -> Option<usize> {
        let node = node as usize;
        let cohort = self.size.map_or(0, |size| (node / size).min(self.len() - 1));
        (node < self.nodes).then_some(cohort)
    }

    /// The nodes of a cohort.
    pub fn members(&self, cohort: usize) -> Range<usize> {
        let size = self.size.unwrap_or(self.nodes);
        let end = if cohort + 1 == self.len() { self.nodes } else { (cohort + 1) * size };
        cohort * size..end
    }

    /// Whether so many nodes of a cohort can be summed.
    pub(super) fn is_whole(&self, cohort: usize, nodes: usize) -> bool {
        self.size.is_none() || nodes == self.members(cohort).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_is_in_one_cohort_of_at_least_the_size() {
        for (nodes, size, sizes) in [
            (20, None, &[20][..]),
            (20, Some(10), &[10, 10]),
            (29, Some(10), &[10, 19]),
            (20, Some(20), &[20]),
        ] {
            let cohorts = Cohorts::new(nodes, size);
            assert_eq!(cohorts.len(), sizes.len());
            for (cohort, size) in sizes.iter().enumerate() {
                let members = cohorts.members(cohort);
                assert_eq!(members.len(), *size);
                assert!(members.clone().all(|node| cohorts.cohort_of(node as u32) == Some(cohort)));
                assert!(cohorts.is_whole(cohort, *size));
                assert_eq!(cohorts.is_whole(cohort, size - 1), cohorts.size.is_none());
            }
            assert_eq!(cohorts.cohort_of(nodes as u32), None);
        }
    }
}
