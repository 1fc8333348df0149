//! What ends up in the folder: checksums, files that are there already, folders that fail.

use super::server::*;
use super::*;

#[test]
fn an_archive_is_downloaded_unpacked_and_checked() {
    let (folder, server) =
        (TempDir::new().unwrap(), Server::of(zipped(&[("a/b/abc.csv", b"abc")])));
    let mut seen = Vec::new();
    let fetched = fetch(&abc(), &options(&folder, &server.address), &mut |progress| {
        seen.push(format!("{progress:?}"));
    });
    let path = folder.path().join("pond/abc.csv");
    assert_eq!(fetched.unwrap(), [Fetched { path, downloaded: true, checked: Checked::Catalogue }]);
    assert_eq!(content(&folder, "abc.csv"), "abc");
    assert_eq!(left_in(&folder), ["SHA256SUMS", "abc.csv"]);
    assert_eq!(content(&folder, "SHA256SUMS"), format!("{ABC}  abc.csv\n"));
    assert_eq!(server.asked(), [Asked { path: "/7/pond+water.zip".into(), ..Asked::default() }]);
    assert!(seen[0].contains("Asking") && seen[1].contains("Downloading"), "{seen:?}");
    assert!(seen.last().unwrap().contains("Unpacking"), "{seen:?}");
}

#[test]
fn what_is_there_is_not_downloaded_again_packed_or_not() {
    for (name, bytes) in [("abc.csv", b"abc".to_vec()), ("abc.csv.gz", gzipped(b"abc"))] {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("pond").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        let fetched = get(&abc(), &folder, "http://127.0.0.1:1").unwrap();
        assert_eq!(fetched, [Fetched { path, downloaded: false, checked: Checked::Catalogue }]);
        assert_eq!(left_in(&folder), [name]);
    }
}

#[test]
fn only_what_is_missing_is_taken() {
    let folder = TempDir::new().unwrap();
    let server = Server::of(zipped(&[("abc.csv", b"xyz"), ("other.csv", b"other")]));
    std::fs::create_dir_all(folder.path().join("pond")).unwrap();
    std::fs::write(folder.path().join("pond/abc.csv"), "abc").unwrap();
    let two = entry(&[("abc.csv", 3, Some(ABC)), ("other.csv", 9, None)]);
    let fetched = get(&two, &folder, &server.address).unwrap();
    assert_eq!(fetched.iter().map(|file| file.downloaded).collect::<Vec<_>>(), [false, true]);
    assert_eq!(
        (content(&folder, "abc.csv"), content(&folder, "other.csv")),
        ("abc".into(), "other".into())
    );
}

#[test]
fn another_file_of_that_name_is_not_overwritten() {
    let (folder, server) = (TempDir::new().unwrap(), Server::of(zipped(&[("abc.csv", b"abc")])));
    std::fs::create_dir_all(folder.path().join("pond")).unwrap();
    std::fs::write(folder.path().join("pond/abc.csv"), "mine").unwrap();
    let error = get(&abc(), &folder, &server.address).unwrap_err();
    assert_says(&error, &["abc.csv", ABC, "remove it first"]);
    assert_eq!(content(&folder, "abc.csv"), "mine");
    assert!(server.asked().is_empty());
}

#[test]
fn a_wrong_checksum_is_refused_and_nothing_is_kept() {
    let (folder, server) = (TempDir::new().unwrap(), Server::of(zipped(&[("abc.csv", b"abd")])));
    let error = get(&abc(), &folder, &server.address).unwrap_err();
    assert_says(
        &error,
        &["abc.csv", "wrong checksum", ABC, "a52d159f262b2c6ddb724a61840befc36eb30c88"],
    );
    assert!(left_in(&folder).is_empty(), "{:?}", left_in(&folder));
}

#[test]
fn an_unknown_checksum_is_recorded_and_compared_later() {
    let unknown = entry(&[("abc.csv", 3, None)]);
    let (first, second) = (zipped(&[("abc.csv", b"abc")]), zipped(&[("abc.csv", b"abd")]));
    let server = Server::start(move |count, asked| {
        let archive = if count < 2 { &first } else { &second };
        piece(archive, asked, archive.len())
    });
    let folder = TempDir::new().unwrap();
    let checked = || get(&unknown, &folder, &server.address).map(|fetched| fetched[0].checked);
    assert_eq!(checked().unwrap(), Checked::RecordedNow);
    assert_eq!(checked().unwrap(), Checked::FirstDownload);
    assert_eq!(server.asked().len(), 1);
    std::fs::remove_file(folder.path().join("pond/abc.csv")).unwrap();
    assert_eq!(checked().unwrap(), Checked::FirstDownload);
    assert_eq!(server.asked().len(), 2);
    std::fs::remove_file(folder.path().join("pond/abc.csv")).unwrap();
    assert_says(&checked().unwrap_err(), &["abc.csv", "first download", ABC, "SHA256SUMS"]);
    assert_eq!(left_in(&folder), ["SHA256SUMS"]);
    // A file placed by hand, without a checksum.
    std::fs::remove_file(folder.path().join("pond/SHA256SUMS")).unwrap();
    std::fs::write(folder.path().join("pond/abc.csv"), "own").unwrap();
    assert_eq!(checked().unwrap(), Checked::Nothing);
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("pond"), "a file, not a folder").unwrap();
    let error = get(&abc(), &folder, "http://127.0.0.1:1").unwrap_err();
    assert!(matches!(error, FetchError::Unwritable(..)), "{error}");
    assert_says(&error, &["pond"]);
}

#[test]
fn two_at_once_are_not_in_each_others_way() {
    let folder = TempDir::new().unwrap();
    let partial: &Path = &folder.path().join("pond/pond.zip.partial");
    std::fs::create_dir_all(partial.parent().unwrap()).unwrap();
    let held = std::fs::File::create(partial).unwrap();
    held.lock().unwrap();
    let error = get(&abc(), &folder, "http://127.0.0.1:1").unwrap_err();
    assert_says(&error, &["pond.zip.partial", "another process"]);
}
