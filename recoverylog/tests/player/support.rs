//! Journals to play, and directories to look at.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

use gazette_client::fake::FakeBroker;
use gazette_protocol::{LabelSet, labels};
use gazette_recoverylog::{
    Source,
    fsm::Mode,
    journals::content_type,
    player::{HintsChoice, RecoverError, RecoverOptions, Recovered, recover},
};

/// A broker with a log of this content.
pub(crate) fn broker_with(log: &str, mode: Mode, content: &[u8]) -> FakeBroker {
    let broker = FakeBroker::new();
    add_log(&broker, log, mode, content);
    broker
}

/// Adds a log of this content.
pub(crate) fn add_log(broker: &FakeBroker, log: &str, mode: Mode, content: &[u8]) {
    let mut spec = FakeBroker::spec(log);
    spec.labels = LabelSet::from_pairs([(labels::CONTENT_TYPE, content_type(mode))]);
    broker.upsert(spec);
    broker.append(log, content);
}

/// A folder whose sub-folder `to` does not exist.
pub(crate) struct Place {
    _folder: tempfile::TempDir,
    pub(crate) to: PathBuf,
}

pub(crate) fn place() -> Place {
    let folder = tempfile::tempdir().unwrap();
    Place {
        to: folder.path().join("to"),
        _folder: folder,
    }
}

impl Place {
    /// Everything beside the target, which should be nothing.
    pub(crate) fn leftovers(&self) -> Vec<PathBuf> {
        let parent = self.to.parent().unwrap();
        let entries = fs::read_dir(parent).unwrap();
        entries
            .map(|entry| entry.unwrap().path())
            .filter(|path| *path != self.to)
            .collect()
    }
}

pub(crate) fn options(log: &str, to: &Path) -> RecoverOptions {
    RecoverOptions {
        sync: false,
        ..RecoverOptions::new(log, to)
    }
}

pub(crate) async fn play(
    source: &Source,
    log: &str,
    to: &Path,
    hints: HintsChoice,
) -> Result<Recovered, RecoverError> {
    let options = RecoverOptions {
        hints,
        ..options(log, to)
    };
    recover(source, options).await
}

/// Content of a file unless it is large, its size, and the number of its inode.
pub(crate) type Found = (Option<Vec<u8>>, u64, u64);

/// Files below a directory, by their paths.
pub(crate) fn files(root: &Path) -> BTreeMap<Vec<u8>, Found> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            if metadata.is_dir() {
                waiting.push(path);
                continue;
            }
            let mut name = b"/".to_vec();
            name.extend_from_slice(path.strip_prefix(root).unwrap().as_os_str().as_bytes());
            let is_small = metadata.is_file() && metadata.len() < 1 << 30;
            let content = is_small.then(|| fs::read(&path).unwrap());
            found.insert(name, (content, metadata.len(), metadata.ino()));
        }
    }
    found
}
