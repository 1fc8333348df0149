//! [`Hosts`]: which names an endpoint answers to. A page of another site could let its own name
//! point to this machine and read everything here; but its requests carry that name.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::header::HOST;
use axum::http::uri::Authority;

/// Names that are answered to, beside `localhost` and all addresses in digits, which no other site
/// can own.
#[derive(Debug, Clone, Default)]
pub struct Hosts(Vec<String>);

/// Why a request was refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misdirected {
    /// It names no host, or several.
    #[error("the request has to name one host")]
    NoHost,
    /// A name that this endpoint doesn't have.
    #[error("this server isn't known as `{0}`; add that name to its names if it should be")]
    Stranger(String),
}

impl Hosts {
    /// With these names, without ports. Case is ignored.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        Self(
            names.into_iter().map(|name| name.trim_end_matches('.').to_ascii_lowercase()).collect(),
        )
    }

    /// Whether a request is for one of them.
    pub fn check(&self, request: &Request) -> Result<(), Misdirected> {
        let mut headers = request.headers().get_all(HOST).iter();
        let (Some(host), None) = (headers.next(), headers.next()) else {
            return Err(Misdirected::NoHost);
        };
        self.check_name(host.to_str().map_err(|_| Misdirected::NoHost)?)?;
        // A request to a proxy has a host in its first line, which must fit too.
        request.uri().authority().map_or(Ok(()), |authority| self.check_name(authority.as_str()))
    }

    fn check_name(&self, host: &str) -> Result<(), Misdirected> {
        let authority: Authority = host.parse().map_err(|_| Misdirected::NoHost)?;
        let name = authority.host().trim_end_matches('.').to_ascii_lowercase();
        let digits = name.trim_start_matches('[').trim_end_matches(']');
        let is_ours =
            name == "localhost" || digits.parse::<IpAddr>().is_ok() || self.0.contains(&name);
        if is_ours { Ok(()) } else { Err(Misdirected::Stranger(name)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_names_and_addresses_are_answered_and_others_are_not() {
        let hosts = Hosts::new(["Hedgerow.Example".to_owned()]);
        for ours in [
            "localhost",
            "LOCALHOST:8080",
            "localhost.",
            "127.0.0.1",
            "127.0.0.1:1",
            "[::1]:8080",
            "[::1]",
            "192.168.1.7:8080",
            "hedgerow.example",
            "HEDGEROW.example:443",
            "hedgerow.example.",
        ] {
            assert_eq!(hosts.check_name(ours), Ok(()), "{ours}");
        }
        for stranger in [
            "evil.example",
            "hedgerow.example.evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example:8080",
            "sub.hedgerow.example",
        ] {
            assert!(
                matches!(hosts.check_name(stranger), Err(Misdirected::Stranger(_))),
                "{stranger}"
            );
        }
        for garbage in ["", "a b", "http://localhost/", "[::1", "\u{e4}"] {
            assert!(hosts.check_name(garbage).is_err(), "{garbage}");
        }
        assert!(Hosts::default().check_name("hedgerow.example").is_err());
    }

    #[test]
    fn a_request_names_exactly_one_host() {
        let hosts = Hosts::default();
        let request = |names: &[&str], uri: &str| {
            let request =
                names.iter().fold(Request::builder().uri(uri), |r, name| r.header(HOST, *name));
            request.body(axum::body::Body::empty()).unwrap()
        };
        assert_eq!(hosts.check(&request(&["localhost"], "/")), Ok(()));
        assert_eq!(hosts.check(&request(&[], "/")), Err(Misdirected::NoHost));
        assert_eq!(
            hosts.check(&request(&["localhost", "localhost"], "/")),
            Err(Misdirected::NoHost)
        );
        assert_eq!(
            hosts.check(&request(&["localhost"], "http://evil.example/")),
            Err(Misdirected::Stranger("evil.example".into()))
        );
    }
}
