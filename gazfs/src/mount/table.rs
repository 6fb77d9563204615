//! The kernel's table of mounts.
//!
//! Pure but for reading it. Nothing here touches a mount point: that of a dead mount gives errors,
//! and that of a stuck one does not answer.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountEntry {
    /// Where it is mounted.
    pub point: PathBuf,
    /// Type of the file system.
    pub kind: String,
    /// What is mounted, as the file system calls it.
    pub source: String,
    /// Number of its device, as `major:minor`.
    pub device: String,
}

impl MountEntry {
    /// Says whether it is one of ours. Only a helper of FUSE adds a subtype to the type.
    pub fn is_ours(&self) -> bool {
        matches!(&*self.kind, "fuse" | "fuse.gazfs") && self.source.starts_with(SOURCE_PREFIX)
    }

    /// Returns the process that serves the mount, if it is one of ours.
    pub fn daemon(&self) -> Option<u32> {
        let source = self
            .is_ours()
            .then(|| self.source.strip_prefix(SOURCE_PREFIX))?;
        source?.parse().ok()
    }
}

/// Returns what our mounts are called: it tells which process serves them.
pub fn source(pid: u32) -> String {
    format!("{SOURCE_PREFIX}{pid}")
}

/// Reads the table of this process.
pub fn read() -> io::Result<Vec<MountEntry>> {
    fs::read("/proc/self/mountinfo").map(|text| parse(&text))
}

/// Returns the mount that is on top at exactly this path.
pub fn at<'a>(table: &'a [MountEntry], point: &Path) -> Option<&'a MountEntry> {
    table.iter().rev().find(|entry| entry.point == point)
}

fn parse(text: &[u8]) -> Vec<MountEntry> {
    text.split(|byte| *byte == b'\n')
        .filter_map(parse_line)
        .collect()
}

/// `36 35 98:0 /root /point rw,noatime shared:1 - kind source rw`, with any number of fields
/// before the dash.
fn parse_line(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = fields.nth(2)?;
    let point = fields.nth(1)?;
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let kind = rest.next()?;
    let source = rest.next()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(&unescape(bytes)).into_owned();
    Some(MountEntry {
        point: PathBuf::from(OsString::from_vec(unescape(point))),
        kind: text(kind),
        source: text(source),
        device: text(device),
    })
}

/// Space, tab, newline and backslash are written as three octal digits.
fn unescape(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let code = digits.and_then(|digits| {
            let text = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(text, 8).ok()
        });
        if let Some(code) = code {
            out.push(code);
            rest = &after[3..];
        } else {
            out.push(*first);
            rest = after;
        }
    }
    out
}

const SOURCE_PREFIX: &str = "gazfs:";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_table_are_understood() {
        let text = b"22 28 0:21 / /sys rw,nosuid shared:7 - sysfs sysfs rw\n\
            99 28 0:55 / /mnt/my\\040journals rw - fuse.gazfs gazfs:4711 rw,user_id=0\n\
            98 28 0:54 / /x rw shared:1 master:2 - fuse.other gazfs:1 rw\nnonsense\n";
        let table = parse(text);
        assert_eq!(table.len(), 3);
        assert_eq!(table[0].daemon(), None);
        assert_eq!(table[1].point, Path::new("/mnt/my journals"));
        assert_eq!(table[1].daemon(), Some(4711));
        assert_eq!(table[1].device, "0:55");
        assert_eq!(table[2].daemon(), None);
        assert_eq!(at(&table, Path::new("/mnt/my journals")), Some(&table[1]));
        assert_eq!(at(&table, Path::new("/mnt")), None);
    }
}
