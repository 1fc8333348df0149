//! Keys of nodes and mask holders, and the masks that follow from them.

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use chacha20::XChaCha20;
use chacha20::cipher::{KeyIvInit, StreamCipher};
use hkdf::Hkdf;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use x25519_dalek::StaticSecret;
use zeroize::Zeroizing;

use super::MaskedLayout;
use crate::message::{Broadcast, NodeId};

/// What keys are derived for.
const LABEL: &[u8] = b"hedgerow mask 1";

/// The secret half of a key of X25519. It is wiped when it is dropped.
#[derive(Clone)]
pub struct SecretKey(StaticSecret);

impl SecretKey {
    /// From 32 random bytes that nothing else is made from.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(StaticSecret::from(bytes))
    }

    /// What others need to agree on a key with it.
    pub fn public(&self) -> PublicKey {
        PublicKey(x25519_dalek::PublicKey::from(&self.0).to_bytes())
    }

    /// A number that only who has the key knows.
    pub(super) fn seed(&self) -> Result<u64, BadKey> {
        let mut seed = [0; 8];
        let hkdf = Hkdf::<Sha256>::new(None, self.0.as_bytes());
        hkdf.expand(b"hedgerow votes 1", &mut seed).map_err(|_| BadKey { key: self.public() })?;
        Ok(u64::from_le_bytes(seed))
    }

    pub(super) fn to_bytes(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.0.to_bytes())
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey(of {})", self.public())
    }
}

/// The public half of a key of X25519, written as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicKey([u8; 32]);

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

/// A text that is no public key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a public key has 64 hexadecimal digits, unlike {text:?}")]
pub struct NotAKey {
    text: String,
}

impl FromStr for PublicKey {
    type Err = NotAKey;

    fn from_str(text: &str) -> Result<Self, NotAKey> {
        let digit = |at: usize| char::from(text.as_bytes()[at]).to_digit(16);
        let byte = |at: usize| Some((digit(2 * at)? << 4 | digit(2 * at + 1)?) as u8);
        let mut key = [0; 32];
        let is_key = text.len() == 64
            && key
                .iter_mut()
                .enumerate()
                .all(|(at, out)| byte(at).map(|byte| *out = byte).is_some());
        if is_key { Ok(Self(key)) } else { Err(NotAKey { text: text.into() }) }
    }
}

impl TryFrom<String> for PublicKey {
    type Error = NotAKey;

    fn try_from(text: String) -> Result<Self, NotAKey> {
        text.parse()
    }
}

impl From<PublicKey> for String {
    fn from(key: PublicKey) -> Self {
        alloc::format!("{key}")
    }
}

/// What a node tells mask holders of its stream of masks: all of it is public. A mask holder must
/// know that it comes from the node, such as by a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamOffer {
    /// The node.
    pub node: NodeId,
    /// Random, and another one for each stream.
    pub stream: [u8; 16],
    /// The node's key, made for this stream.
    pub key: PublicKey,
}

/// A public key with which nobody can agree on a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the public key {key} gives no secret")]
pub struct BadKey {
    key: PublicKey,
}

/// The key that a node and a mask holder share for a stream.
pub(super) struct MaskKey(Zeroizing<[u8; 32]>);

impl MaskKey {
    /// The key of a stream, from the secret of one side and the public key of the other.
    pub(super) fn agree(
        secret: &SecretKey,
        other: PublicKey,
        run: &str,
        offer: &StreamOffer,
        holder: PublicKey,
    ) -> Result<Self, BadKey> {
        let shared = secret.0.diffie_hellman(&x25519_dalek::PublicKey::from(other.0));
        let bad = BadKey { key: other };
        if !shared.was_contributory() {
            return Err(bad);
        }
        let info = [LABEL, &offer.node.to_le_bytes(), &offer.stream, &holder.0].concat();
        let mut key = Zeroizing::new([0; 32]);
        let hkdf = Hkdf::<Sha256>::new(Some(run.as_bytes()), shared.as_bytes());
        hkdf.expand(&info, &mut *key).map_err(|_| bad)?;
        Ok(Self(key))
    }

    /// Adds the mask of a round, word by word.
    pub(super) fn add_mask(&self, tag: &RoundTag, layout: &MaskedLayout, words: &mut [u64]) {
        let mut bytes = Zeroizing::new(alloc::vec![0; layout.bytes()]);
        let mut cipher = XChaCha20::new((&*self.0).into(), (&tag.nonce()).into());
        cipher.apply_keystream(&mut bytes);
        layout.add(words, &bytes);
    }
}

/// What the masks of a round belong to: its number, and what its broadcasts are. A node that was
/// sent another broadcast has other masks, so that its upload can't be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundTag {
    /// The round.
    pub round: u64,
    /// The first bytes of the SHA-256 of the broadcasts.
    pub broadcast: [u8; 16],
}

impl RoundTag {
    /// Of the broadcasts that open a round, one for each output, as nodes have read them.
    pub fn new(broadcasts: &[&Broadcast]) -> Self {
        let mut hash = Sha256::new();
        for Broadcast { kernels, numbers, .. } in broadcasts {
            let [current, next] = kernels.map_or([0; 2], |both| {
                [both.current, both.next].map(|kernel| u64::from(kernel) + 1)
            });
            let head = [current, next, numbers.len() as u64];
            head.iter().for_each(|number| hash.update(number.to_le_bytes()));
            numbers.iter().for_each(|number| hash.update(number.to_le_bytes()));
        }
        let digest = hash.finalize();
        let broadcast = core::array::from_fn(|at| digest[at]);
        Self { round: broadcasts.first().map_or(0, |first| first.round), broadcast }
    }

    fn nonce(&self) -> [u8; 24] {
        let mut nonce = [0; 24];
        nonce[..8].copy_from_slice(&self.round.to_le_bytes());
        nonce[8..].copy_from_slice(&self.broadcast);
        nonce
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec::Vec;

    use super::*;
    use crate::masking::FixedPoint;

    fn secret(byte: u8) -> SecretKey {
        SecretKey::from_bytes([byte; 32])
    }

    fn offer() -> StreamOffer {
        StreamOffer { node: 7, stream: [4; 16], key: secret(1).public() }
    }

    #[test]
    fn masks_are_xchacha20() {
        // A.3.2 of draft-irtf-cfrg-xchacha-03.
        let key = MaskKey(Zeroizing::new(core::array::from_fn(|at| 0x80 + at as u8)));
        let nonce: [u8; 24] = core::array::from_fn(|at| 0x40 + at as u8 + u8::from(at == 23));
        let round = u64::from_le_bytes(core::array::from_fn(|at| nonce[at]));
        let tag = RoundTag { round, broadcast: core::array::from_fn(|at| nonce[8 + at]) };
        assert_eq!(tag.nonce(), nonce);
        let layout = MaskedLayout::new(alloc::vec![(4, FixedPoint::new(1, 0, (0, 0)))]);
        let mut words = [0; 4];
        key.add_mask(&tag, &layout, &mut words);
        let cipher = layout.pack(&words).into_iter().zip(*b"The dhole (prono");
        let cipher: Vec<u8> = cipher.map(|(mask, text)| mask ^ text).collect();
        assert_eq!(cipher, 0x4559_abba_4e48_c161_02e8_bb2c_05e6_947f_u128.to_be_bytes());
    }

    #[test]
    fn both_sides_agree_on_a_key_that_nothing_else_has() {
        let (node, holder, offer) = (secret(1), secret(2), offer());
        let key = |node: &SecretKey, run: &str, offer: StreamOffer, holder: &SecretKey| {
            let holder = holder.public();
            *MaskKey::agree(node, holder, run, &offer, holder).unwrap().0
        };
        let agreed = key(&node, "run", offer, &holder);
        let other = MaskKey::agree(&holder, node.public(), "run", &offer, holder.public());
        assert_eq!(*other.unwrap().0, agreed);
        for different in [
            key(&secret(3), "run", offer, &holder),
            key(&node, "run 2", offer, &holder),
            key(&node, "run", StreamOffer { node: 8, ..offer }, &holder),
            key(&node, "run", StreamOffer { stream: [5; 16], ..offer }, &holder),
            key(&node, "run", offer, &secret(3)),
        ] {
            assert_ne!(different, agreed);
        }
        let weak = PublicKey([0; 32]);
        let refused = MaskKey::agree(&node, weak, "run", &offer, weak).map(drop).unwrap_err();
        assert_eq!(refused.to_string(), alloc::format!("the public key {weak} gives no secret"));
    }

    #[test]
    fn public_keys_are_read_as_they_are_written() {
        let key = secret(9).public();
        assert_eq!(key.to_string().parse(), Ok(key));
        let json = serde_json::to_string(&key).unwrap();
        assert_eq!(serde_json::from_str::<PublicKey>(&json).unwrap(), key);
        let digits = key.to_string();
        let odd = digits.replace(&digits[..1], "g");
        for bad in ["", &digits[1..], &odd, &"é".repeat(32)] {
            assert!(bad.parse::<PublicKey>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_tag_differs_with_everything_that_nodes_read() {
        let broadcast = Broadcast { round: 3, kernels: None, numbers: alloc::vec![1.0, 0.0] };
        let tag = RoundTag::new(&[&broadcast]);
        let kernels = |current, next| Some(crate::message::Selection { current, next });
        for other in [
            Broadcast { round: 4, ..broadcast.clone() },
            Broadcast { kernels: kernels(0, 0), ..broadcast.clone() },
            Broadcast { numbers: alloc::vec![1.0, -0.0], ..broadcast.clone() },
            Broadcast { numbers: alloc::vec![1.0], ..broadcast.clone() },
        ] {
            assert_ne!(RoundTag::new(&[&other]), tag);
        }
        let [left, right] = [kernels(0, 1), kernels(1, 0)]
            .map(|kernels| RoundTag::new(&[&Broadcast { kernels, ..broadcast.clone() }]));
        assert_ne!(left, right);
    }
}
