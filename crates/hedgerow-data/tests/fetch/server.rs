//! A server for one test, and what it serves.

use super::*;

/// Of "abc", from the standard.
pub(super) const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

/// The parts of a request that these tests need.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Asked {
    pub(super) path: String,
    pub(super) range: Option<u64>,
    pub(super) if_range: Option<String>,
}

/// A server's answer: status, headers and bytes, after which it disconnects.
pub(super) struct Answer {
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

pub(super) struct Server {
    pub(super) address: String,
    pub(super) asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    /// Answers each request, numbered from 0, with the given function, and then disconnects.
    pub(super) fn start(answer: impl Fn(usize, &Asked) -> Answer + Send + 'static) -> Self {
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
    pub(super) fn of(archive: Vec<u8>) -> Self {
        Self::start(move |_, asked| piece(&archive, asked, archive.len()))
    }

    pub(super) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

pub(super) fn read_request(stream: &TcpStream) -> Asked {
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
pub(super) fn piece(archive: &[u8], asked: &Asked, most: usize) -> Answer {
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
pub(super) fn whole(archive: &[u8], most: usize) -> Answer {
    piece(archive, &Asked::default(), most)
}

pub(super) fn status(head: &str) -> Answer {
    Answer { head: format!("{head}\r\nContent-Length: 0"), body: Vec::new() }
}

pub(super) fn zipped(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in members {
        let options =
            SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
        zip.start_file(*name, options).unwrap();
        zip.write_all(content).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

pub(super) fn gzipped(content: &[u8]) -> Vec<u8> {
    let mut gz = GzEncoder::new(Vec::new(), Compression::default());
    gz.write_all(content).unwrap();
    gz.finish().unwrap()
}

pub(super) fn tarred(members: &[(&str, &[u8])]) -> Vec<u8> {
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
pub(super) fn entry(files: &[(&str, u64, Option<&str>)]) -> Entry {
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

pub(super) fn abc() -> Entry {
    entry(&[("abc.csv", 3, Some(ABC))])
}

pub(super) fn options(folder: &TempDir, address: &str) -> Options {
    let patience = Patience {
        connect: Duration::from_secs(5),
        silence: Duration::from_secs(5),
        attempts: 3,
        pause: Duration::from_millis(1),
    };
    Options { folder: folder.path().to_owned(), mirror: Mirror::parse(address).unwrap(), patience }
}

pub(super) fn get(
    entry: &Entry,
    folder: &TempDir,
    address: &str,
) -> Result<Vec<Fetched>, FetchError> {
    fetch(entry, &options(folder, address), &mut |_| {})
}

/// The files in the folder of the data set.
pub(super) fn left_in(folder: &TempDir) -> Vec<String> {
    let Ok(files) = folder.path().join("pond").read_dir() else { return Vec::new() };
    let mut names: Vec<_> =
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

pub(super) fn content(folder: &TempDir, name: &str) -> String {
    std::fs::read_to_string(folder.path().join("pond").join(name)).unwrap()
}

pub(super) fn assert_says(error: &FetchError, parts: &[&str]) {
    let message = error.to_string();
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
}

/// Bytes that don't compress, so that an archive of them has the same length.
pub(super) fn noise(length: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..length).map(|_| next()).collect()
}
