//! [`NodeMasks`]: a node's stream of masks.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::keys::MaskKey;
use super::{BadKey, MaskRules, PublicKey, RoundTag, SecretKey, StreamOffer};
use crate::message::{Errors, NodeId, Upload};
use crate::state::{BadState, StateKind};

const KIND: StateKind = StateKind::new("node-masks");

/// The uploads of a node for all outputs, and its errors, as random bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaskedUpload {
    /// The round that it answers, and the broadcasts.
    pub tag: RoundTag,
    /// Words as [`super::MaskedLayout`] has them.
    pub bytes: Vec<u8>,
}

/// Why an upload can't be masked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "masks of round {round} could be used twice, because this stream has reached round {last}: \
     open another stream"
)]
pub struct SpentRound {
    /// The round that came.
    pub round: u64,
    /// The latest round that was masked.
    pub last: u64,
}

/// A node's stream of masks. It masks one upload for each round: what was masked is sent again as
/// it is, and never another upload with the same masks.
///
/// A node that can't know what it masked last, because its state was lost or is an older one, must
/// open another stream.
pub struct NodeMasks {
    rules: MaskRules,
    run: String,
    secret: SecretKey,
    offer: StreamOffer,
    keys: Vec<MaskKey>,
    /// What its votes follow from.
    seed: u64,
    /// The latest masked upload.
    frozen: Option<MaskedUpload>,
}

impl NodeMasks {
    /// A new stream of a node in a run. The secret and the name of the stream are random bytes that
    /// nothing else is made from.
    pub fn new(
        rules: MaskRules,
        run: &str,
        node: NodeId,
        secret: SecretKey,
        stream: [u8; 16],
    ) -> Result<Self, BadKey> {
        let offer = StreamOffer { node, stream, key: secret.public() };
        let agree = |holder: &PublicKey| MaskKey::agree(&secret, *holder, run, &offer, *holder);
        let keys = rules.holders().iter().map(agree).collect::<Result<_, _>>()?;
        let seed = secret.seed()?;
        Ok(Self { rules, run: run.into(), secret, offer, keys, seed, frozen: None })
    }

    /// What mask holders have to know of it.
    pub fn offer(&self) -> &StreamOffer {
        &self.offer
    }

    /// Another number for each stream, which nobody else knows.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// What was masked for a round, if it was.
    pub fn frozen(&self, tag: &RoundTag) -> Option<&MaskedUpload> {
        self.frozen.as_ref().filter(|frozen| frozen.tag == *tag)
    }

    /// Masks the uploads of all outputs in a round, or says again what it made of the first ones
    /// that came for it. [`NodeMasks::save`] must be stored before the result is sent.
    ///
    /// # Panics
    /// If the uploads aren't those of the plan.
    pub fn mask(
        &mut self,
        tag: RoundTag,
        uploads: &[Upload],
        errors: Errors,
    ) -> Result<&MaskedUpload, SpentRound> {
        if let Some(MaskedUpload { tag: last, .. }) = &self.frozen
            && *last != tag
            && last.round >= tag.round
        {
            return Err(SpentRound { round: tag.round, last: last.round });
        }
        let (rules, keys) = (&self.rules, &self.keys);
        let frozen = self.frozen.take().filter(|frozen| frozen.tag == tag);
        let frozen = frozen.unwrap_or_else(|| {
            let bytes = masked(rules, keys, &tag, uploads, errors);
            MaskedUpload { tag, bytes }
        });
        Ok(self.frozen.insert(frozen))
    }

    /// Everything that has to survive a restart, with the secret key.
    #[must_use]
    pub fn save(&self) -> Vec<u8> {
        let StreamOffer { node, stream, .. } = self.offer;
        KIND.save(&(&self.run, node, *self.secret.to_bytes(), stream, &self.frozen))
    }

    /// Continues from a saved state of the same plan.
    pub fn restore(rules: MaskRules, saved: &[u8]) -> Result<Self, BadState> {
        let (run, node, secret, stream, frozen): (String, _, _, _, _) =
            KIND.restore(saved, |_| true)?;
        let secret = SecretKey::from_bytes(secret);
        let masks = Self::new(rules, &run, node, secret, stream).map_err(BadState::new)?;
        Ok(Self { frozen, ..masks })
    }
}

fn masked(
    rules: &MaskRules,
    keys: &[MaskKey],
    tag: &RoundTag,
    uploads: &[Upload],
    errors: Errors,
) -> Vec<u8> {
    let lens: Vec<_> = uploads.iter().map(|upload| upload.numbers.len()).collect();
    let Some(layout) = rules.layout(&lens) else { panic!("uploads of {lens:?} numbers") };
    let mut words = layout.encode(rules.terms(uploads, errors));
    keys.iter().for_each(|key| key.add_mask(tag, &layout, &mut words));
    layout.pack(&words)
}
