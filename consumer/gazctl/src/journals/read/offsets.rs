//! A file of offsets to go on from.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow};

/// How far each journal was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Offsets(BTreeMap<String, i64>);

impl Offsets {
    /// Reads a file that [`store`](Self::store) wrote, or somebody by hand.
    pub(super) fn load(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let text = fs::read_to_string(path).with_context(|| format!("read offsets {shown}"))?;
        let offsets: BTreeMap<String, i64> = serde_json::from_str(&text).map_err(|error| {
            anyhow!("read offsets {shown}: {error}; next: write {{\"journal\": offset, ...}}")
        })?;
        match offsets.iter().find(|(_, offset)| **offset < 0) {
            Some((journal, offset)) => Err(anyhow!(
                "read offsets {shown}: {journal} has offset {offset}; next: write 0 or more"
            )),
            None => Ok(Self(offsets)),
        }
    }

    /// Writes the file whole or not at all. The one that `is_input` is kept beside it.
    pub(super) fn store(&self, path: &Path, is_input: bool) -> anyhow::Result<()> {
        let shown = path.display();
        let temporary = with_suffix(path, ".temp");
        let write = || {
            let mut file = File::create(&temporary)?;
            serde_json::to_writer(&mut file, &self.0)?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            if is_input {
                fs::rename(path, with_suffix(path, ".previous"))?;
            }
            fs::rename(&temporary, path)
        };
        write().with_context(|| format!("write offsets {shown}"))
    }

    pub(super) fn get(&self, journal: &str) -> Option<i64> {
        self.0.get(journal).copied()
    }

    pub(super) fn set(&mut self, journal: &str, offset: i64) {
        if let Some(known) = self.0.get_mut(journal) {
            *known = offset;
        } else {
            self.0.insert(journal.to_owned(), offset);
        }
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests;
