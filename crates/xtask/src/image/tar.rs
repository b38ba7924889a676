//! Tar archives in the format of POSIX.1-1988 (ustar), with no content that depends on the machine.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use anyhow::{Context, Result, ensure};

/// Block size of a tar archive in bytes: headers and contents fill complete blocks.
const BLOCK: usize = 512;
/// Longest accepted path of a file in bytes; the tar format would split a longer path in two.
const LONGEST_PATH: usize = 100;
/// Largest size of a file in a tar archive in bytes: the header has eleven octal digits for the size.
const LARGEST_FILE: usize = 0o77_777_777_777;

/// A file of the archive.
pub(super) struct Entry<'a> {
    /// Path of the file in the tar archive, relative to the archive's root.
    pub(super) path: &'a str,
    /// Permission bits of the file.
    pub(super) mode: u32,
    /// Content of the file.
    pub(super) content: &'a [u8],
}

/// Writes a tar archive of files and the folders that contain the files; entries are sorted by the bytes of their paths, and have the owner 0 and the
/// modification time 1970-01-01.
pub(super) fn write<'a>(out: &mut impl Write, entries: impl IntoIterator<Item = Entry<'a>>) -> Result<()> {
    let mut files = BTreeMap::new();
    let mut folders = BTreeSet::new();
    for entry in entries {
        for (at, _) in entry.path.match_indices('/') {
            folders.insert(&entry.path[..=at]);
        }
        let path = entry.path;
        ensure!(files.insert(path, entry).is_none(), "{path} is there twice");
    }
    // The path of a folder in the tar archive ends with a slash, so that the folder is sorted before its files.
    let mut all: Vec<(&str, Option<&Entry<'_>>)> = files.iter().map(|(path, entry)| (*path, Some(entry))).collect();
    all.extend(folders.into_iter().map(|path| (path, None)));
    all.sort_unstable_by_key(|(path, _)| *path);
    for (path, entry) in all {
        let Some(entry) = entry else {
            out.write_all(&header(path, 0o755, 0, b'5')?)?;
            continue;
        };
        out.write_all(&header(path, entry.mode, entry.content.len(), b'0')?)?;
        out.write_all(entry.content)?;
        out.write_all(&[0; BLOCK][..entry.content.len().next_multiple_of(BLOCK) - entry.content.len()])?;
    }
    out.write_all(&[0; 2 * BLOCK]).context("writing the end of the archive")
}

fn header(path: &str, mode: u32, size: usize, kind: u8) -> Result<[u8; BLOCK]> {
    ensure!(path.len() <= LONGEST_PATH, "{path} has {} bytes, and {LONGEST_PATH} are allowed", path.len());
    ensure!(size <= LARGEST_FILE, "{path} is too large for an archive: {size} bytes");
    let mut header = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, path.as_bytes());
    put(100, format!("{mode:07o}").as_bytes());
    // Ids of user and group.
    put(108, b"0000000");
    put(116, b"0000000");
    put(124, format!("{size:011o}").as_bytes());
    // The modification time.
    put(136, b"00000000000");
    // The checksum of a tar header is computed while the field of the checksum has spaces.
    put(148, b"        ");
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    // The fields of the device numbers in a tar header, which are zero for files.
    put(329, b"0000000");
    put(337, b"0000000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file<'a>(path: &'a str, content: &'a [u8]) -> Entry<'a> {
        Entry { path, mode: 0o644, content }
    }

    fn written(entries: Vec<Entry<'_>>) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut bytes, entries).unwrap();
        bytes
    }

    /// The paths in the headers of a tar archive.
    fn paths(archive: &[u8]) -> Vec<String> {
        let mut paths = Vec::new();
        let mut rest = archive;
        while rest.first().is_some_and(|byte| *byte != 0) {
            paths.push(String::from_utf8_lossy(&rest[..100]).trim_end_matches('\0').to_owned());
            let size = std::str::from_utf8(&rest[124..135]).unwrap();
            let size = usize::from_str_radix(size, 8).unwrap();
            rest = &rest[BLOCK + size.next_multiple_of(BLOCK)..];
        }
        assert_eq!(rest, [0; 2 * BLOCK], "an archive ends with two empty blocks");
        paths
    }

    #[test]
    fn tar_archive_is_the_same_for_any_order_of_entries() {
        let [a, b, c] = [file("etc/a", b"1"), file("etc/ssl/b", &[2; 513]), file("etc.d", b"")];
        let bytes = written(vec![c, b, a]);
        assert_eq!(paths(&bytes), ["etc.d", "etc/", "etc/a", "etc/ssl/", "etc/ssl/b"]);
        let again = written(vec![file("etc/a", b"1"), file("etc.d", b""), file("etc/ssl/b", &[2; 513])]);
        assert!(bytes == again);
    }

    /// The expected bytes are those that `tar --format=ustar --owner=0 --group=0 --numeric-owner --mtime=@0` of GNU tar writes.
    #[test]
    fn tar_header_is_that_of_gnu_tar() {
        let mut wanted = [0_u8; BLOCK];
        for (at, text) in [
            (0, "LICENSE"),
            (100, "0000644"),
            (108, "0000000"),
            (116, "0000000"),
            (124, "00000000005"),
            (136, "00000000000"),
            (148, "010205\0 "),
            (156, "0"),
            (257, "ustar\x0000"),
            (329, "0000000"),
            (337, "0000000"),
        ] {
            wanted[at..at + text.len()].copy_from_slice(text.as_bytes());
        }
        let found = header("LICENSE", 0o644, 5, b'0').unwrap();
        assert!(found == wanted, "{}", String::from_utf8_lossy(&found));
    }

    #[test]
    fn tar_entry_that_the_format_cannot_hold_is_refused() {
        assert!(write(&mut Vec::new(), vec![file("a", b"1"), file("a", b"2")]).is_err(), "a path twice");
        assert!(header(&"p".repeat(101), 0o644, 0, b'0').is_err(), "a long path");
        assert!(header("a", 0o644, LARGEST_FILE + 1, b'0').is_err(), "a large file");
    }
}
