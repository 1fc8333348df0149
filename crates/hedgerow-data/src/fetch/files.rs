//! Files of a data set: those that are here are checked, the others come out of the archive.

use std::path::Path;

use super::checksums::{self, CHECKSUM_FILE, Checksums};
use super::{Checked, FetchError, Fetched, Options, Progress, download, unpack};
use crate::catalog::{Entry, SourceFile, packed_or_not};

/// Puts the files of a data set's source into their folder. Only files that are not there are
/// downloaded.
pub(super) fn fetch(
    entry: &Entry,
    options: &Options,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Vec<Fetched>, FetchError> {
    let source = &entry.source;
    if source.uci.is_none() {
        return Err(FetchError::Elsewhere(entry.name.clone(), source.advice(&entry.name)));
    }
    let folder = options.folder.join(&source.folder);
    let here = Checksums::read(&folder)?;
    let there = source.files.iter().map(|file| already_there(&folder, file, &here));
    let mut there: Vec<Option<Fetched>> = there.collect::<Result<_, _>>()?;
    let missing = source.files.iter().zip(&there).filter(|(_, there)| there.is_none());
    let missing: Vec<&SourceFile> = missing.map(|(file, _)| file).collect();
    if !missing.is_empty() {
        let mut downloaded = from_archive(entry, &missing, &folder, options, progress)?.into_iter();
        there
            .iter_mut()
            .filter(|there| there.is_none())
            .for_each(|place| *place = downloaded.next());
    }
    Ok(there.into_iter().flatten().collect())
}

/// Downloads the archive and takes these files out of it, in their order. Nothing appears before
/// everything is checked.
fn from_archive(
    entry: &Entry,
    files: &[&SourceFile],
    folder: &Path,
    options: &Options,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Vec<Fetched>, FetchError> {
    let unwritable = |path: &Path| {
        let path = path.to_owned();
        |cause| FetchError::Unwritable(path, cause)
    };
    std::fs::create_dir_all(folder).map_err(unwritable(folder))?;
    let url = format!("{}/{}", options.mirror.0, entry.source.archive);
    let mut partial = download::Partial::open(
        &folder.join(format!("{}.zip.partial", entry.source.folder)),
        &url,
    )?;
    let archive = match download::download(&mut partial, options, progress) {
        Err(error) if partial.is_empty() => {
            partial.remove()?;
            return Err(error);
        }
        downloaded => downloaded?,
    };
    let unpacked = match unpack::unpack(archive, &url, files, folder, progress) {
        // The archive is kept if only the disk is full.
        Err(error @ FetchError::Unwritable(..)) => return Err(error),
        Err(error) => {
            partial.remove()?;
            return Err(error);
        }
        Ok(unpacked) => unpacked,
    };
    let mut sums = Checksums::read(folder)?;
    let mut fetched = Vec::new();
    for (file, unpacked) in files.iter().zip(&unpacked) {
        let checked = match compare(file, &unpacked.sha256, &sums) {
            Ok(checked) => checked.unwrap_or(Checked::RecordedNow),
            Err((known, expected)) => {
                partial.remove()?;
                let record = folder.join(CHECKSUM_FILE);
                let (problem, advice) = match known {
                    Checked::Catalogue => ("has the wrong checksum", String::new()),
                    _ => (
                        "is not what it was at the first download,",
                        format!(
                            "; to take it all the same, remove its line from {}",
                            record.display()
                        ),
                    ),
                };
                let file = format!("{} from {url} {problem} and was thrown away", file.name);
                let found = unpacked.sha256.clone();
                return Err(FetchError::WrongChecksum { file, expected, found, advice });
            }
        };
        fetched.push(Fetched { path: folder.join(&file.name), downloaded: true, checked });
    }
    for (file, unpacked) in files.iter().zip(&unpacked) {
        sums.record(&file.name, &unpacked.sha256);
    }
    // First, so that a file that we put there is never without its line.
    sums.write(folder)?;
    for (unpacked, fetched) in unpacked.into_iter().zip(&fetched) {
        let persisted = unpacked.file.persist(&fetched.path);
        persisted.map_err(|error| unwritable(&fetched.path)(error.error))?;
    }
    partial.remove()?;
    Ok(fetched)
}

/// The file, if it is in the folder and is what it should be.
fn already_there(
    folder: &Path,
    file: &SourceFile,
    sums: &Checksums,
) -> Result<Option<Fetched>, FetchError> {
    let Some(path) = packed_or_not(folder, &file.name) else { return Ok(None) };
    let sum = checksums::sha256_of_file(&path)
        .map_err(|cause| FetchError::Unreadable(path.clone(), cause))?;
    let Some(found) = sum else {
        return Ok(Some(Fetched { path, downloaded: false, checked: Checked::Nothing }));
    };
    match compare(file, &found, sums) {
        Ok(checked) => {
            let checked = checked.unwrap_or(Checked::Nothing);
            Ok(Some(Fetched { path, downloaded: false, checked }))
        }
        Err((_, expected)) => {
            let file = format!("{} is not the file that it should be", path.display());
            let advice = "; remove it first".to_owned();
            Err(FetchError::WrongChecksum { file, expected, found, advice })
        }
    }
}

/// What a checksum was compared with, if anything is known; or what it should be, and by what.
fn compare(
    file: &SourceFile,
    found: &str,
    sums: &Checksums,
) -> Result<Option<Checked>, (Checked, String)> {
    let by_catalogue = file.sha256.as_deref().map(|sum| (Checked::Catalogue, sum));
    let known =
        by_catalogue.or_else(|| sums.find(&file.name).map(|sum| (Checked::FirstDownload, sum)));
    match known {
        None => Ok(None),
        Some((by, expected)) if expected == found => Ok(Some(by)),
        Some((by, expected)) => Err((by, expected.to_owned())),
    }
}
