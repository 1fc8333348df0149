//! Masked sums: a server that learns the sum of the uploads of a round, and no upload.
//!
//! A node adds to its upload one mask for each *mask holder*; a mask is a stream of bytes that only
//! the node and that mask holder can compute. The server adds up what arrives, tells the mask
//! holders which nodes are in its sum, and subtracts the sums of masks that they answer with. Who
//! reads an upload without all mask holders reads random bytes, and mask holders see no uploads.
//!
//! | party | object | does |
//! |---|---|---|
//! | node | [`NodeMasks`] | masks its upload of a round, once: the same bytes are sent again |
//! | relay, server | [`MaskedSum`] | adds up masked uploads, asks for the masks, removes them |
//! | mask holder | [`MaskHolder`] | sums of masks: one set of nodes per round, never a small one |
//!
//! [`MaskRules`] of a [`crate::Plan`] says what all of them must agree on. Numbers become whole
//! numbers of fixed point first ([`FixedPoint`]), so a masked sum has the bits of the sum without
//! masks, in any order and through any tree of relays. The keys of a node and a mask holder come
//! from an exchange of X25519 ([`SecretKey`]), the masks from XChaCha20. Fresh random bytes for
//! keys come from the driver.
//!
//! What this doesn't hide: who took part and when; sums from a server that shares the masks of all
//! mask holders; an upload from the server if all other nodes of its sum tell it theirs. Nobody can
//! check the size of a single upload, so poisoned ones aren't refused.

mod cohorts;
mod encoding;
mod holder;
mod keys;
mod node;
mod rules;
mod sum;

pub use cohorts::Cohorts;
pub use encoding::{FixedPoint, MaskedLayout};
pub use holder::{MaskAnswer, MaskHolder, MaskRefusal, MaskRequest};
pub use keys::{BadKey, NotAKey, PublicKey, RoundTag, SecretKey, StreamOffer};
pub use node::{MaskedUpload, NodeMasks, SpentRound};
pub use rules::{DEFAULT_LEAST, LEAST, MaskRules, MaskedSums, Privacy};
pub use sum::{BadMasks, MaskedSum, OpenedSum};

#[cfg(test)]
mod tests;
