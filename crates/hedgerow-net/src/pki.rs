//! Certificates: what a federation's authority issues ([`Authority`]), and how both sides of a
//! connection prove who they are ([`identity`]).

#[cfg(feature = "server")]
mod authority;
pub mod identity;

#[cfg(feature = "server")]
pub use authority::{
    AUTHORITY_DAYS, Authority, CERTIFICATE_DAYS, DEFAULT_HOSTS, Issued, Issuing, Kind, MAX_DAYS,
    PkiError,
};
