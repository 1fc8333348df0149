//! [`Socket`]: the Unix socket beside the store, for programs of the server's own user.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::SocketAddr as SocketName;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use tokio::net::{UnixListener, UnixStream};

use super::beside;
use crate::file::read_whole;
use crate::http::Accept;
use crate::operations::{Actor, Via};
use crate::serve::throttle::Throttle;

/// Most bytes of the system's list of users that are read.
const MAX_USERS_BYTES: u64 = 1 << 20;

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The system's bound on its path.
    #[error(
        "{}: the system allows no socket with so long a path ({length} bytes): start the server in \
         the store's folder with a relative store.path, and run `hedgerow admin` there, too",
        path.display()
    )]
    Long {
        /// The socket.
        path: PathBuf,
        /// Its length.
        length: usize,
    },
    /// Something that is no socket has its name.
    #[error("{}: something else has this name, and a socket is to be there: move it away", path.display())]
    InTheWay {
        /// The socket.
        path: PathBuf,
    },
    /// Another process listens on it.
    #[error("{}: another server listens there", path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// The system's error.
    #[error("can't listen on {}: {source}", path.display())]
    Unusable {
        /// The socket.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
}

/// A process on the other end of the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalPeer {
    /// Its user.
    pub user: u32,
    /// Its number, where the system tells it.
    pub process: Option<i32>,
}

impl LocalPeer {
    /// Who that is.
    pub fn actor(self) -> Actor {
        Actor { name: user_name(self.user), via: Via::Socket }
    }
}

/// A socket that listens. The file is removed when it is dropped.
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and number of the file, so that another server's is not removed.
    file: (u64, u64),
    throttle: Throttle,
}

impl Socket {
    /// Where the socket of a store is.
    pub fn path(store: &Path) -> PathBuf {
        beside(store, "sock")
    }

    /// Listens beside a store that this process has locked: a socket that nobody listens on is
    /// one of a server that was killed, and is replaced.
    pub fn bind(store: &Path) -> Result<Self, SocketError> {
        let path = Self::path(store);
        check_length(&path)?;
        let failed = |source| SocketError::Unusable { path: path.clone(), source };
        match std::fs::symlink_metadata(&path) {
            Ok(found) if !found.file_type().is_socket() => {
                return Err(SocketError::InTheWay { path });
            }
            Ok(_) if std::os::unix::net::UnixStream::connect(&path).is_ok() => {
                return Err(SocketError::InUse { path });
            }
            Ok(_) => std::fs::remove_file(&path).map_err(failed)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        let listener = UnixListener::bind(&path).map_err(failed)?;
        // Who connects before this is checked as everybody is, by their user.
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).map_err(failed)?;
        let file = identity(&path).map_err(failed)?;
        Ok(Self { listener, path, file, throttle: Throttle::default() })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|file| file == self.file) {
            _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Accept for Socket {
    type Stream = UnixStream;
    type Peer = LocalPeer;

    async fn accept(&self) -> io::Result<Option<(UnixStream, LocalPeer)>> {
        let (stream, _) = self.listener.accept().await?;
        let Ok(peer) = stream.peer_cred() else { return Ok(None) };
        let peer = LocalPeer { user: peer.uid(), process: peer.pid() };
        if may_command(peer.user, geteuid().as_raw()) {
            return Ok(Some((stream, peer)));
        }
        if self.throttle.allows() {
            tracing::warn!(user = peer.user, "another user came to the socket: turned away");
        }
        Ok(None)
    }
}

/// The name of a user; the number, if only a directory service knows the name.
pub(super) fn user_name(user: u32) -> String {
    let known = read_whole(Path::new("/etc/passwd"), MAX_USERS_BYTES).unwrap_or_default();
    let known = String::from_utf8_lossy(&known);
    let mut names = known.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        (number.parse() == Ok(user)).then(|| name.to_owned())
    });
    names.next().unwrap_or_else(|| format!("user {user}"))
}

/// The server's own user, and the one that may do everything.
fn may_command(user: u32, own: u32) -> bool {
    user == own || user == 0
}

/// Whether the system allows a socket of this name.
pub(super) fn check_length(path: &Path) -> Result<(), SocketError> {
    match SocketName::from_pathname(path) {
        Ok(_) => Ok(()),
        Err(_) => {
            let length = path.as_os_str().len();
            Err(SocketError::Long { path: path.to_owned(), length })
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("run.db");
        let path = Socket::path(&store);
        let socket = Socket::bind(&store).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(matches!(Socket::bind(&store), Err(SocketError::InUse { .. })));
        // As a killed server leaves it.
        let killed = folder.path().join("killed");
        std::fs::rename(&path, &killed).unwrap();
        drop(socket);
        std::fs::rename(&killed, &path).unwrap();
        let again = Socket::bind(&store).unwrap();
        let there = UnixStream::connect(&path).await.unwrap();
        let (_, peer) = again.accept().await.unwrap().unwrap();
        assert_eq!(peer.user, geteuid().as_raw());
        drop((there, again));
        assert!(!path.exists(), "removed at the end");
        std::fs::write(&path, "precious").unwrap();
        assert!(matches!(Socket::bind(&store), Err(SocketError::InTheWay { .. })));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
        let message = Socket::bind(&folder.path().join("a".repeat(200))).err().unwrap().to_string();
        assert!(message.contains("so long a path") && message.contains("relative"), "{message}");
    }

    #[test]
    fn users_have_names() {
        assert_eq!(user_name(0), "root");
        assert_eq!(user_name(4_000_000_001), "user 4000000001");
    }

    #[test]
    fn only_the_owner_and_root_may_command() {
        assert!(may_command(7, 7) && may_command(0, 7));
        assert!(!may_command(8, 7) && !may_command(7, 0));
    }
}
