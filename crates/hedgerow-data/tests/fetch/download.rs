//! Connections that break off, servers that fail or lie, and pieces that are resumed.

use super::server::*;
use super::*;

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
