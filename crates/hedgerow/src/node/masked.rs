//! A [`Node`] that sends no upload that the server could read.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::link::Due;
use super::{Node, Raw};
use crate::masking::StreamOffer;
use crate::masking::{BadKey, MaskedUpload, NodeMasks, PublicKey, SecretKey, SpentRound};
use crate::message::Errors;
use crate::plan::Plan;
use crate::state::{BadState, StateKind};

const KIND: StateKind = StateKind::new("masked-node");

/// Why a node can't open a stream of masks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadStream {
    /// Its uploads are read by the server.
    #[error("uploads of this plan aren't masked")]
    NotMasked,
    /// The server could name mask holders of its own.
    #[error("the plan has other mask holders than this node")]
    OtherHolders,
    /// A mask holder has a key that isn't one.
    #[error(transparent)]
    Key(#[from] BadKey),
}

impl Node {
    /// Opens a stream of masks: until then a node of a plan with masks sends no upload. `holders`
    /// are the mask holders that its own configuration names. The secret and the name of the stream
    /// are random bytes that nothing else is made from. [`Node::set_run`] comes before it. Mask
    /// holders must know the result before the server asks them.
    ///
    /// A node whose state is lost, or is an older one, opens another stream.
    pub fn open_stream(
        &mut self,
        holders: &[PublicKey],
        secret: SecretKey,
        stream: [u8; 16],
    ) -> Result<StreamOffer, BadStream> {
        let rules = self.plan.mask_rules().ok_or(BadStream::NotMasked)?;
        if rules.holders() != holders {
            return Err(BadStream::OtherHolders);
        }
        let masks = NodeMasks::new(rules, self.run(), self.id, secret, stream)?;
        let offer = *masks.offer();
        self.use_masks(masks);
        Ok(offer)
    }

    /// What mask holders have to know of its stream of masks; none if none is open.
    pub fn stream(&self) -> Option<&StreamOffer> {
        self.masks.as_ref().map(|masks| masks.offer())
    }

    fn use_masks(&mut self, masks: NodeMasks) {
        self.heads.iter_mut().for_each(|head| head.vote_privately(masks.seed()));
        self.masks = Some(Box::new(masks));
    }

    /// The masked upload of the round, if one is due as [`Node::speak`] says: once a connection. An
    /// upload of this round that was lost comes again as it was, whatever was learned since then.
    /// [`Node::save`] must be stored before it is sent.
    pub fn masked_upload(&mut self, even_so: bool) -> Result<Option<MaskedUpload>, SpentRound> {
        let round = self.round();
        let Some(tag) = self.raw.as_ref().and_then(|raw| raw.tag) else { return Ok(None) };
        let Some(masks) = self.masks.as_ref().filter(|_| self.is_in_step()) else {
            return Ok(None);
        };
        if let Some(frozen) = masks.frozen(&tag).cloned() {
            let link = &mut self.raw().link;
            let is_said = link.answered.replace(round) == Some(round);
            return Ok(Some(frozen).filter(|_| !is_said));
        }
        if self.write_uploads(even_so) != Due::Upload {
            return Ok(None);
        }
        let Errors { samples, squared_error } = self.untold_errors();
        let squared_error = (f64::from(squared_error) / self.plan.error_unit()) as f32;
        let Self { masks: Some(masks), raw: Some(raw), .. } = self else { return Ok(None) };
        let Raw { scratch, .. } = &**raw;
        let errors = Errors { samples, squared_error };
        let upload = masks.mask(tag, &scratch.buffers.uploads, errors)?.clone();
        self.sent();
        Ok(Some(upload))
    }

    /// A saved node with its masks, if it has any.
    pub(super) fn save_masks(&self, saved: Vec<u8>) -> Vec<u8> {
        match &self.masks {
            Some(masks) => KIND.save(&(masks.save(), saved)),
            None => saved,
        }
    }

    /// The masks of a saved node, if it has any, and the rest.
    pub(super) fn read_masks(
        plan: &Plan,
        saved: &[u8],
    ) -> Result<Option<(NodeMasks, Vec<u8>)>, BadState> {
        let Some(rules) = plan.mask_rules().filter(|_| KIND.is_kind_of(saved)) else {
            return Ok(None);
        };
        let (masks, rest): (Vec<u8>, _) = KIND.restore(saved, |_| true)?;
        Ok(Some((NodeMasks::restore(rules, &masks)?, rest)))
    }

    /// Continues with masks that were saved.
    pub(super) fn restore_masks(&mut self, masks: NodeMasks) -> Result<(), BadState> {
        if masks.offer().node != self.id {
            return Err(BadState::new("its masks are those of another node"));
        }
        self.use_masks(masks);
        Ok(())
    }
}
