//! A [`Server`] that sees no single upload: it opens sums of them with the help of mask holders.

use alloc::vec::Vec;

use super::Server;
use crate::masking::OpenedSum;
use crate::masking::{BadMasks, MaskAnswer, MaskRefusal, MaskRequest, MaskedSum, MaskedUpload};
use crate::message::{NodeId, Rejected};
use crate::state::BadState;

impl Server {
    /// Nothing yet of the open round, for relays of masked uploads; none if they aren't masked.
    pub fn masked_sum(&self) -> Option<MaskedSum> {
        let rules = self.plan.mask_rules()?;
        let broadcasts: Vec<_> = self.heads.iter().map(|head| head.broadcast()).collect();
        Some(MaskedSum::new(rules, &broadcasts, &self.parts()))
    }

    /// What came in the open round; none if uploads aren't masked.
    pub fn masked(&self) -> Option<&MaskedSum> {
        self.masked.as_deref()
    }

    /// Takes a node's masked upload, or refuses it and stays as it was.
    pub fn accept_masked(&mut self, from: NodeId, upload: &MaskedUpload) -> Result<(), Rejected> {
        self.masked.as_mut().ok_or(Rejected::NotExpected)?.accept(from, upload)
    }

    /// Takes masked uploads that a relay has added up, or refuses them and stays as it was.
    pub fn merge_masked(&mut self, sum: &MaskedSum) -> Result<(), Rejected> {
        self.masked.as_mut().ok_or(Rejected::NotExpected)?.merge(sum)
    }

    /// What every mask holder has to be asked before the round can close, unless too few nodes can
    /// be summed. From here on uploads are refused. [`Server::save_masked`] must be stored before a
    /// mask holder is asked, or the round may never close.
    pub fn ask_for_masks(&mut self) -> Result<MaskRequest, MaskRefusal> {
        self.masked.as_mut().ok_or(MaskRefusal::Malformed)?.request()
    }

    /// Takes the sum of all uploads that came, without the masks that all mask holders have told,
    /// or refuses the answers and stays as it was. Then the round can close.
    pub fn open_masked(&mut self, answers: &[MaskAnswer]) -> Result<OpenedSum, BadMasks> {
        let masked = self.masked.as_ref().ok_or(BadMasks::NotAsked)?;
        let mut opened = masked.open(answers, self.parts())?;
        opened.squared_error *= self.plan.error_unit();
        self.merge(&opened.parts).map_err(|_| BadMasks::Senseless)?;
        Ok(opened)
    }

    /// The masked uploads of the open round; none if uploads aren't masked.
    pub fn save_masked(&self) -> Option<Vec<u8>> {
        self.masked().map(MaskedSum::to_bytes)
    }

    /// Continues from the state of [`Server::save_masked`] of the same round.
    pub fn restore_masked(&mut self, saved: &[u8]) -> Result<(), BadState> {
        let rules = self.plan.mask_rules();
        let rules = rules.ok_or_else(|| BadState::new("uploads of this plan aren't masked"))?;
        let sum = MaskedSum::read(rules, saved)?;
        if self.masked.as_ref().is_none_or(|open| !open.is_alike(&sum)) {
            return Err(BadState::new("it belongs to another broadcast"));
        }
        self.masked = Some(sum.into());
        Ok(())
    }

    /// Begins the masked sum of the open round.
    pub(super) fn renew_masked(&mut self) {
        self.masked = self.masked_sum().map(Into::into);
    }
}
