//! Certificates: what a federation's authority issues ([`Authority`]), and how both sides of a
//! connection prove who they are ([`identity`]).

#[cfg(feature = "server")]
mod authority;
pub mod identity;
pub mod request;
pub mod token;

#[cfg(feature = "server")]
pub use authority::{
    AUTHORITY_DAYS, Authority, CERTIFICATE_DAYS, DEFAULT_HOSTS, EnrolmentError, Granted, Issued,
    Issuing, Kind, MAX_DAYS, MAX_TOKEN_LIFE, Passphrase, PkiError, Rotation, TokenRecord,
    TokenState,
};
