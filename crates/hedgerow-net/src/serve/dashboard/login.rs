//! [`Logins`]: operators exchange the token for a session, whose secret is in a cookie that scripts
//! can't read. What changes anything also needs the session's second secret in a header, which
//! pages of other sites can't send.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, COOKIE, HeaderName, ORIGIN};
use hedgerow_data::text::counted;
use tokio::time::Instant;

use crate::admin::token::{Token, TokenError, is_same, secret};
use crate::serve::listener::neighbourhood;

/// How long a session lasts.
const SESSION: Duration = Duration::from_secs(12 * 3600);

/// Most sessions at once; the oldest makes room.
const MAX_SESSIONS: usize = 64;

/// Wrong tokens from one address within this time, after which no more are compared.
const MAX_FAILURES: u32 = 5;
const FAILURES_SPAN: Duration = Duration::from_secs(60);

/// Addresses of which failures are counted.
const MAX_ADDRESSES: usize = 1024;

/// The cookie of a session.
const COOKIE_NAME: &str = "hedgerow-session";

/// The header with a session's second secret.
const CSRF: HeaderName = HeaderName::from_static("x-hedgerow-csrf");

/// What browsers say of where a request comes from.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Who may see the dashboard, and who may change something there.
pub struct Logins {
    store: PathBuf,
    /// Whether reading needs a login, too.
    guards_reading: bool,
    inner: Mutex<Inner>,
}

struct Inner {
    token: Token,
    sessions: HashMap<String, Session>,
    failures: HashMap<IpAddr, (Instant, u32)>,
}

struct Session {
    csrf: String,
    ends: Instant,
}

/// Why nobody was logged in.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LoginRefused {
    #[error("this is not the token: `hedgerow admin token` on the server's machine shows it")]
    WrongToken,
    #[error("too many wrong tokens came from this address: try again in {}", counted(*.0, "second"))]
    TooMany(u64),
    #[error("the system has no randomness for a session")]
    NoRandomness,
}

/// A new session.
#[derive(Debug)]
pub(super) struct LoggedIn {
    /// The value of `set-cookie`.
    pub(super) cookie: String,
    pub(super) csrf: String,
}

impl Logins {
    /// With the token of a store, which is made if there is none.
    pub fn open(store: &Path, guards_reading: bool) -> Result<Self, TokenError> {
        let token = Token::open(store)?;
        let (sessions, failures) = (HashMap::new(), HashMap::new());
        let inner = Mutex::new(Inner { token, sessions, failures });
        Ok(Self { store: store.to_owned(), guards_reading, inner })
    }

    /// Reads the token again. If it is another, all sessions end. Returns whether it is.
    pub fn reload(&self) -> Result<bool, TokenError> {
        let token = Token::read(&self.store)?;
        let mut inner = self.lock();
        let is_other = token != inner.token;
        if is_other {
            inner.sessions.clear();
            inner.token = token;
        }
        Ok(is_other)
    }

    pub(super) fn guards_reading(&self) -> bool {
        self.guards_reading
    }

    /// Begins a session.
    pub(super) fn log_in(
        &self,
        token: &str,
        from: IpAddr,
        headers: &HeaderMap,
    ) -> Result<LoggedIn, LoginRefused> {
        let now = Instant::now();
        let mut inner = self.lock();
        inner.check_failures(from, now)?;
        if !inner.token.is(token) {
            inner.failed(from, now);
            return Err(LoginRefused::WrongToken);
        }
        let (id, csrf) = secret().zip(secret()).ok_or(LoginRefused::NoRandomness)?;
        inner.sessions.retain(|_, session| now < session.ends);
        if inner.sessions.len() >= MAX_SESSIONS {
            let oldest = inner.sessions.iter().min_by_key(|(_, session)| session.ends);
            let oldest = oldest.map(|(id, _)| id.clone());
            oldest.into_iter().for_each(|id| drop(inner.sessions.remove(&id)));
        }
        // Behind a proxy that speaks TLS, the cookie never travels in plain text.
        let is_secure =
            headers.get(ORIGIN).is_some_and(|from| from.as_bytes().starts_with(b"https:"));
        let secure = if is_secure { "; Secure" } else { "" };
        let seconds = SESSION.as_secs();
        let cookie = format!(
            "{COOKIE_NAME}={id}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"
        );
        inner.sessions.insert(id, Session { csrf: csrf.clone(), ends: now + SESSION });
        Ok(LoggedIn { cookie, csrf })
    }

    /// Ends the session of a request. Returns the cookie that takes its place.
    pub(super) fn log_out(&self, headers: &HeaderMap) -> String {
        let mut inner = self.lock();
        cookies(headers).for_each(|id| drop(inner.sessions.remove(id)));
        format!("{COOKIE_NAME}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict")
    }

    /// The second secret of the session of a request, if it has one.
    pub(super) fn session(&self, headers: &HeaderMap) -> Option<String> {
        let (inner, now) = (self.lock(), Instant::now());
        let session = cookies(headers).find_map(|id| inner.sessions.get(id))?;
        (now < session.ends).then(|| session.csrf.clone())
    }

    /// Whether a request may read. Programs may send the token itself: `Authorization: Bearer …`.
    pub(super) fn may_read(&self, headers: &HeaderMap) -> bool {
        !self.guards_reading || self.session(headers).is_some() || self.has_token(headers)
    }

    /// Whether a request may change something: it has a session and comes from the page.
    pub(super) fn may_act(&self, headers: &HeaderMap) -> bool {
        let is_own = headers.get(FETCH_SITE).is_none_or(|site| site == "same-origin");
        let told = headers.get(CSRF).and_then(|csrf| csrf.to_str().ok()).unwrap_or_default();
        is_own && self.session(headers).is_some_and(|csrf| is_same(&csrf, told))
    }

    fn has_token(&self, headers: &HeaderMap) -> bool {
        let told = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        told.and_then(|told| told.strip_prefix("Bearer "))
            .is_some_and(|told| self.lock().token.is(told))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn check_failures(&self, from: IpAddr, now: Instant) -> Result<(), LoginRefused> {
        match self.failures.get(&neighbourhood(from)) {
            Some((since, count)) if *count >= MAX_FAILURES && now < *since + FAILURES_SPAN => {
                let left = (*since + FAILURES_SPAN).saturating_duration_since(now);
                Err(LoginRefused::TooMany(left.as_secs() + 1))
            }
            _ => Ok(()),
        }
    }

    fn failed(&mut self, from: IpAddr, now: Instant) {
        self.failures.retain(|_, (since, _)| now < *since + FAILURES_SPAN);
        if self.failures.len() >= MAX_ADDRESSES {
            // So many addresses guess at once that one more makes no difference.
            return;
        }
        let (_, count) = self.failures.entry(neighbourhood(from)).or_insert((now, 0));
        *count += 1;
    }
}

/// The secrets of sessions that a request has.
fn cookies(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().strip_prefix(COOKIE_NAME)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn logins(guards_reading: bool) -> (Logins, String, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("run.db");
        let logins = Logins::open(&store, guards_reading).unwrap();
        let token = Token::read(&store).unwrap().reveal().to_owned();
        (logins, token, folder)
    }

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        let pair = |(name, value): &(HeaderName, &str)| {
            (name.clone(), HeaderValue::from_str(value).unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    fn of(session: &LoggedIn) -> String {
        session.cookie.split(';').next().unwrap().to_owned()
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_reads_and_acts_until_it_ends() {
        let (logins, token, _folder) = logins(true);
        let none = HeaderMap::new();
        assert!(!logins.may_read(&none) && !logins.may_act(&none));
        let session = logins.log_in(&token, HERE, &none).unwrap();
        assert!(session.cookie.contains("HttpOnly; SameSite=Strict"), "{}", session.cookie);
        assert!(!session.cookie.contains("Secure") && !session.cookie.contains(&token));
        let cookie = of(&session);
        let with = |more: &[(HeaderName, &str)]| {
            headers(&[&[(COOKIE, &*format!("other=1; {cookie}"))], more].concat())
        };
        assert!(logins.may_read(&with(&[])) && !logins.may_act(&with(&[])));
        assert!(logins.may_act(&with(&[(CSRF, &session.csrf)])));
        assert!(!logins.may_act(&with(&[(CSRF, &cookie)])));
        assert!(!logins.may_act(&with(&[(CSRF, &session.csrf), (FETCH_SITE, "cross-site")])));
        assert!(!logins.may_act(&headers(&[(CSRF, &session.csrf)])));
        // Another session's second secret won't do.
        let other = logins.log_in(&token, HERE, &headers(&[(ORIGIN, "https://a")])).unwrap();
        assert!(other.cookie.ends_with("; Secure"), "{}", other.cookie);
        assert!(!logins.may_act(&with(&[(CSRF, &other.csrf)])));
        logins.log_out(&headers(&[(COOKIE, &of(&other))]));
        assert!(
            !logins.may_read(&headers(&[(COOKIE, &of(&other))])) && logins.may_read(&with(&[]))
        );
        tokio::time::advance(SESSION).await;
        assert!(!logins.may_read(&with(&[])));
        // Programs send the token itself; with it they can only read.
        let bearer = headers(&[(AUTHORIZATION, &format!("Bearer {token}")), (CSRF, &session.csrf)]);
        assert!(logins.may_read(&bearer) && !logins.may_act(&bearer));
        assert!(!logins.may_read(&headers(&[(AUTHORIZATION, "Bearer x")])));
    }

    #[tokio::test(start_paused = true)]
    async fn guessing_is_slow_and_hurts_nobody_else() {
        let (logins, token, _folder) = logins(false);
        let none = HeaderMap::new();
        let try_from = |token: &str, from: &str| {
            logins.log_in(token, from.parse().unwrap(), &none).map(|_| ())
        };
        for _ in 0..MAX_FAILURES {
            assert_eq!(try_from("guess", "10.0.0.1"), Err(LoginRefused::WrongToken));
        }
        assert!(matches!(try_from("guess", "10.0.0.1"), Err(LoginRefused::TooMany(_))));
        assert!(matches!(try_from(&token, "10.0.0.1"), Err(LoginRefused::TooMany(_))));
        assert_eq!(try_from(&token, "10.0.0.2"), Ok(()));
        tokio::time::advance(FAILURES_SPAN).await;
        assert_eq!(try_from(&token, "10.0.0.1"), Ok(()));
        // A network of IPv6 is one address.
        for last in 0..MAX_FAILURES {
            assert_eq!(
                try_from("guess", &format!("2001:db8::{last}")),
                Err(LoginRefused::WrongToken)
            );
        }
        assert!(matches!(try_from(&token, "2001:db8::99"), Err(LoginRefused::TooMany(_))));
        for host in 0..2 * MAX_ADDRESSES as u32 {
            _ = logins.log_in("guess", IpAddr::V4((0x0b00_0000 + host).into()), &none);
        }
        assert!(logins.lock().failures.len() <= MAX_ADDRESSES);
        for _ in 0..2 * MAX_SESSIONS {
            logins.log_in(&token, HERE, &none).unwrap();
        }
        assert_eq!(logins.lock().sessions.len(), MAX_SESSIONS);
    }

    #[test]
    fn a_new_token_ends_all_sessions() {
        let (logins, token, folder) = logins(true);
        let session = logins.log_in(&token, HERE, &HeaderMap::new()).unwrap();
        let with = headers(&[(COOKIE, &of(&session))]);
        assert!(!logins.reload().unwrap() && logins.may_read(&with));
        let new = Token::renew(&folder.path().join("run.db")).unwrap();
        assert!(logins.reload().unwrap() && !logins.may_read(&with));
        let refused = logins.log_in(&token, HERE, &HeaderMap::new()).map(|_| ());
        assert_eq!(refused, Err(LoginRefused::WrongToken));
        assert!(logins.log_in(new.reveal(), HERE, &HeaderMap::new()).is_ok());
        // What can't be read changes nothing.
        std::fs::write(Token::path(&folder.path().join("run.db")), "x").unwrap();
        assert!(logins.reload().is_err());
        assert!(logins.log_in(new.reveal(), HERE, &HeaderMap::new()).is_ok());
    }
}
