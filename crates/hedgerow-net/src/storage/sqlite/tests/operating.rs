//! Snapshots, going back, decisions, copies, and stores that were torn apart.

use super::*;
use crate::coordinator::records::Target;
use crate::file::with_suffix;
use crate::storage::{backup, restore};

fn small(path: &Path) -> Store {
    let mut server = open(path);
    server.keep_snapshots(SnapshotLimits { recent: 4, most_bytes: 1 << 30 }).unwrap();
    server
}

fn rounds(store: &Store) -> Vec<u64> {
    store.snapshots().iter().map(|snapshot| snapshot.round).collect()
}

/// What `commit` stored with a round.
fn saved(round: u64, length: usize) -> Saved {
    let scaling = (round > 1).then(|| blob(round / 2 * 2 + 2, 300));
    Saved { round: round + 1, server: blob(round, length), scaling, totals: blob(round + 1, 40) }
}

#[test]
fn snapshots_are_kept_thinned_and_read_back() {
    let folder = TempDir::new().unwrap();
    let path = store(&folder);
    let mut server = small(&path);
    server.begin(&run()).unwrap();
    (1..=99).for_each(|round| commit(&mut server, round, 5_000).unwrap());
    let expected = [32, 48, 64, 72, 80, 88, 92, 94, 96, 97, 98, 99, 100];
    assert_eq!(rounds(&server), expected);
    let bytes = server.snapshots()[0].bytes;
    assert_eq!((bytes, server.snapshots()[0].at_ms), (5_340, 1_700_000_000_031));
    for round in expected {
        assert_eq!(server.snapshot(round).unwrap(), Some(saved(round - 1, 5_000)), "{round}");
    }
    assert_eq!(server.snapshot(95).unwrap(), None);
    let count = |server: &Store, table: &str| {
        let sql = format!("SELECT count(*) FROM {table}");
        server.view.connection.query_row(&sql, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    // Each has a scaling of its own but for 97 and 98, and 99 and 100.
    assert_eq!((count(&server, "snapshots"), count(&server, "scalings")), (13, 11));
    server.close().unwrap();
    let mut server = small(&path);
    assert_eq!(rounds(&server), expected);
    assert_at(&server, 99, 5_000);
    // Fewer bytes: the oldest go, and the latest stays.
    server.keep_snapshots(SnapshotLimits { recent: 4, most_bytes: 11_000 }).unwrap();
    assert_eq!(rounds(&server), [99, 100]);
    server.keep_snapshots(SnapshotLimits { recent: 4, most_bytes: 0 }).unwrap();
    assert_eq!((count(&server, "snapshots"), count(&server, "scalings")), (1, 1));
    assert_at(&server, 99, 5_000);
}

#[test]
fn a_run_goes_back_and_on_again() {
    let folder = TempDir::new().unwrap();
    let path = store(&folder);
    let mut server = small(&path);
    server.begin(&run()).unwrap();
    (1..=99).for_each(|round| commit(&mut server, round, 5_000).unwrap());
    let error =
        server.roll_back(Target::Round(95), "alice", 7, &mut |_| Ok(())).unwrap_err().to_string();
    assert!(
        error
            .starts_with("no snapshot of round 95; there are 13 from round 32 to 100; the nearest")
            && error.contains(" 94, 96, "),
        "{error}"
    );
    let error =
        server.roll_back(Target::Time(1_000), "alice", 7, &mut |_| Ok(())).unwrap_err().to_string();
    assert!(error.starts_with("no snapshot that was stored at 1000 ms of Unix time"), "{error}");
    assert_at(&server, 99, 5_000);
    let refused = &mut |_: &Saved| Err("of another plan".to_owned());
    let error = server.roll_back(Target::Round(96), "alice", 7, refused).unwrap_err().to_string();
    assert!(error.ends_with("not usable: of another plan"), "{error}");
    assert_at(&server, 99, 5_000);
    // Round 87 closed then, so that 88 was open.
    let back =
        server.roll_back(Target::Time(1_700_000_000_090), "alice", 7, &mut |_| Ok(())).unwrap();
    assert_eq!(back.saved, saved(87, 5_000));
    assert_eq!(back.history.iter().map(|record| record.round).max(), Some(87));
    assert_eq!(server.history(1_000).unwrap().len(), 87);
    assert_at(&server, 87, 5_000);
    assert_eq!(rounds(&server), [32, 48, 64, 72, 80, 88]);
    assert_ne!(back.epoch, 0);
    assert_eq!(server.decisions().unwrap().epoch, back.epoch);
    // The same rounds again, with other states.
    (88..=99).for_each(|round| commit(&mut server, round, 6_000).unwrap());
    assert_at(&server, 99, 6_000);
    assert_eq!(rounds(&server), [32, 48, 64, 72, 80, 88, 92, 94, 96, 97, 98, 99, 100]);
    let again = server.roll_back(Target::Round(88), "bob", 8, &mut |_| Ok(())).unwrap();
    assert_ne!(again.epoch, back.epoch);
    server.close().unwrap();
    let server = open(&path);
    assert_eq!(
        (server.condition(), server.decisions().unwrap().epoch),
        (Condition::AsLeft, again.epoch)
    );
    assert_at(&server, 87, 5_000);
    let (entries, latest) = Storage::audit(&server, None, 10).unwrap();
    let told: Vec<_> = entries
        .iter()
        .map(|entry| (entry.actor.as_str(), entry.action.as_str(), entry.subject.as_str()))
        .collect();
    assert_eq!(told, [("alice", "rollback", "round 88"), ("bob", "rollback", "round 88")]);
    assert_eq!((entries[0].details.as_str(), latest), ("from round 100", 2));
}

#[test]
fn decisions_and_their_entries_are_stored_together() {
    let folder = TempDir::new().unwrap();
    let path = store(&folder);
    let mut server = open(&path);
    let setting = |value: Option<&str>| Change::Setting {
        key: "rounds.quorum".into(),
        value: value.map(str::to_owned),
    };
    let unknown = Change::Forget { number: 3, node: "owl".into() };
    for (change, is_done) in [
        (Change::Standing(banned("ant")), true),
        (Change::Standing(banned("bee")), true),
        (Change::NoStanding { node: "ant".into() }, true),
        (setting(Some("80%")), true),
        (Change::Paused(true), true),
        (unknown, false),
        (Change::Nothing, true),
    ] {
        let done = server.decide(&change, &entry("change"));
        assert_eq!(done.is_ok(), is_done, "{change:?}: {done:?}");
    }
    server.close().unwrap();
    let mut server = open(&path);
    let decisions = server.decisions().unwrap();
    assert_eq!(decisions.standings, [banned("bee")]);
    assert_eq!(decisions.settings, [("rounds.quorum".to_owned(), "80%".to_owned())]);
    assert!(decisions.is_paused && decisions.epoch == 0);
    let (entries, latest) = Storage::audit(&server, Some(2), 3).unwrap();
    assert_eq!(entries.iter().map(|entry| entry.number).collect::<Vec<_>>(), [2, 3, 4]);
    assert_eq!(latest, 6, "what failed is not in the log");
    server.decide(&setting(None), &entry("change")).unwrap();
    server.decide(&Change::Paused(false), &entry("change")).unwrap();
    let decisions = server.decisions().unwrap();
    assert!(decisions.settings.is_empty() && !decisions.is_paused);
    assert_eq!(Storage::audit(&server, Some(7), 9).unwrap().0.len(), 2);
}

#[test]
fn numbers_of_removed_nodes_are_not_given_again() {
    let folder = TempDir::new().unwrap();
    let path = store(&folder);
    let mut server = open(&path);
    for (number, name) in ["ant", "bee", "cat"].into_iter().enumerate() {
        assert_eq!(server.node_number(name, 10).unwrap(), number as NodeId);
    }
    for (number, name) in [(1, "bee"), (2, "cat")] {
        let forget = Change::Forget { number, node: name.into() };
        server.decide(&forget, &entry("forget")).unwrap();
    }
    let names: Vec<_> = server.nodes().unwrap().into_iter().map(|node| node.name).collect();
    assert_eq!(names, ["ant"]);
    assert_eq!(server.node_number("bee", 10).unwrap(), 3);
    server.close().unwrap();
    let mut server = open(&path);
    assert_eq!(server.node_number("dog", 10).unwrap(), 4);
    assert!(server.node_number("eel", 5).is_err(), "five numbers were given");
}

/// The files of a store as a killed server leaves them.
fn killed(path: &Path, to: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        std::fs::copy(with_suffix(path, suffix), with_suffix(to, suffix)).unwrap();
    }
    std::fs::copy(with_suffix(path, ".mark"), with_suffix(to, ".mark")).unwrap();
}

#[test]
fn the_log_of_another_store_is_refused() {
    let folder = TempDir::new().unwrap();
    let (path, copy) = (store(&folder), folder.path().join("copy.db"));
    let here = folder.path().join("here.db");
    let mut server = open(&path);
    (1..=10).for_each(|round| commit(&mut server, round, 5_000).unwrap());
    backup(&path, &copy, &[]).unwrap();
    (11..=20).for_each(|round| commit(&mut server, round, 5_000).unwrap());
    killed(&path, &here);
    // The killed server's own log is fine.
    let kept = open(&here);
    assert_eq!(kept.condition(), Condition::AsLeft);
    assert_at(&kept, 20, 5_000);
    drop(kept);
    // A copy was put in its place and the log stayed.
    killed(&path, &here);
    std::fs::copy(&copy, &here).unwrap();
    let before = std::fs::read(&here).unwrap();
    let error = Store::open(&here, Durability::Kill).unwrap_err();
    assert!(matches!(error, StoreError::OtherLog { .. }), "{error}");
    assert!(error.to_string().contains("here.db-wal belongs to another store"), "{error}");
    assert_eq!(std::fs::read(&here).unwrap(), before, "nothing is changed");
    // As the message says.
    for suffix in ["-wal", "-shm"] {
        std::fs::remove_file(with_suffix(&here, suffix)).unwrap();
    }
    let kept = open(&here);
    assert_eq!(kept.condition(), Condition::Replaced);
    assert_ne!(kept.decisions().unwrap().epoch, 0, "nodes know later rounds");
    assert_at(&kept, 10, 5_000);
    drop(kept);
    assert_eq!(open(&here).condition(), Condition::AsLeft);
    // The same with a log of an earlier opening of the same store.
    drop(server);
    let mut server = open(&path);
    commit(&mut server, 21, 5_000).unwrap();
    killed(&path, &here);
    drop(server);
    let mut server = open(&path);
    commit(&mut server, 22, 5_000).unwrap();
    server.close().unwrap();
    std::fs::copy(&path, &here).unwrap();
    let error = Store::open(&here, Durability::Kill).unwrap_err();
    assert!(matches!(error, StoreError::OtherLog { .. }), "{error}");
}

#[test]
fn a_copy_without_its_log_is_noticed() {
    let folder = TempDir::new().unwrap();
    let (path, copy) = (store(&folder), folder.path().join("copy.db"));
    let mut server = open(&path);
    (1..=10).for_each(|round| commit(&mut server, round, 5_000).unwrap());
    let by_hand = writer(&path).unwrap();
    checkpointer::checkpoint(&by_hand, "PASSIVE").unwrap();
    (11..=20).for_each(|round| commit(&mut server, round, 5_000).unwrap());
    std::fs::copy(&path, &copy).unwrap();
    let kept = open(&copy);
    assert_eq!(kept.condition(), Condition::WithoutLog);
    assert!(kept.condition().warning().unwrap().contains("without its log"));
    assert_at(&kept, 10, 5_000);
    assert_ne!(kept.decisions().unwrap().epoch, 0);
    let (entries, _) = Storage::audit(&kept, None, 1).unwrap();
    assert_eq!((entries[0].action.as_str(), entries[0].actor.as_str()), ("found", "server"));
    drop(kept);
    assert_eq!(open(&copy).condition(), Condition::AsLeft, "said once");
}

#[test]
fn the_audit_log_goes_on_over_a_restore() {
    let folder = TempDir::new().unwrap();
    let (path, copy) = (store(&folder), folder.path().join("copy.db"));
    let mut server = open(&path);
    server.begin(&run()).unwrap();
    server.decide(&Change::Nothing, &entry("first")).unwrap();
    backup(&path, &copy, &[]).unwrap();
    server.decide(&Change::Standing(banned("bee")), &entry("ban")).unwrap();
    server.decide(&Change::Nothing, &entry("last")).unwrap();
    server.close().unwrap();
    let log = |path: &Path| {
        let entries = View::open(path).unwrap().audit(1, 100).unwrap();
        crate::audit::verify(&entries).unwrap();
        entries.into_iter().map(|entry| entry.action).collect::<Vec<_>>()
    };
    let restored = restore(&copy, &path, "carol", &[]).unwrap();
    assert_eq!(restored.taken_over, Some(2));
    assert_eq!(log(&path), ["first", "ban", "last", "restore"]);
    assert_eq!(View::open(&path).unwrap().decisions().unwrap().standings, []);
    // The log of the copy is longer: nothing is to be taken over.
    let newer = folder.path().join("newer.db");
    backup(&path, &newer, &[]).unwrap();
    restore(&copy, &copy.with_extension("other"), "carol", &[]).unwrap();
    assert_eq!(restore(&newer, &path, "carol", &[]).unwrap().taken_over, Some(0));
    assert_eq!(log(&path), ["first", "ban", "last", "restore", "restore"]);
    // Two logs that have parted: the other one stays where it was.
    let other = copy.with_extension("other");
    let parted = restore(&newer, &other, "carol", &[]).unwrap();
    assert_eq!(parted.taken_over, None);
    assert_eq!(log(&other), ["first", "ban", "last", "restore", "restore"]);
    assert_eq!(log(&parted.replaced.unwrap()), ["first", "restore"]);
    // What can't be read is kept, too.
    std::fs::write(&path, "nonsense").unwrap();
    let broken = restore(&copy, &path, "carol", &[]).unwrap();
    assert_eq!((broken.taken_over, log(&path)), (None, vec!["first".into(), "restore".into()]));
    assert_eq!(std::fs::read(broken.replaced.unwrap()).unwrap(), b"nonsense");
}

#[test]
fn copies_of_a_store_in_use_are_of_one_moment_and_are_put_back() {
    let folder = TempDir::new().unwrap();
    let (path, copy) = (store(&folder), folder.path().join("copy.db"));
    let mut server = open(&path);
    (1..=10).for_each(|round| commit(&mut server, round, 5_000).unwrap());
    server.node_number("ant", 10).unwrap();
    server.decide(&Change::Standing(banned("bee")), &entry("ban")).unwrap();
    let made = backup(&path, &copy, &[]).unwrap();
    assert_eq!((made.round, made.bytes), (Some(11), copy.metadata().unwrap().len()));
    commit(&mut server, 11, 5_000).unwrap();
    let view = View::open(&copy).unwrap();
    assert_at(&view, 10, 5_000);
    assert_eq!(shown(&view.nodes().unwrap()), shown(&server.nodes().unwrap()));
    assert_eq!(view.decisions().unwrap(), server.decisions().unwrap());
    assert_eq!(view.audit(1, 9).unwrap().len(), 2);
    drop(view);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(copy.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
    let error = backup(&path, &copy, &[]).unwrap_err().to_string();
    assert!(error.ends_with("copy.db: exists already; choose another name"), "{error}");
    assert!(backup(&folder.path().join("no.db"), &folder.path().join("x.db"), &[]).is_err());
    // While it is in use, nothing is put in its place.
    let error = restore(&copy, &path, "carol", &[]).unwrap_err();
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
    let here = folder.path().join("here.db");
    killed(&path, &here);
    let restored = restore(&copy, &here, "carol", &[]).unwrap();
    assert_eq!(restored.round, Some(11));
    let replaced = restored.replaced.unwrap();
    let kept = open(&here);
    assert_eq!(kept.condition(), Condition::AsLeft);
    assert_at(&kept, 10, 5_000);
    assert_ne!(kept.decisions().unwrap().epoch, 0);
    let (entries, latest) = Storage::audit(&kept, None, 1).unwrap();
    assert_eq!((entries[0].actor.as_str(), entries[0].action.as_str()), ("carol", "restore"));
    assert_eq!(latest, 3);
    // The store that was there is whole, with the rounds of its log.
    assert_at(&open(&replaced), 11, 5_000);
    // A damaged copy is refused, and nothing is left of it.
    let mut bytes = std::fs::read(&copy).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 4_000].fill(7);
    std::fs::write(&copy, bytes).unwrap();
    assert!(restore(&copy, &path, "carol", &[]).is_err());
    assert!(restore(&folder.path().join("no.db"), &here, "carol", &[]).is_err());
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    let new = |entry: &std::io::Result<std::fs::DirEntry>| {
        entry.as_ref().unwrap().file_name().to_string_lossy().contains(".new")
    };
    assert!(!left.iter().any(new), "{left:?}");
}

#[test]
fn a_damaged_state_of_an_older_format_stays_damaged() {
    let folder = TempDir::new().unwrap();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/mk/store.db");
    let path = store(&folder);
    for is_damaged in [false, true] {
        std::fs::copy(&fixture, &path).unwrap();
        let connection = Connection::open(&path).unwrap();
        if is_damaged {
            connection.execute("UPDATE state SET totals = x'00'", []).unwrap();
        }
        connection.close().unwrap();
        let old = View::open(&path).and_then(|view| view.load());
        let migrated = Store::open(&path, Durability::Kill).and_then(|store| store.load());
        assert_eq!(old.is_err(), is_damaged);
        match (old, migrated) {
            (Ok(old), Ok(migrated)) => assert_eq!(old, migrated),
            (old, migrated) => {
                assert!(matches!(migrated, Err(StoreError::Damaged { .. })), "{old:?} {migrated:?}")
            }
        }
        std::fs::remove_file(with_suffix(&path, ".mark")).unwrap();
    }
}
