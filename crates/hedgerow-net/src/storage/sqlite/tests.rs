use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::coordinator::records::{Standing, StandingRecord};

mod operating;

fn store(folder: &TempDir) -> PathBuf {
    folder.path().join("server.db")
}

fn open(path: &Path) -> Store {
    Store::open(path, Durability::Kill).unwrap()
}

fn run() -> Run {
    Run { id: "r-1".to_owned(), learning: "{\"method\":\"mk-ofl\"}".to_owned() }
}

/// A state that follows from its round, so that a mixture of two is seen.
fn blob(round: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (at.wrapping_mul(round + 7) >> 3) as u8).collect()
}

fn record(round: u64) -> RoundRecord {
    RoundRecord {
        round,
        closed_at_ms: 1_700_000_000_000 + round,
        uploads: round % 21,
        samples: 20,
        squared_error: if round == 3 { f64::NAN } else { round as f64 / 3.0 },
        selected: round.is_multiple_of(2).then_some(10),
        votes: vec![1, 0, round as u32],
        late: 1,
        refused: 2,
        bytes_up: 8_000,
        bytes_down: 9_000,
    }
}

fn commit(store: &mut Store, round: u64, length: usize) -> Result<(), StoreError> {
    let (server, totals, scaling) =
        (blob(round, length), blob(round + 1, 40), blob(round + 2, 300));
    store.commit(&Commit {
        round: round + 1,
        server,
        scaling: round.is_multiple_of(2).then_some(scaling),
        totals,
        record: Some(record(round)),
    })
}

fn assert_at(view: &View, round: u64, length: usize) {
    // That of an odd round is of the one before.
    let scaling = (round > 1).then(|| blob(round / 2 * 2 + 2, 300));
    let (server, totals) = (blob(round, length), blob(round + 1, 40));
    assert_eq!(view.load().unwrap(), Some(Saved { round: round + 1, server, scaling, totals }));
}

/// NaN is the same as NaN here.
fn shown<T: std::fmt::Debug>(what: &T) -> String {
    format!("{what:?}")
}

fn banned(node: &str) -> StandingRecord {
    let (standing, reason) = (Standing::Banned, "wrong unit".to_owned());
    StandingRecord { node: node.to_owned(), standing, reason, since_ms: 1_700_000_000_000 }
}

fn entry(action: &str) -> Draft {
    let [actor, action, subject, details] =
        ["alice", action, "run", "because"].map(|text| text.to_owned());
    Draft { at_ms: 1_700_000_000_001, actor, action, subject, details }
}

/// A store with a bit of everything, closed.
fn filled(path: &Path) {
    let mut store = open(path);
    store.begin(&run()).unwrap();
    for name in ["ant", "bee"] {
        store.node_number(name, 10).unwrap();
    }
    let mut nodes = store.nodes().unwrap();
    nodes.iter_mut().for_each(|node| node.certificate = node.name.clone().into_bytes());
    store.save_nodes(&nodes).unwrap();
    (1..=30).for_each(|round| commit(&mut store, round, 9_000).unwrap());
    let setting = Change::Setting { key: "rounds.least".into(), value: Some("2".into()) };
    for change in [Change::Paused(true), setting, Change::Standing(banned("bee"))] {
        store.decide(&change, &entry("change")).unwrap();
    }
    store.close().unwrap();
}

#[test]
fn a_run_goes_on_where_it_was() {
    let folder = TempDir::new().unwrap();
    let path = store(&folder);
    let mut first = open(&path);
    assert_eq!((first.run(), first.load().unwrap()), (None, None));
    assert_eq!(first.history(10).unwrap(), []);
    first.begin(&run()).unwrap();
    let again = first.begin(&run()).unwrap_err().to_string();
    assert_eq!(again, format!("{}: already has the run r-1", path.display()));
    for round in 1..=5 {
        commit(&mut first, round, 1_000 * round as usize).unwrap();
    }
    // The scaling moves on, the round doesn't.
    let [server, totals] = [b"s", b"t"].map(|bytes| bytes.to_vec());
    let only_scaling =
        Commit { round: 6, server, scaling: Some(b"c".to_vec()), totals, record: None };
    first.commit(&only_scaling).unwrap();
    let saved = first.load().unwrap().unwrap();
    first.close().unwrap();
    assert!(!folder.path().join("server.db-wal").exists(), "the log is in the store");
    let second = Store::open(&path, Durability::PowerLoss).unwrap();
    assert_eq!((second.run(), second.load().unwrap()), (Some(&run()), Some(saved)));
    let history: Vec<RoundRecord> = (1..=5).map(record).collect();
    assert_eq!(shown(&second.history(10).unwrap()), shown(&history));
}

#[test]
fn one_server_writes_and_others_look() {
    let folder = TempDir::new().unwrap();
    let path = store(&folder);
    let mut server = open(&path);
    let second = Store::open(&path, Durability::Kill).unwrap_err().to_string();
    assert_eq!(second, format!("{}: another server is using it", path.display()));
    server.begin(&run()).unwrap();
    commit(&mut server, 1, 5_000).unwrap();
    let view = View::open(&path).unwrap();
    assert_eq!(view.run(), Some(&run()));
    assert_at(&view, 1, 5_000);
    commit(&mut server, 2, 5_000).unwrap();
    assert_at(&view, 2, 5_000);
    assert!(view.connection.execute("DELETE FROM state", []).is_err(), "who looks can't write");
    drop(server);
    assert_at(&view, 2, 5_000);
    let mut server = open(&path);
    commit(&mut server, 3, 5_000).unwrap();
    assert_at(&view, 3, 5_000);
}

#[test]
fn commits_wait_for_the_disk_only_if_asked_to() {
    let folder = TempDir::new().unwrap();
    for (durability, synchronous) in [(Durability::Kill, 1), (Durability::PowerLoss, 2)] {
        let server = Store::open(&store(&folder), durability).unwrap();
        let ask = |pragma| {
            server
                .view
                .connection
                .pragma_query_value(None, pragma, |row| row.get::<_, i64>(0))
                .unwrap()
        };
        assert_eq!((ask("synchronous"), ask("wal_autocheckpoint")), (synchronous, 0));
        let mode = |row: &rusqlite::Row<'_>| row.get::<_, String>(0);
        assert_eq!(
            server.view.connection.pragma_query_value(None, "journal_mode", mode).unwrap(),
            "wal"
        );
    }
}

#[test]
fn nodes_have_their_numbers_for_ever() {
    let folder = TempDir::new().unwrap();
    let path = store(&folder);
    let mut server = open(&path);
    let names = ["ant", "bee", "cat"];
    for (number, name) in names.iter().enumerate() {
        assert_eq!(server.node_number(name, 3).unwrap(), number as u32);
    }
    assert_eq!(server.node_number("bee", 3).unwrap(), 1);
    let error = server.node_number("dog", 3).unwrap_err().to_string();
    assert_eq!(error, "node \"dog\" would be one more than the 3 that a run may have");
    let mut nodes = server.nodes().unwrap();
    assert_eq!(nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), names);
    assert!(nodes[0].first_seen_ms > 1_700_000_000_000);
    for node in &mut nodes {
        node.samples = 12;
        node.squared_error = f64::from(node.number) - 0.5;
        node.bytes_up = u64::MAX / 2;
    }
    server.save_nodes(&nodes).unwrap();
    assert_eq!(server.nodes().unwrap(), nodes);
    // All or nothing.
    let mut stranger = nodes.clone();
    stranger[0].samples = 99;
    stranger[2].name = "owl".to_owned();
    let error = server.save_nodes(&stranger).unwrap_err().to_string();
    assert_eq!(error, format!("{}: there is no node 2 named \"owl\"", path.display()));
    drop(server);
    let mut server = open(&path);
    assert_eq!(server.nodes().unwrap(), nodes);
    assert_eq!(server.node_number("cat", 0).unwrap(), 2);
}

#[test]
fn a_full_disk_loses_nothing_and_is_got_over() {
    let folder = TempDir::new().unwrap();
    let mut server = open(&store(&folder));
    commit(&mut server, 1, 5_000).unwrap();
    let pages: i64 =
        server.view.connection.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    let limit = |server: &Store, pages: i64| {
        let limited =
            server
                .view
                .connection
                .pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()));
        limited.unwrap();
    };
    limit(&server, pages + 2);
    for _ in 0..3 {
        let error = commit(&mut server, 2, 200_000).unwrap_err();
        assert!(matches!(error, StoreError::Full { .. }), "{error}");
        assert!(error.to_string().ends_with("nothing was stored, and it can be tried again"));
        assert_at(&server, 1, 5_000);
        assert_eq!(server.history(10).unwrap(), [record(1)]);
    }
    // What still fits is stored.
    commit(&mut server, 2, 5_000).unwrap();
    limit(&server, 1_000_000);
    commit(&mut server, 3, 200_000).unwrap();
    assert_at(&server, 3, 200_000);
    assert_eq!(server.history(10).unwrap().len(), 3);
}

#[test]
fn what_is_no_store_of_ours_is_refused_and_left_alone() {
    let folder = TempDir::new().unwrap();
    let path = store(&folder);
    filled(&path);
    let whole = std::fs::read(&path).unwrap();
    let altered = |sql: &str| {
        std::fs::write(&path, &whole).unwrap();
        let connection = Connection::open(&path).unwrap();
        connection.execute_batch(sql).unwrap();
        connection.close().unwrap();
        std::fs::read(&path).unwrap()
    };
    let newer = altered("PRAGMA user_version = 7");
    let other = altered("PRAGMA application_id = 1");
    let none = altered("PRAGMA user_version = 0");
    let view = altered(
        "DROP TABLE scalings; CREATE VIEW scalings AS SELECT zeroblob(1000000000) AS server",
    );
    let trigger =
        altered("CREATE TRIGGER t AFTER INSERT ON history BEGIN DELETE FROM snapshots; END");
    let text = altered("UPDATE run SET learning = 'other'");
    let negative = altered("UPDATE snapshots SET round = -5 WHERE round = 31");
    let future =
        format!("written by a newer hedgerow: format 7, this one knows up to {}", schema::NEWEST);
    for (bytes, expected) in [
        (newer, future.as_str()),
        (other, "not a store of hedgerow: its application id is 0x1, and 0x68646772 is needed"),
        (none, "damaged: there is no format 0"),
        (view, "damaged: its tables are not those of its format"),
        (trigger, "damaged: its tables are not those of its format"),
        (text, "damaged: the checksum of the run is "),
        (b"time,load\n1,2\n".repeat(50), "not a store of hedgerow: file is not a database"),
        (vec![], "not a store of hedgerow: it is empty; remove it if nothing was in it"),
        (whole[..4096].to_vec(), "damaged: "),
        (whole[..whole.len() - 4096].to_vec(), "damaged: "),
    ] {
        std::fs::write(&path, &bytes).unwrap();
        let expected = format!("{}: {expected}", path.display());
        for error in
            [Store::open(&path, Durability::Kill).unwrap_err(), View::open(&path).unwrap_err()]
        {
            assert!(error.to_string().starts_with(&expected), "{error} is not {expected}");
        }
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "it is left as it is");
    }
    std::fs::write(&path, negative).unwrap();
    let damaged = Store::open(&path, Durability::Kill).unwrap_err();
    assert!(matches!(damaged, StoreError::Damaged { .. }), "{damaged}");
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(View::open(&path), Err(StoreError::Missing { .. })));
    let log = folder.path().join("server.db-wal");
    std::fs::write(&log, "rounds that nobody has seen").unwrap();
    assert!(matches!(Store::open(&path, Durability::Kill), Err(StoreError::LogAlone { .. })));
    std::fs::remove_file(&log).unwrap();
    let in_the_way = folder.path().join("folder");
    std::fs::create_dir(&in_the_way).unwrap();
    assert!(Store::open(&in_the_way, Durability::Kill).is_err());
    assert!(Store::open(&folder.path().join("no/such"), Durability::Kill).is_err());
    // What one that was killed while it made a store left behind is in nobody's way.
    std::fs::write(folder.path().join("server.db.new"), &whole[..5000]).unwrap();
    std::fs::write(folder.path().join("server.db.new-journal"), "x").unwrap();
    drop(open(&path));
    assert_eq!(View::open(&path).unwrap().run(), None);
    assert!(!folder.path().join("server.db.new").exists());
}

#[test]
fn whatever_is_altered_in_a_row_is_seen() {
    let folder = TempDir::new().unwrap();
    let path = store(&folder);
    filled(&path);
    let whole = std::fs::read(&path).unwrap();
    let connection = Connection::open(&path).unwrap();
    let mut statement = connection.prepare(
        "SELECT t.name, c.name, c.type FROM sqlite_schema t, pragma_table_info(t.name) c \
         WHERE t.type = 'table' AND c.name != 'id' AND t.name != 'opening'",
    );
    let columns = statement.as_mut().unwrap().query_map([], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?))
    });
    let columns: Vec<_> = columns.unwrap().map(|column| column.unwrap()).collect();
    drop(statement);
    connection.close().unwrap();
    // Of a run, nodes, rounds, snapshots, scalings, facts, standings and the audit log.
    assert_eq!(columns.len(), 3 + 13 + 12 + 7 + 2 + 3 + 5 + 8);
    for (table, column, kind) in columns {
        std::fs::write(&path, &whole).unwrap();
        assert!(told(&View::open(&path).unwrap()).is_ok());
        let connection = Connection::open(&path).unwrap();
        let other = match kind.as_str() {
            "TEXT" => format!("{column} || 'x'"),
            "BLOB" => format!("CAST(substr({column}, 2) || x'ff' AS BLOB)"),
            _ => format!("{column} + 1000"),
        };
        let row = format!("{column} = (SELECT max({column}) FROM {table})");
        let changed =
            connection.execute(&format!("UPDATE {table} SET {column} = {other} WHERE {row}"), []);
        assert!(changed.unwrap() > 0, "{table}, {column}");
        connection.close().unwrap();
        let told = View::open(&path).and_then(|view| told(&view));
        assert!(matches!(told, Err(StoreError::Damaged { .. })), "{table}, {column}: {told:?}");
    }
}

/// All that a store tells.
fn told(view: &View) -> Result<String, StoreError> {
    let state = (view.run(), view.load()?, view.nodes()?, view.history(1000)?);
    for stored in snapshots::list(&view.connection).map_err(|error| failed(&view.path, error))? {
        view.snapshot(stored.round)?;
    }
    Ok(shown(&(state, view.decisions()?, view.audit(1, 1000)?)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn damage_is_seen_or_harms_nothing(flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8u8), 1..4), cut in any::<prop::sample::Index>()) {
        static FILLED: LazyLock<(Vec<u8>, String)> = LazyLock::new(|| {
            let folder = TempDir::new().unwrap();
            filled(&store(&folder));
            (std::fs::read(store(&folder)).unwrap(), told(&View::open(&store(&folder)).unwrap()).unwrap())
        });
        let (whole, truth) = &*FILLED;
        let folder = TempDir::new().unwrap();
        let path = store(&folder);
        let mut damaged = whole.clone();
        for (at, bit) in flips {
            damaged[at.index(whole.len())] ^= 1 << bit;
        }
        for bytes in [damaged, whole[..cut.index(whole.len())].to_vec()] {
            std::fs::write(&path, &bytes).unwrap();
            if let Ok(said) = View::open(&path).and_then(|view| told(&view)) {
                prop_assert_eq!(&said, truth);
            }
            prop_assert!(std::fs::read(&path).unwrap() == bytes);
        }
    }
}

#[test]
fn a_log_begins_again_once_it_is_long() {
    let folder = TempDir::new().unwrap();
    let path = store(&folder);
    let mut server = open(&path);
    let log = || folder.path().join("server.db-wal").metadata().unwrap().len();
    let by_hand = writer(&path).unwrap();
    by_hand.busy_timeout(Duration::ZERO).unwrap();
    let mut lengths = Vec::new();
    for batch in 0..4 {
        (1..=20).for_each(|round| commit(&mut server, 20 * batch + round, 50_000).unwrap());
        assert!(checkpointer::shorten(&by_hand, 500_000).unwrap());
        lengths.push(log());
    }
    assert!(lengths[0] > 500_000 && lengths[3] < 2 * lengths[0], "{lengths:?}");
    assert_at(&server, 80, 50_000);
    // Nothing waits for a reader.
    let reader = View::open(&path).unwrap();
    let transaction = reader.connection.unchecked_transaction().unwrap();
    assert_at(&reader, 80, 50_000);
    (81..=100).for_each(|round| commit(&mut server, round, 50_000).unwrap());
    assert!(!checkpointer::shorten(&by_hand, 500_000).unwrap(), "the reader needs the log");
    assert!(checkpointer::shorten(&by_hand, 50_000_000).unwrap());
    commit(&mut server, 101, 50_000).unwrap();
    assert_at(&reader, 80, 50_000);
    transaction.commit().unwrap();
    assert_at(&reader, 101, 50_000);
    assert!(checkpointer::shorten(&by_hand, 500_000).unwrap());
}

const CHILD: &str = "HEDGEROW_TEST_STORE";

/// Commits without end and says so, in a process that is to be killed.
#[test]
fn child_that_is_killed() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let mut server = open(Path::new(&path));
    let from = server.load().unwrap().map_or(1, |saved| saved.round);
    for round in from.. {
        commit(&mut server, round, 2_000 + (round as usize * 977) % 60_000).unwrap();
        writeln!(std::io::stderr(), "committed {round}").unwrap();
    }
}

#[test]
fn a_server_that_is_killed_has_every_round_that_it_committed() {
    let folder = TempDir::new().unwrap();
    let path = store(&folder);
    let mut known = 0;
    for rounds in [1, 2, 40, 3, 80, 7, 5, 60, 1, 25] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["storage::sqlite::tests::child_that_is_killed", "--exact", "--nocapture"]);
        command.env(CHILD, &path).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let committed =
            lines.map(|line| line.unwrap()).filter(|line| line.starts_with("committed"));
        let told = committed.take(rounds).last().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let told: u64 = told.rsplit(' ').next().unwrap().parse().unwrap();
        // To look at it leaves the log as it is, for the next one to begin with.
        let server = View::open(&path).unwrap();
        let last = server.load().unwrap().unwrap().round - 1;
        assert!(last >= told && told >= known + rounds as u64, "{last}, {told}, {known}");
        assert_at(&server, last, 2_000 + (last as usize * 977) % 60_000);
        let rounds: Vec<u64> =
            server.history(100_000).unwrap().iter().map(|record| record.round).collect();
        assert_eq!(rounds, (1..=last).collect::<Vec<_>>());
        known = last;
    }
}

#[cfg(unix)]
#[test]
fn only_its_owner_may_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempDir::new().unwrap();
    let path = store(&folder);
    let mut first = open(&path);
    first.begin(&run()).unwrap();
    commit(&mut first, 1, 100).unwrap();
    for file in ["", "-wal", "-shm"].map(|suffix| crate::file::with_suffix(&path, suffix)) {
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", file.display());
    }
}
