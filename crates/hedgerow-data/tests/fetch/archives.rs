//! Archives that are nested, hostile, too large or damaged.

use super::server::*;
use super::*;

#[test]
fn archives_within_the_archive_are_opened() {
    let inner = zipped(&[("deep/abc.csv", b"abc")]);
    for archive in [
        zipped(&[("readme.txt", b"hello"), ("inner.ZIP", &inner)]),
        zipped(&[("outer.zip", &zipped(&[("inner.zip", &inner)]))]),
        zipped(&[("x.tar.gz", &tarred(&[("./x/readme", b"hello"), ("./x/abc.csv", b"abc")]))]),
        zipped(&[("x.tgz", &tarred(&[("abc.csv", b"abc"), ("z", &noise(70_000))]))]),
        zipped(&[("abc.csv.gz", &gzipped(b"abc"))]),
        zipped(&[("x.tar.gz", &tarred(&[("abc.csv.gz", &gzipped(b"abc"))]))]),
    ] {
        let (folder, server) = (TempDir::new().unwrap(), Server::of(archive));
        get(&abc(), &folder, &server.address).unwrap();
        assert_eq!(content(&folder, "abc.csv"), "abc");
        assert_eq!(left_in(&folder), ["SHA256SUMS", "abc.csv"]);
    }
}

#[test]
fn names_that_lead_elsewhere_lead_nowhere() {
    for archive in [
        zipped(&[("../../abc.csv", b"abc"), ("../evil", b"evil")]),
        zipped(&[("/etc/abc.csv", b"abc")]),
        zipped(&[("..\\..\\abc.csv", b"abc")]),
        zipped(&[("x.tar.gz", &tarred(&[("../../abc.csv", b"abc"), ("/tmp/evil", b"evil")]))]),
    ] {
        let (outer, server) = (TempDir::new().unwrap(), Server::of(archive));
        let folder = TempDir::new_in(outer.path()).unwrap();
        get(&abc(), &folder, &server.address).unwrap();
        assert_eq!(left_in(&folder), ["SHA256SUMS", "abc.csv"]);
        assert_eq!(outer.path().read_dir().unwrap().count(), 1);
        assert_eq!(folder.path().read_dir().unwrap().count(), 1);
    }
}

#[test]
fn what_swells_is_refused() {
    let zeros = vec![0; 3_000_000];
    for archive in [
        zipped(&[("abc.csv", &zeros)]),
        zipped(&[("abc.csv.gz", &gzipped(&zeros))]),
        zipped(&[("x.tar.gz", &tarred(&[("abc.csv", &zeros)]))]),
        zipped(&[("inner.zip", &zipped(&[("abc.csv", &zeros)]))]),
    ] {
        let (folder, server) = (TempDir::new().unwrap(), Server::of(archive));
        let error = get(&abc(), &folder, &server.address).unwrap_err();
        assert_says(&error, &["abc.csv", "more than 3 bytes"]);
        assert!(left_in(&folder).is_empty(), "{:?}", left_in(&folder));
    }
}

#[test]
fn an_archive_beyond_all_bounds_is_not_begun() {
    let answer =
        || Answer { head: "200 OK\r\nContent-Length: 99999999999".to_owned(), body: vec![0; 9] };
    let (folder, server) = (TempDir::new().unwrap(), Server::start(move |_, _| answer()));
    let error = get(&abc(), &folder, &server.address).unwrap_err();
    assert_says(&error, &["more than the 1073741824 bytes"]);
}

#[test]
fn what_is_no_archive_or_a_damaged_one_is_refused_and_not_kept() {
    let good = zipped(&[("noise.bin", &noise(10_000))]);
    let mut damaged = good.clone();
    damaged[5_000] ^= 1;
    let mut inside = tarred(&[("noise.bin", &noise(10_000))]);
    inside.truncate(6_000);
    for (archive, parts) in [
        (
            b"<!DOCTYPE html><title>Log in</title>".to_vec(),
            &["not a zip archive", "<!DOCTYPE html>"][..],
        ),
        (Vec::new(), &["not a zip archive"]),
        (good[..good.len() / 2].to_vec(), &["not a zip archive"]),
        (damaged, &["noise.bin", "can't be unpacked"]),
        (zipped(&[("x.tar.gz", &inside)]), &["noise.bin", "can't be unpacked"]),
        (zipped(&[("x.tar.gz", b"hello")]), &["x.tar.gz", "can't be unpacked"]),
        (zipped(&[("x.zip", b"hello")]), &["x.zip", "can't be unpacked"]),
        (
            zipped(&[("readme.txt", b"hello"), ("noise.bin/", b"")]),
            &["no \"noise.bin\" in the archive"],
        ),
        (zipped(&[("__MACOSX/noise.bin", b"hello")]), &["no \"noise.bin\" in the archive"]),
    ] {
        let (folder, server) = (TempDir::new().unwrap(), Server::of(archive));
        let error =
            get(&entry(&[("noise.bin", 10_000, None)]), &folder, &server.address).unwrap_err();
        assert_says(&error, parts);
        assert!(left_in(&folder).is_empty(), "{:?}", left_in(&folder));
    }
}

#[test]
fn a_damaged_end_of_an_inner_archive_is_noticed() {
    let mut inner = tarred(&[("noise.bin", &noise(10_000))]);
    // The checksum of the gzipped whole.
    let end = inner.len() - 8;
    inner[end] ^= 1;
    let (folder, server) = (TempDir::new().unwrap(), Server::of(zipped(&[("x.tar.gz", &inner)])));
    let error = get(&entry(&[("noise.bin", 10_000, None)]), &folder, &server.address).unwrap_err();
    assert_says(&error, &["x.tar.gz", "can't be unpacked"]);
}
