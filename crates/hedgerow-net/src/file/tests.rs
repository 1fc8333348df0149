use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

const STATE: Format = Format::new("node", 2, 1000);

fn state(folder: &TempDir) -> PathBuf {
    folder.path().join("state")
}

#[test]
fn what_was_written_is_read_and_nothing_else_is_left() {
    let folder = TempDir::new().unwrap();
    let path = state(&folder);
    assert_eq!(STATE.read(&path).unwrap(), None);
    for body in [&b"first"[..], b"", &[7; 1000]] {
        STATE.write(&path, body).unwrap();
        assert_eq!(STATE.read(&path).unwrap().as_deref(), Some(body));
    }
    Format::new("node", 1, 1000).write(&folder.path().join("old"), b"older").unwrap();
    let old = STATE.read(&folder.path().join("old")).unwrap();
    assert_eq!(old.as_deref(), Some(&b"older"[..]));
    let names = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.collect();
    names.sort();
    assert_eq!(names, ["old", "state"]);
}

#[test]
fn what_can_t_be_read_is_named_and_never_written_over() {
    let folder = TempDir::new().unwrap();
    let path = state(&folder);
    let written = |format: Format, body: &[u8]| [&format.header(body)[..], body].concat();
    let newer = written(Format::new("node", 3, 1000), b"from the future");
    let other = written(Format::new("certificates", 1, 1000), b"something else");
    let large = written(Format::new("node", 2, 2000), &[1; 1001]);
    let mut longer = written(STATE, b"body");
    longer.extend(b"xy");
    let mut damaged = written(STATE, b"body");
    *damaged.last_mut().unwrap() ^= 1;
    let short = written(STATE, b"body")[..46].to_vec();
    for (bytes, expected) in [
        (newer, "written by a newer hedgerow: format 3, this one knows up to 2"),
        (other, "a \"certificates\" file, and \"node\" is needed"),
        (large, "1045 bytes, and 1044 are the most that it may have"),
        (longer, "damaged: 2 bytes more than it should have"),
        (damaged, "damaged: the checksum of its body is acaf3b24, and dba80bb2 was written"),
        (short, "breaks off: 48 bytes expected, but 46 are there"),
        (vec![], "breaks off: 44 bytes expected, but 0 are there"),
        (b"time,load\n".to_vec(), "not a node file of hedgerow"),
    ] {
        std::fs::write(&path, &bytes).unwrap();
        let error = STATE.read(&path).unwrap_err().to_string();
        assert_eq!(error, format!("{}: {expected}", path.display()));
        let refused = STATE.write(&path, b"new").unwrap_err().to_string();
        assert_eq!(refused, format!("{error}; it is left as it is: move it away first"));
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
    assert!(matches!(STATE.write(&path, &[0; 1001]), Err(FileError::TooLarge { found: 1001, .. })));
    assert!(matches!(STATE.read(folder.path()), Err(FileError::Unreadable { .. })));
    assert!(STATE.write(folder.path(), b"x").is_err());
    assert!(matches!(
        STATE.write(&folder.path().join("no/such"), b"x"),
        Err(FileError::Unwritable { .. })
    ));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn every_flipped_bit_and_every_missing_byte_is_seen(body in prop::collection::vec(any::<u8>(), 0..120)) {
        let whole = [&STATE.header(&body)[..], &body].concat();
        let path = Path::new("state");
        prop_assert!(STATE.check(path, &whole).is_ok());
        for bit in 0..8 * whole.len() {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(STATE.check(path, &flipped).is_err(), "bit {}", bit);
        }
        for end in 0..whole.len() {
            prop_assert!(STATE.check(path, &whole[..end]).is_err(), "{} bytes", end);
        }
    }
}

#[test]
fn a_new_file_appears_once_it_is_whole() {
    let folder = TempDir::new().unwrap();
    let path = state(&folder);
    let beside = folder.path().join("state.new");
    std::fs::write(&beside, "left behind by one that was killed, and longer").unwrap();
    let failed = write_whole(&path, Access::Shared, |file| {
        file.write_all(b"half")?;
        assert!(!path.exists());
        let second = write_whole(&path, Access::Shared, |_| Ok(()));
        assert!(matches!(second, Err(FileError::Busy { .. })));
        Err(io::ErrorKind::StorageFull.into())
    });
    assert!(matches!(failed, Err(FileError::Unwritable { .. })));
    assert!(!path.exists() && !beside.exists(), "what isn't finished is gone");
    std::fs::write(&beside, "left behind again").unwrap();
    write_whole(&path, Access::Shared, |file| file.write_all(b"whole")).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"whole");
    assert!(!beside.exists());
}

#[cfg(unix)]
#[test]
fn links_are_not_followed_and_states_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempDir::new().unwrap();
    let (path, precious) = (state(&folder), folder.path().join("precious"));
    std::fs::write(&precious, "kept").unwrap();
    std::os::unix::fs::symlink(&precious, folder.path().join("state.new")).unwrap();
    let error = STATE.write(&path, b"x").unwrap_err().to_string();
    assert!(error.contains("in the way, and not a file"), "{error}");
    assert_eq!(std::fs::read(&precious).unwrap(), b"kept");
    std::fs::remove_file(folder.path().join("state.new")).unwrap();
    STATE.write(&path, b"x").unwrap();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

#[cfg(unix)]
#[test]
fn a_lock_is_that_of_the_file_whatever_its_name() {
    use std::os::unix::fs::symlink;
    let folder = TempDir::new().unwrap();
    let path = state(&folder);
    let (link, onward) = (folder.path().join("link"), folder.path().join("onward"));
    symlink("state", &link).unwrap();
    symlink("link", &onward).unwrap();
    for exists in [false, true] {
        if exists {
            std::fs::write(&path, "x").unwrap();
            assert_eq!(real_path(&onward), path.canonicalize().unwrap());
        }
        let lock = Lock::take(&path).unwrap();
        assert!(Lock::take(&link).is_err());
        assert_eq!(Lock::take(&onward).is_err(), exists, "a link to nothing is followed once");
        drop(lock);
    }
    assert_eq!(real_path(&path), path);
}

#[test]
fn a_lock_has_one_holder() {
    let folder = TempDir::new().unwrap();
    let path = state(&folder);
    let lock = Lock::take(&path).unwrap();
    let refused = Lock::take(&path).unwrap_err().to_string();
    assert_eq!(refused, format!("{}: in use by another process", path.display()));
    // As it is for a moment when the process starts another.
    let shared = lock.file.try_clone().unwrap();
    drop(lock);
    Lock::take(&path).unwrap();
    drop(shared);
}
