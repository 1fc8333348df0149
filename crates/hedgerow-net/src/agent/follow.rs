//! [`Follow`]: the lines of a file that grows, is truncated, or is replaced by another of the same
//! name. Its position can be saved ([`Bookmark`]), so that a restarted node neither repeats nor
//! loses a line.

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use super::lines::{Line, LinePosition, Lines};

/// Bytes at the beginning by which a file is recognised, beside its identity.
const OPENING_BYTES: usize = 1024;

/// Most files of a folder that are searched for one that was renamed.
const MAX_FILES_SEARCHED: usize = 10_000;

/// Where in which file a reader is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bookmark {
    place: LinePosition,
    identity: Identity,
    /// How many bytes at the beginning of the file have which checksum.
    opening: (u32, u32),
}

impl Bookmark {
    /// Lines before it.
    pub fn lines(&self) -> u64 {
        self.place.lines
    }
}

/// The identity of a file independent of its name: device and inode number. Numbers are reused
/// after a file is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Identity(u64, u64);

/// Follows a file.
#[derive(Debug)]
pub struct Follow {
    path: PathBuf,
    look_every: Duration,
    open: Option<Open>,
    /// Where to continue when the file exists again.
    bookmark: Option<Bookmark>,
    lines: Lines,
    /// Another file has the name now. If the old one has nothing new at the next look, it is
    /// closed.
    is_leaving: bool,
    /// The latest error, so that it is logged once.
    trouble: Option<String>,
}

#[derive(Debug)]
struct Open {
    file: File,
    identity: Identity,
    /// Bytes read so far, and the first of them.
    read: u64,
    opening: Vec<u8>,
}

/// What was found under the file's name.
enum Found {
    Nothing,
    /// Another file to read.
    File,
    /// Another file to read, and the last line of the one before.
    Line(Line),
}

impl Follow {
    /// Follows the file of this name, from its first line or from a bookmark.
    pub fn new(path: &Path, bookmark: Option<&Bookmark>, look_every: Duration) -> Self {
        let mut follow = Self {
            path: path.to_owned(),
            look_every,
            open: None,
            bookmark: None,
            lines: Lines::default(),
            is_leaving: false,
            trouble: None,
        };
        if let Some(bookmark) = bookmark {
            follow.go_on_from(bookmark);
        }
        follow
    }

    /// The end of the last line that was returned.
    pub fn bookmark(&self) -> Option<Bookmark> {
        let Some(open) = &self.open else { return self.bookmark.clone() };
        let place = self.lines.place();
        let length = open.opening.len().min(usize::try_from(place.offset).unwrap_or(usize::MAX));
        let opening = (length as u32, crc32fast::hash(&open.opening[..length]));
        Some(Bookmark { place, identity: open.identity, opening })
    }

    /// Waits for the next line. It may be cancelled at any time.
    pub async fn next(&mut self) -> Line {
        loop {
            if let Some(line) = self.lines.pull() {
                return line;
            }
            match self.read() {
                Ok(0) => match self.look() {
                    Found::Line(line) => return line,
                    Found::File => {}
                    Found::Nothing => tokio::time::sleep(self.look_every).await,
                },
                Ok(_) => self.is_leaving = false,
                Err(error) => {
                    self.tell(format!("can't read {}: {error}", self.path.display()));
                    tokio::time::sleep(self.look_every).await;
                }
            }
        }
    }

    /// Reads more of the open file.
    fn read(&mut self) -> io::Result<usize> {
        let Some(open) = &mut self.open else { return Ok(0) };
        let mut block = [0; 1 << 14];
        let count = open.file.read(&mut block)?;
        let block = &block[..count];
        open.opening.extend_from_slice(
            &block[..count.min(OPENING_BYTES.saturating_sub(open.opening.len()))],
        );
        open.read += count as u64;
        self.lines.push(block);
        Ok(count)
    }

    /// Checks whether the open file, which has nothing more, was truncated or replaced. An
    /// unfinished line of it is its last one.
    fn look(&mut self) -> Found {
        let named = match std::fs::metadata(&self.path) {
            Ok(named) => named,
            Err(error) => {
                // It may be renamed at this moment: the open file is read until there is a new one.
                if self.open.is_none() {
                    self.tell(format!("can't read {}: {error}", self.path.display()));
                }
                return Found::Nothing;
            }
        };
        let Some(open) = &self.open else { return self.begin(&named) };
        if identity(&named) == open.identity {
            self.is_leaving = false;
            if named.len() < open.read {
                info!(file = %self.path.display(), "the file was cut short: it is read from its first line");
                return self.begin(&named);
            }
            return Found::Nothing;
        }
        if !self.is_leaving {
            self.is_leaving = true;
            return Found::Nothing;
        }
        info!(file = %self.path.display(), "another file has taken its name: that one is read from here on");
        let last = self.lines.finish();
        let begun = self.begin(&named);
        last.map_or(begun, Found::Line)
    }

    /// Opens the file that has the name now, at its beginning.
    fn begin(&mut self, named: &Metadata) -> Found {
        self.open = None;
        self.lines = Lines::default();
        self.is_leaving = false;
        if !named.is_file() {
            // Opening a pipe would wait for its writer.
            self.tell(format!("{} is not a file", self.path.display()));
            return Found::Nothing;
        }
        if let Some(bookmark) = self.bookmark.take() {
            self.go_on_from(&bookmark);
            if self.open.is_some() {
                return Found::File;
            }
        }
        match Open::new(&self.path) {
            Ok(open) => {
                (self.open, self.trouble) = (Some(open), None);
                Found::File
            }
            Err(error) => {
                self.tell(format!("can't read {}: {error}", self.path.display()));
                Found::Nothing
            }
        }
    }

    fn go_on_from(&mut self, bookmark: &Bookmark) {
        let found = match Open::at(&self.path, bookmark) {
            Ok(Some(open)) => Some(open),
            _ => self.renamed(bookmark),
        };
        match found {
            Some(open) => (self.open, self.lines) = (Some(open), Lines::from(bookmark.place)),
            // Its disk may be mounted again later.
            None if !self.path.exists() => self.bookmark = Some(bookmark.clone()),
            None => warn!(
                file = %self.path.display(), line = bookmark.place.lines,
                "what was read up to this line is gone: the file is read from its first line"
            ),
        }
    }

    /// The file of the bookmark under another name in the same folder.
    fn renamed(&self, bookmark: &Bookmark) -> Option<Open> {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let files = std::fs::read_dir(folder.unwrap_or(Path::new("."))).ok()?;
        files
            .take(MAX_FILES_SEARCHED)
            .flatten()
            .find_map(|file| Open::at(&file.path(), bookmark).ok().flatten())
    }

    fn tell(&mut self, trouble: String) {
        if self.trouble.as_ref() != Some(&trouble) {
            warn!("{trouble}");
            self.trouble = Some(trouble);
        }
    }
}

impl Open {
    fn new(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let identity = identity(&file.metadata()?);
        Ok(Self { file, identity, read: 0, opening: Vec::new() })
    }

    /// The file of the bookmark, at its position; none if this is another file.
    fn at(path: &Path, bookmark: &Bookmark) -> io::Result<Option<Self>> {
        let named = std::fs::metadata(path)?;
        let offset = bookmark.place.offset;
        if !named.is_file() || identity(&named) != bookmark.identity || named.len() < offset {
            return Ok(None);
        }
        let mut open = Self::new(path)?;
        let (length, checksum) = bookmark.opening;
        let length = u64::from(length).min(OPENING_BYTES as u64);
        (&mut open.file).take(length).read_to_end(&mut open.opening)?;
        if open.identity != bookmark.identity || crc32fast::hash(&open.opening) != checksum {
            return Ok(None);
        }
        // The rest of the beginning, for the next bookmark.
        let rest = offset.min(OPENING_BYTES as u64) - length.min(offset);
        (&mut open.file).take(rest).read_to_end(&mut open.opening)?;
        open.file.seek(SeekFrom::Start(offset))?;
        open.read = offset;
        Ok(Some(open))
    }
}

#[cfg(unix)]
fn identity(file: &Metadata) -> Identity {
    use std::os::unix::fs::MetadataExt;
    Identity(file.dev(), file.ino())
}

/// Systems without inode numbers: the time of creation.
#[cfg(not(unix))]
fn identity(file: &Metadata) -> Identity {
    let made = file.created().ok().and_then(|made| made.duration_since(std::time::UNIX_EPOCH).ok());
    Identity(0, made.map_or(0, |made| made.as_nanos() as u64))
}

#[cfg(test)]
mod tests {
    use std::fs::{OpenOptions, rename, write};
    use std::io::Write;

    use tempfile::TempDir;

    use super::*;

    const EVERY: Duration = Duration::from_millis(200);

    fn append(path: &Path, text: &str) {
        let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    /// All lines that come before nothing comes for a while.
    async fn lines(follow: &mut Follow) -> Vec<(u64, String)> {
        let mut found = Vec::new();
        while let Ok(line) = tokio::time::timeout(10 * EVERY, follow.next()).await {
            found.push((line.number, String::from_utf8(line.text.unwrap()).unwrap()));
        }
        found
    }

    fn numbered(first: u64, texts: &[&str]) -> Vec<(u64, String)> {
        (first..).zip(texts.iter().map(|text| (*text).to_owned())).collect()
    }

    fn start() -> (TempDir, PathBuf) {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("log");
        (folder, path)
    }

    #[tokio::test(start_paused = true)]
    async fn lines_come_when_they_are_whole() {
        let (_folder, path) = start();
        let mut follow = Follow::new(&path, None, EVERY);
        assert_eq!((lines(&mut follow).await, follow.bookmark()), (vec![], None));
        write(&path, "one\ntw").unwrap();
        assert_eq!(lines(&mut follow).await, numbered(1, &["one"]));
        append(&path, "o\nthree\n");
        assert_eq!(lines(&mut follow).await, numbered(2, &["two", "three"]));
        assert_eq!(lines(&mut follow).await, vec![]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_replaced_file_is_read_to_its_end_and_then_the_new_one() {
        let (folder, path) = start();
        write(&path, "one\n").unwrap();
        let mut follow = Follow::new(&path, None, EVERY);
        assert_eq!(lines(&mut follow).await, numbered(1, &["one"]));
        append(&path, "two\n");
        rename(&path, folder.path().join("log.1")).unwrap();
        // No new file yet: the writer may still use the old one.
        append(&folder.path().join("log.1"), "thr");
        assert_eq!(lines(&mut follow).await, numbered(2, &["two"]));
        append(&folder.path().join("log.1"), "ee");
        write(&path, "four\nfive").unwrap();
        let expected = [numbered(3, &["three"]), numbered(1, &["four"])].concat();
        assert_eq!(lines(&mut follow).await, expected);
        append(&path, "\n");
        assert_eq!(lines(&mut follow).await, numbered(2, &["five"]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_was_cut_short_is_read_from_its_beginning() {
        let (_folder, path) = start();
        write(&path, "one\ntwo\nunfinished").unwrap();
        let mut follow = Follow::new(&path, None, EVERY);
        assert_eq!(lines(&mut follow).await, numbered(1, &["one", "two"]));
        write(&path, "three\n").unwrap();
        assert_eq!(lines(&mut follow).await, numbered(1, &["three"]));
        write(&path, "").unwrap();
        assert_eq!(lines(&mut follow).await, vec![]);
        append(&path, "four\n");
        assert_eq!(lines(&mut follow).await, numbered(1, &["four"]));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_repeated_or_lost_by_a_restart() {
        let (folder, path) = start();
        let long = "x".repeat(3000);
        let all: Vec<String> =
            (0..40).map(|at| format!("{at}{}", if at == 7 { &long } else { "" })).collect();
        write(&path, "").unwrap();
        let mut found = Vec::new();
        let mut bookmark = None;
        let mut current = path.clone();
        for (at, line) in all.iter().enumerate() {
            append(&current, line);
            // Readers stop in the middle of lines.
            let mut follow = Follow::new(&path, bookmark.as_ref(), EVERY);
            while let Ok(line) = tokio::time::timeout(5 * EVERY, follow.next()).await {
                found.push(String::from_utf8(line.text.unwrap()).unwrap());
                bookmark = follow.bookmark();
                if at % 3 == 0 {
                    break;
                }
            }
            append(&current, "\n");
            if at % 10 == 9 {
                // Away while the file is replaced.
                current = path.clone();
                rename(&path, folder.path().join(format!("log.{at}"))).unwrap();
                write(&path, "").unwrap();
            }
        }
        let mut follow = Follow::new(&path, bookmark.as_ref(), EVERY);
        found.extend(lines(&mut follow).await.into_iter().map(|(_, line)| line));
        assert_eq!(found, all);
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_was_out_of_reach_is_not_read_again() {
        let (folder, path) = start();
        write(&path, "one\ntwo\n").unwrap();
        let mut follow = Follow::new(&path, None, EVERY);
        assert_eq!(lines(&mut follow).await.len(), 2);
        let bookmark = follow.bookmark().unwrap();
        // As if its disk had not been there.
        let elsewhere = TempDir::new_in(folder.path()).unwrap();
        let hidden = elsewhere.path().join("log");
        rename(&path, &hidden).unwrap();
        let mut follow = Follow::new(&path, Some(&bookmark), EVERY);
        assert_eq!(lines(&mut follow).await, vec![]);
        assert_eq!(follow.bookmark(), Some(bookmark));
        append(&hidden, "three\n");
        rename(&hidden, &path).unwrap();
        assert_eq!(lines(&mut follow).await, numbered(3, &["three"]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_only_looks_like_the_old_one_is_read_from_its_beginning() {
        let (folder, path) = start();
        write(&path, "one\ntwo\n").unwrap();
        let mut follow = Follow::new(&path, None, EVERY);
        lines(&mut follow).await;
        let bookmark = follow.bookmark().unwrap();
        // The same file to the system, with other lines.
        write(&path, "six\nten\nsix\n").unwrap();
        let mut follow = Follow::new(&path, Some(&bookmark), EVERY);
        assert_eq!(lines(&mut follow).await, numbered(1, &["six", "ten", "six"]));
        // Gone for good.
        std::fs::remove_file(&path).unwrap();
        write(folder.path().join("other"), "one\ntwo\nthree\n").unwrap();
        write(&path, "new\n").unwrap();
        let mut follow = Follow::new(&path, Some(&bookmark), EVERY);
        assert_eq!(lines(&mut follow).await, numbered(1, &["new"]));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_no_file_is_waited_for() {
        let (_folder, path) = start();
        std::fs::create_dir(&path).unwrap();
        let mut follow = Follow::new(&path, None, EVERY);
        assert_eq!(lines(&mut follow).await, vec![]);
        assert!(follow.trouble.as_ref().unwrap().contains("not a file"));
        std::fs::remove_dir(&path).unwrap();
        write(&path, "one\n").unwrap();
        assert_eq!(lines(&mut follow).await, numbered(1, &["one"]));
        assert_eq!(follow.trouble, None);
    }
}
