//! [`Environment`]: the standard variables of OpenTelemetry, read and checked.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, Uri};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use super::unusable;

/// What OTLP over HTTP has for metrics.
const PATH: &str = "/v1/metrics";

/// A variable that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum OtlpError {
    /// Headers that are none. They are not shown, because they are often secret.
    #[error("{0} must be names and values of headers: key=value pairs with commas between them")]
    Headers(String),
    /// Its value makes no sense.
    #[error("{variable} must be {bound}, but is {value:?}")]
    Value {
        /// The variable.
        variable: String,
        /// What it must be.
        bound: &'static str,
        /// The value that was found.
        value: String,
    },
    /// The certificates of the collector's authority.
    #[error("OTEL_EXPORTER_OTLP_CERTIFICATE: can't use {file}: {source}")]
    Certificates {
        /// The file.
        file: String,
        /// The cause.
        source: io::Error,
    },
    /// TLS without an authority.
    #[error(
        "an https:// collector needs OTEL_EXPORTER_OTLP_CERTIFICATE: the file with its authority's \
         certificate"
    )]
    NoAuthority,
}

/// Where a collector is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) is_secure: bool,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) path: String,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_secure { "https" } else { "http" };
        write!(out, "{scheme}://{}{}", self.authority(), self.path)
    }
}

impl Endpoint {
    /// Host and port, as requests name them.
    pub(super) fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    fn read(variable: &str, value: &str, path: &str) -> Result<Self, OtlpError> {
        let refused = || OtlpError::Value {
            variable: variable.to_owned(),
            bound: "a URL such as http://localhost:4318",
            value: value.to_owned(),
        };
        let uri: Uri = value.parse().map_err(|_| refused())?;
        let is_secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(refused()),
        };
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(refused)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let path = format!("{}{path}", uri.path().trim_end_matches('/'));
        let path = if path.is_empty() { "/".to_owned() } else { path };
        Ok(Self { is_secure, host, port: uri.port_u16().unwrap_or(4318), path })
    }
}

/// What the variables ask for.
#[derive(Debug)]
pub(super) struct Environment {
    pub(super) endpoint: Endpoint,
    pub(super) tls: Option<Arc<ClientConfig>>,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) resource: Vec<(String, String)>,
    pub(super) patience: Duration,
    pub(super) interval: Duration,
}

impl Environment {
    /// None if no collector is named, or metrics are switched off.
    pub(super) fn read(
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, OtlpError> {
        // An empty one counts as missing.
        let get = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let of_metrics = |name: &str| {
            let own = format!("OTEL_EXPORTER_OTLP_METRICS_{name}");
            let all = format!("OTEL_EXPORTER_OTLP_{name}");
            get(&own).map(|value| (own, value)).or_else(|| get(&all).map(|value| (all, value)))
        };
        let is_off = get("OTEL_SDK_DISABLED").is_some_and(|is| is.eq_ignore_ascii_case("true"))
            || get("OTEL_METRICS_EXPORTER").is_some_and(|exporter| exporter == "none");
        let Some((name, url)) = of_metrics("ENDPOINT").filter(|_| !is_off) else {
            return Ok(None);
        };
        let path = if name.contains("METRICS") { "" } else { PATH };
        let endpoint = Endpoint::read(&name, &url, path)?;
        if let Some((variable, value)) = of_metrics("PROTOCOL")
            && value != "http/json"
        {
            return Err(OtlpError::Value { variable, bound: "http/json", value });
        }
        let tls = match (endpoint.is_secure, of_metrics("CERTIFICATE")) {
            (false, _) => None,
            (true, None) => return Err(OtlpError::NoAuthority),
            (true, Some((_, file))) => Some(trusting(&file)?),
        };
        let headers = of_metrics("HEADERS").map(|(name, value)| headers(&name, &value));
        let given = get("OTEL_RESOURCE_ATTRIBUTES")
            .map(|value| pairs("OTEL_RESOURCE_ATTRIBUTES", &value))
            .transpose()?;
        let mut resource = vec![
            ("service.name".to_owned(), "hedgerow".to_owned()),
            ("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ];
        let named = get("OTEL_SERVICE_NAME").map(|name| ("service.name".to_owned(), name));
        for (key, value) in given.into_iter().flatten().chain(named) {
            resource.retain(|(known, _)| *known != key);
            resource.push((key, value));
        }
        let patience = span(of_metrics("TIMEOUT"), 10_000)?;
        let every = "OTEL_METRIC_EXPORT_INTERVAL";
        let interval = span(get(every).map(|value| (every.to_owned(), value)), 60_000)?;
        let headers = headers.transpose()?.unwrap_or_default();
        Ok(Some(Self { endpoint, tls, headers, resource, patience, interval }))
    }
}

/// Milliseconds.
fn span(given: Option<(String, String)>, default: u64) -> Result<Duration, OtlpError> {
    let Some((variable, value)) = given else { return Ok(Duration::from_millis(default)) };
    match value.trim().parse() {
        Ok(ms @ 1..=86_400_000) => Ok(Duration::from_millis(ms)),
        _ => Err(OtlpError::Value { variable, bound: "milliseconds from 1 to 86400000", value }),
    }
}

/// `key=value,key=value`, where values are percent-encoded.
fn pairs(variable: &str, text: &str) -> Result<Vec<(String, String)>, OtlpError> {
    let refused = || OtlpError::Value {
        variable: variable.to_owned(),
        bound: "key=value pairs with commas between them",
        value: text.to_owned(),
    };
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=').ok_or_else(refused)?;
        let value = decoded(value.trim()).ok_or_else(refused)?;
        Ok((key.trim().to_owned(), value))
    };
    text.split(',').filter(|part| !part.trim().is_empty()).map(pair).collect()
}

/// Pairs that are headers of a request.
fn headers(variable: &str, text: &str) -> Result<Vec<(HeaderName, HeaderValue)>, OtlpError> {
    let header = |(name, value): (String, String)| {
        let (name, mut value) = (name.parse().ok()?, HeaderValue::try_from(value).ok()?);
        value.set_sensitive(true);
        Some((name, value))
    };
    let pairs = pairs(variable, text).ok();
    let headers = pairs.and_then(|pairs| pairs.into_iter().map(header).collect());
    headers.ok_or_else(|| OtlpError::Headers(variable.to_owned()))
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |digit: Option<u8>| char::from(digit?).to_digit(16);
        let (high, low) = (digit(rest.next())?, digit(rest.next())?);
        bytes.push((16 * high + low) as u8);
    }
    String::from_utf8(bytes).ok()
}

/// TLS that trusts the authorities in a file.
fn trusting(file: &str) -> Result<Arc<ClientConfig>, OtlpError> {
    let mut roots = RootCertStore::empty();
    let certificates =
        CertificateDer::pem_file_iter(file).map_err(|error| unusable(file, error))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| unusable(file, error))?;
        roots.add(certificate).map_err(|error| unusable(file, error))?;
    }
    if roots.is_empty() {
        return Err(unusable(file, "it has no certificate"));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(file, error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<Environment>, OtlpError> {
        let find = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Environment::read(find)
    }

    const ALL: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
    const OWN: &str = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT";

    #[test]
    fn nothing_is_sent_unless_a_collector_is_named() {
        for variables in [
            &[][..],
            &[(ALL, "")],
            &[(ALL, "http://a"), ("OTEL_SDK_DISABLED", "TRUE")],
            &[(OWN, "http://a"), ("OTEL_METRICS_EXPORTER", "none")],
        ] {
            assert!(read(variables).unwrap().is_none(), "{variables:?}");
        }
    }

    #[test]
    fn the_variables_are_those_of_the_standard() {
        let url = |variables: &[_]| read(variables).unwrap().unwrap().endpoint.to_string();
        assert_eq!(url(&[(ALL, "http://localhost")]), "http://localhost:4318/v1/metrics");
        assert_eq!(url(&[(ALL, "http://a:1/base/")]), "http://a:1/base/v1/metrics");
        assert_eq!(url(&[(ALL, "http://a:1"), (OWN, "http://b:2/own")]), "http://b:2/own");
        assert_eq!(url(&[(OWN, "http://b:2")]), "http://b:2/");
        assert_eq!(url(&[(OWN, "http://[::1]:2")]), "http://[::1]:2/");
        let read = read(&[
            (ALL, "http://a"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=s%20e%3D, x=1"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "1500"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "5000"),
            ("OTEL_SERVICE_NAME", "meters"),
            ("OTEL_RESOURCE_ATTRIBUTES", "site=north,service.name=other"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ]);
        let read = read.unwrap().unwrap();
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(read.headers.len(), 2);
        for (header, expected) in read.headers.iter().zip([("api-key", "s e="), ("x", "1")]) {
            assert_eq!((header.0.as_str(), header.1.to_str().unwrap()), expected);
        }
        assert_eq!((read.patience.as_millis(), read.interval.as_millis()), (1_500, 5_000));
        assert!(read.resource.contains(&pair("service.name", "meters")), "{:?}", read.resource);
        assert!(read.resource.contains(&pair("site", "north")) && read.resource.len() == 3);
    }

    #[test]
    fn nonsense_is_refused_with_the_variable_and_the_value() {
        for (name, value, bound) in [
            (ALL, "localhost:4318", "a URL"),
            (ALL, "ftp://a", "a URL"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/json"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "0", "milliseconds"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "soon", "milliseconds"),
            ("OTEL_RESOURCE_ATTRIBUTES", "key", "key=value"),
            ("OTEL_RESOURCE_ATTRIBUTES", "a=%ff", "key=value"),
        ] {
            let refused = read(&[(name, value), (OWN, "http://a")]);
            let refused = if name == ALL { read(&[(name, value)]) } else { refused };
            let refused = refused.unwrap_err().to_string();
            for part in [name, value, bound] {
                assert!(refused.contains(part), "{part} is not in {refused}");
            }
        }
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_HEADERS", "secret"),
            ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "a=secret%4"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "no name=secret"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=secret%0a"),
        ] {
            let refused = read(&[(name, value), (OWN, "http://a")]).unwrap_err().to_string();
            assert!(refused.contains(name) && !refused.contains("secret"), "{refused}");
        }
        let secret = [(ALL, "http://a"), ("OTEL_EXPORTER_OTLP_HEADERS", "a=secret")];
        assert!(!format!("{:?}", read(&secret).unwrap()).contains("secret"));
        let refused = read(&[(ALL, "https://a")]).unwrap_err().to_string();
        assert!(refused.contains("OTEL_EXPORTER_OTLP_CERTIFICATE"), "{refused}");
        let secure = [(ALL, "https://a"), ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/no/such/file")];
        assert!(read(&secure).unwrap_err().to_string().contains("/no/such/file"));
    }
}
