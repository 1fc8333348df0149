//! Fetches data sets from servers that disconnect, send wrong data or do not exist. Each test runs
//! its own server on this machine.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Cursor, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flate2::{Compression, write::GzEncoder};
use hedgerow_data::catalog::{Catalog, Entry};
use hedgerow_data::fetch::{
    Checked, FetchError, Fetched, Mirror, Options, Patience, Progress, fetch,
};
use tempfile::TempDir;
use zip::write::{SimpleFileOptions, ZipWriter};

/// Of "abc", from the standard.
const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

/// The parts of a request that these tests need.
#[derive(Debug, Clone, Default, PartialEq)]
struct Asked {
    path: String,
    range: Option<u64>,
    if_range: Option<String>,
}

/// A server's answer: status, headers and bytes, after which it disconnects.
struct Answer {
    head: String,
    body: Vec<u8>,
}

struct Server {
    address: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    /// Answers each request, numbered from 0, with the given function, and then disconnects.
    fn start(answer: impl Fn(usize, &Asked) -> Answer + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        std::thread::spawn(move || {
            for (count, stream) in listener.incoming().enumerate() {
                let mut stream = stream.unwrap();
                let request = read_request(&stream);
                let Answer { head, body } = answer(count, &request);
                log.lock().unwrap().push(request);
                let head = format!("HTTP/1.1 {head}\r\nConnection: close\r\n\r\n");
                // The client may disconnect early.
                let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
            }
        });
        Self { address, asked }
    }

    /// A server that always sends the same file and supports ranges.
    fn of(archive: Vec<u8>) -> Self {
        Self::start(move |_, asked| piece(&archive, asked, archive.len()))
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

fn read_request(stream: &TcpStream) -> Asked {
    let mut asked = Asked::default();
    for line in
        BufReader::new(stream).lines().map(Result::unwrap).take_while(|line| !line.is_empty())
    {
        if let Some(rest) = line.strip_prefix("GET ") {
            asked.path = rest.split(' ').next().unwrap().to_owned();
        }
        let (name, value) = line.split_once(": ").unwrap_or_default();
        match name.to_ascii_lowercase().as_str() {
            "range" => {
                let first = value.strip_prefix("bytes=").and_then(|range| range.strip_suffix('-'));
                asked.range = Some(first.unwrap().parse().unwrap());
            }
            "if-range" => asked.if_range = Some(value.to_owned()),
            _ => {}
        }
    }
    asked
}

/// The file or the requested range, limited to this number of bytes.
fn piece(archive: &[u8], asked: &Asked, most: usize) -> Answer {
    let total = archive.len();
    let start = asked.range.unwrap_or(0) as usize;
    let body = archive[start..].iter().copied().take(most).collect();
    let head = match asked.range {
        None => format!("200 OK\r\nContent-Length: {total}\r\nETag: \"one\""),
        Some(_) => format!(
            "206 Partial Content\r\nContent-Length: {}\r\nContent-Range: bytes {start}-{}/{total}\r\nETag: \"one\"",
            total - start,
            total - 1
        ),
    };
    Answer { head, body }
}

/// The whole file for every request, limited to this number of bytes.
fn whole(archive: &[u8], most: usize) -> Answer {
    piece(archive, &Asked::default(), most)
}

fn status(head: &str) -> Answer {
    Answer { head: format!("{head}\r\nContent-Length: 0"), body: Vec::new() }
}

fn zipped(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in members {
        let options =
            SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
        zip.start_file(*name, options).unwrap();
        zip.write_all(content).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

fn gzipped(content: &[u8]) -> Vec<u8> {
    let mut gz = GzEncoder::new(Vec::new(), Compression::default());
    gz.write_all(content).unwrap();
    gz.finish().unwrap()
}

fn tarred(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, content) in members {
        let mut header = tar::Header::new_gnu();
        // Written by hand, because the builder refuses names outside the folder.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(tar::EntryType::Regular);
        header.set_size(content.len() as u64);
        header.set_cksum();
        tar.append(&header, *content).unwrap();
    }
    gzipped(&tar.into_inner().unwrap())
}

/// A data set of these files: their names, bounds and checksums.
fn entry(files: &[(&str, u64, Option<&str>)]) -> Entry {
    let mut text = "licence_of_originals = \"\"\nlicence_of_excerpts = \"\"\n\
        [[source]]\nfolder = \"pond\"\nuci = 7\ntitle = \"Pond\"\narchive = \"7/pond+water.zip\"\ncitation = \"\"\n"
        .to_owned();
    for (name, most, sum) in files {
        text += &format!("[[source.files]]\nname = \"{name}\"\nmost_bytes = {most}\n");
        text += &sum.map_or(String::new(), |sum| format!("sha256 = \"{sum}\"\n"));
    }
    let names: Vec<_> = files.iter().map(|(name, ..)| name).collect();
    text += &format!(
        "[[entry]]\nname = \"pond\"\ntitle = \"Pond\"\nsource = \"pond\"\ndescription = \"\"\n\
         [[entry.variants]]\nkind = \"original\"\ncolumns = 1\nsamples = 1\nfeatures = 1\n\
         settings = {{}}\ncandidates = [{{ files = {names:?}, provenance = \"\" }}]\n"
    );
    Catalog::parse(&text).unwrap().entries.remove(0)
}

fn abc() -> Entry {
    entry(&[("abc.csv", 3, Some(ABC))])
}

fn options(folder: &TempDir, address: &str) -> Options {
    let patience = Patience {
        connect: Duration::from_secs(5),
        silence: Duration::from_secs(5),
        attempts: 3,
        pause: Duration::from_millis(1),
    };
    Options { folder: folder.path().to_owned(), mirror: Mirror::parse(address).unwrap(), patience }
}

fn get(entry: &Entry, folder: &TempDir, address: &str) -> Result<Vec<Fetched>, FetchError> {
    fetch(entry, &options(folder, address), &mut |_| {})
}

/// The files in the folder of the data set.
fn left_in(folder: &TempDir) -> Vec<String> {
    let Ok(files) = folder.path().join("pond").read_dir() else { return Vec::new() };
    let mut names: Vec<_> =
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn content(folder: &TempDir, name: &str) -> String {
    std::fs::read_to_string(folder.path().join("pond").join(name)).unwrap()
}

fn assert_says(error: &FetchError, parts: &[&str]) {
    let message = error.to_string();
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
}

/// Bytes that don't compress, so that an archive of them has the same length.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..length).map(|_| next()).collect()
}

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
fn a_broken_connection_is_taken_up_where_it_broke() {
    let content = noise(300_000);
    let archive = zipped(&[("noise.bin", &content)]);
    let server = Server::start(move |count, asked| {
        piece(&archive, asked, if count < 2 { 100_000 } else { archive.len() })
    });
    let folder = TempDir::new().unwrap();
    let mut tries = 0;
    let noise = entry(&[("noise.bin", 300_000, None)]);
    fetch(&noise, &options(&folder, &server.address), &mut |progress| {
        tries += usize::from(matches!(progress, Progress::TryingAgain { .. }));
    })
    .unwrap();
    assert_eq!(tries, 2);
    assert_eq!(std::fs::read(folder.path().join("pond/noise.bin")).unwrap(), content);
    let asked = server.asked();
    let ranges: Vec<_> = asked.iter().map(|asked| asked.range).collect();
    assert_eq!(ranges, [None, Some(100_000), Some(200_000)]);
    assert_eq!(asked[1].if_range.as_deref(), Some("\"one\""));
    assert_eq!(left_in(&folder), ["SHA256SUMS", "noise.bin"]);
}

#[test]
fn a_later_call_goes_on_with_what_an_earlier_one_left() {
    let content = noise(50_000);
    let archive = zipped(&[("noise.bin", &content)]);
    let noise = entry(&[("noise.bin", 50_000, None)]);
    let server = Server::start(move |count, asked| match count {
        0 => piece(&archive, asked, 20_000),
        1 => status("404 Not Found"),
        _ => piece(&archive, asked, archive.len()),
    });
    let folder = TempDir::new().unwrap();
    get(&noise, &folder, &server.address).unwrap_err();
    assert_eq!(left_in(&folder), ["pond.zip.partial", "pond.zip.partial.version"]);
    get(&noise, &folder, &server.address).unwrap();
    assert_eq!(server.asked()[2].range, Some(20_000));
    assert_eq!(std::fs::read(folder.path().join("pond/noise.bin")).unwrap(), content);
}

/// Writes what an earlier, interrupted call would leave: bytes, their source and their version tag.
fn leave_partial(folder: &TempDir, bytes: &[u8], address: &str, version: &str) {
    let partial = folder.path().join("pond/pond.zip.partial");
    std::fs::create_dir_all(partial.parent().unwrap()).unwrap();
    std::fs::write(&partial, bytes).unwrap();
    let note = format!("{address}/7/pond+water.zip\n{version}");
    std::fs::write(partial.with_file_name("pond.zip.partial.version"), note).unwrap();
}

#[test]
fn a_piece_that_may_belong_to_something_else_is_not_gone_on_with() {
    let server = Server::of(zipped(&[("abc.csv", b"abc")]));
    // From another server, and from one without version tags.
    for (address, version) in [("http://other.example", "\"one\""), (&server.address, "")] {
        let folder = TempDir::new().unwrap();
        leave_partial(&folder, b"something", address, version);
        get(&abc(), &folder, &server.address).unwrap();
        assert_eq!(server.asked().last().unwrap().range, None);
        assert_eq!(content(&folder, "abc.csv"), "abc");
    }
}

#[test]
fn a_piece_of_an_older_version_gives_way_to_the_whole() {
    let archive = zipped(&[("abc.csv", b"abc")]);
    // The tag has changed, so the server sends the whole file.
    let server = Server::start(move |_, _| whole(&archive, archive.len()));
    let folder = TempDir::new().unwrap();
    // Longer than the whole file, by more than a zip reader searches backwards.
    leave_partial(&folder, &noise(200_000), &server.address, "\"old\"");
    get(&abc(), &folder, &server.address).unwrap();
    let asked = server.asked().remove(0);
    assert_eq!((asked.range, asked.if_range.as_deref()), (Some(200_000), Some("\"old\"")));
    assert_eq!(content(&folder, "abc.csv"), "abc");
}

#[test]
fn a_server_that_knows_no_pieces_starts_over() {
    let content = noise(200_000);
    let archive = zipped(&[("noise.bin", &content)]);
    let server = Server::start(move |count, _| {
        whole(&archive, if count == 0 { 90_000 } else { archive.len() })
    });
    let folder = TempDir::new().unwrap();
    get(&entry(&[("noise.bin", 200_000, None)]), &folder, &server.address).unwrap();
    assert_eq!(server.asked()[1].range, Some(90_000));
    assert_eq!(std::fs::read(folder.path().join("pond/noise.bin")).unwrap(), content);
}

#[test]
fn a_server_that_sends_the_wrong_piece_is_asked_for_the_whole() {
    let content = noise(200_000);
    let archive = zipped(&[("noise.bin", &content)]);
    let server = Server::start(move |count, asked| match count {
        0 => piece(&archive, asked, 90_000),
        1 => piece(&archive, &Asked { range: Some(10), ..asked.clone() }, archive.len()),
        _ => piece(&archive, asked, archive.len()),
    });
    let folder = TempDir::new().unwrap();
    get(&entry(&[("noise.bin", 200_000, None)]), &folder, &server.address).unwrap();
    assert_eq!(server.asked()[2].range, None);
    assert_eq!(std::fs::read(folder.path().join("pond/noise.bin")).unwrap(), content);
}

#[test]
fn a_server_may_send_less_than_it_was_asked_for() {
    let content = noise(200_000);
    let archive = zipped(&[("noise.bin", &content)]);
    let server = Server::start(move |count, asked| match (count, asked.range) {
        (1, Some(start)) => {
            let (end, total) = (start as usize + 50_000, archive.len());
            let range = format!("Content-Range: bytes {start}-{}/{total}", end - 1);
            let head = format!("206 Partial Content\r\nContent-Length: 50000\r\n{range}");
            Answer { head, body: archive[start as usize..end].to_vec() }
        }
        _ => piece(&archive, asked, if count == 0 { 90_000 } else { archive.len() }),
    });
    let folder = TempDir::new().unwrap();
    get(&entry(&[("noise.bin", 200_000, None)]), &folder, &server.address).unwrap();
    assert_eq!(server.asked()[2].range, Some(140_000));
    assert_eq!(std::fs::read(folder.path().join("pond/noise.bin")).unwrap(), content);
}

#[test]
fn what_is_whole_already_needs_no_more_bytes() {
    let whole = zipped(&[("abc.csv", b"abc")]);
    let total = whole.len();
    let server = Server::start(move |_, asked| match asked.range {
        Some(start) if start as usize == total => {
            status(&format!("416 Range Not Satisfiable\r\nContent-Range: bytes */{total}"))
        }
        other => panic!("{other:?}"),
    });
    let folder = TempDir::new().unwrap();
    leave_partial(&folder, &whole, &server.address, "\"one\"");
    get(&abc(), &folder, &server.address).unwrap();
    assert_eq!(content(&folder, "abc.csv"), "abc");
}

#[test]
fn a_length_is_not_needed_but_the_end_of_the_last_chunk_is() {
    let archive = zipped(&[("abc.csv", b"abc")]);
    let chunked = move |end: &str| {
        let mut body = format!("{:x}\r\n", archive.len()).into_bytes();
        body.extend_from_slice(&archive);
        body.extend_from_slice(end.as_bytes());
        Answer { head: "200 OK\r\nTransfer-Encoding: chunked".to_owned(), body }
    };
    let server =
        Server::start(move |count, _| chunked(if count == 0 { "" } else { "\r\n0\r\n\r\n" }));
    let folder = TempDir::new().unwrap();
    get(&abc(), &folder, &server.address).unwrap();
    assert_eq!((content(&folder, "abc.csv").as_str(), server.asked().len()), ("abc", 2));
}

#[test]
fn a_server_that_breaks_off_for_ever_is_given_up() {
    let archive = zipped(&[("noise.bin", &noise(200_000))]);
    let total = archive.len().to_string();
    let server = Server::start(move |_, _| whole(&archive, 10_000));
    let folder = TempDir::new().unwrap();
    let error = get(&entry(&[("noise.bin", 200_000, None)]), &folder, &server.address).unwrap_err();
    assert_says(
        &error,
        &["gave up after 3 attempts", "broke off after 10000 of", &total, &server.address],
    );
    assert_eq!(server.asked().len(), 3);
}

#[test]
fn a_server_that_is_silent_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = TempDir::new().unwrap();
    let mut options = options(&folder, &format!("http://{}", listener.local_addr().unwrap()));
    options.patience.silence = Duration::from_millis(50);
    let error = fetch(&abc(), &options, &mut |_| {}).unwrap_err();
    assert_says(&error, &["gave up after 3 attempts", "no answer in time"]);
}

#[test]
fn silence_in_the_middle_is_noticed_too() {
    let archive = zipped(&[("noise.bin", &noise(200_000))]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let Answer { head, body } = piece(&archive, &read_request(&stream), 5_000);
            stream.write_all(format!("HTTP/1.1 {head}\r\n\r\n").as_bytes()).unwrap();
            stream.write_all(&body).unwrap();
            kept.push(stream);
        }
    });
    let folder = TempDir::new().unwrap();
    let mut options = options(&folder, &address);
    options.patience.silence = Duration::from_millis(200);
    let error = fetch(&entry(&[("noise.bin", 200_000, None)]), &options, &mut |_| {}).unwrap_err();
    assert_says(&error, &["gave up after 3 attempts", "no answer in time"]);
    let have = std::fs::metadata(folder.path().join("pond/pond.zip.partial")).unwrap().len();
    assert!((1..=15_000).contains(&have), "{have}");
}

#[test]
fn a_status_is_put_into_words_and_only_a_failing_server_is_asked_again() {
    for (answer, calls, parts) in [
        ("404 Not Found", 1, &["no such archive", "404", "pond+water.zip"][..]),
        ("403 Forbidden", 1, &["doesn't allow", "403"]),
        ("503 Service Unavailable", 3, &["gave up after 3", "server failed", "503"]),
        ("301 Moved\r\nLocation: /again", 6, &["can't reach", "redirect"]),
    ] {
        let (folder, server) = (TempDir::new().unwrap(), Server::start(move |_, _| status(answer)));
        let error = get(&abc(), &folder, &server.address).unwrap_err();
        assert_says(&error, parts);
        assert_eq!(server.asked().len(), calls, "{answer}");
    }
}

#[test]
fn a_failing_server_may_recover_and_may_send_us_elsewhere() {
    let archive = zipped(&[("abc.csv", b"abc")]);
    let server = Server::start(move |count, asked| match (count, asked.path.as_str()) {
        (0, _) => status("503 Service Unavailable"),
        (_, "/elsewhere") => whole(&archive, archive.len()),
        _ => status("302 Found\r\nLocation: /elsewhere"),
    });
    let folder = TempDir::new().unwrap();
    get(&abc(), &folder, &server.address).unwrap();
    assert_eq!(content(&folder, "abc.csv"), "abc");
}

#[test]
fn nobody_there_is_said_plainly() {
    let folder = TempDir::new().unwrap();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = get(&abc(), &folder, &format!("http://{nobody}")).unwrap_err();
    assert_says(&error, &["can't reach", &nobody.to_string(), "refused", "is there a network"]);
    assert!(left_in(&folder).is_empty());
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
