mod disk;
mod settled;
mod walk;
mod write;

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use tokio::io::AsyncReadExt;
use tokio::task;

use self::disk::OsDisk;
use self::write::Writer;
use crate::memory::clip_range;
use crate::{BoxRead, Content, Listed, Operation, Store, StoreError, StoreErrorKind, key};

/// Keeps objects as files below a folder.
///
/// - A put writes `.partial-*` beside the object, syncs it, renames it, and syncs the folder and each parent
///   whose entries may not be on the disk yet. A crash leaves the object whole or absent; after `Ok` a loss
///   of power takes nothing.
/// - What [`Store::exists`] and [`Store::list`] show is synced first, so that a caller may drop its own copy,
///   also if the name was left behind by a process that died before its last sync.
/// - The folder must exist: it is never made, so that an unmounted disk is not taken for an empty store.
#[derive(Debug)]
pub struct FileStore {
    /// Path of the store below the root, as in its URL: starts and ends with a slash.
    url_path: String,
    base: PathBuf,
    writer: Arc<Writer>,
}

impl FileStore {
    /// Opens the store of `url`, whose path is `url_path`, below the folder `root`.
    pub async fn open(url: &str, root: &Path, url_path: &str) -> Result<Self, StoreError> {
        let relative = key::folders("open", url_path.trim_start_matches('/'))?.join("/");
        let base = root.join(&relative);
        match tokio::fs::metadata(&base).await {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => {
                return Err(cannot_open(
                    url,
                    format!("{} is no directory", base.display()),
                ));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(cannot_open(
                    url,
                    format!("no such directory {}", base.display()),
                ));
            }
            Err(error) => {
                let object = format!("store {url}, which is {}", base.display());
                return Err(StoreError::from_io("open", object, &error));
            }
        }
        let url_path = match relative.as_str() {
            "" => "/".to_owned(),
            relative => format!("/{relative}/"),
        };
        Ok(Self {
            url_path,
            writer: Arc::new(Writer::new(Arc::new(OsDisk), base.clone())),
            base,
        })
    }

    fn file(&self, operation: &'static str, path: &str) -> Result<PathBuf, StoreError> {
        let parts = key::parts(operation, path)?;
        if parts
            .last()
            .is_some_and(|name| name.starts_with(PARTIAL_PREFIX))
        {
            let cause =
                format!("names that start with {PARTIAL_PREFIX} are those of unfinished files");
            return Err(StoreError::new(
                StoreErrorKind::Invalid,
                operation,
                path,
                cause,
            ));
        }
        Ok(self.base.join(parts.join("/")))
    }

    /// Opens a file, and returns its length too.
    async fn open_file(&self, path: &str) -> Result<(File, u64), StoreError> {
        let file = self.file("get", path)?;
        blocking("get", &file, |file| {
            let opened = match File::open(file) {
                // A file on the way to it: in other stores that is nothing special.
                Err(error) if is_absent(&error) => return Err(no_such_object()),
                opened => opened?,
            };
            let metadata = opened.metadata()?;
            if !metadata.is_file() {
                return Err(no_such_object());
            }
            Ok((opened, metadata.len()))
        })
        .await
    }
}

#[async_trait]
impl Store for FileStore {
    fn provider(&self) -> &'static str {
        "file"
    }

    async fn exists(&self, path: &str) -> Result<bool, StoreError> {
        let file = self.file("exists", path)?;
        let writer = Arc::clone(&self.writer);
        blocking("exists", &file, move |file| {
            let opened = match File::open(file) {
                Ok(opened) => opened,
                Err(error) if is_absent(&error) => return Ok(false),
                Err(error) => return Err(error),
            };
            if !opened.metadata()?.is_file() {
                return Ok(false);
            }
            // Whoever put it here may not have synced it.
            opened.sync_all()?;
            writer.settle_parents(file)?;
            Ok(true)
        })
        .await
    }

    async fn get(&self, path: &str) -> Result<BoxRead, StoreError> {
        let (file, _) = self.open_file(path).await?;
        Ok(Box::new(tokio::fs::File::from_std(file)))
    }

    async fn get_range(&self, path: &str, begin: u64, end: u64) -> Result<BoxRead, StoreError> {
        let (mut file, length) = self.open_file(path).await?;
        let (begin, end) = clip_range(path, begin, end, length)?;
        file.seek(SeekFrom::Start(begin))
            .map_err(|error| StoreError::from_io("get", path, &error))?;
        Ok(Box::new(tokio::fs::File::from_std(file).take(end - begin)))
    }

    async fn put(
        &self,
        path: &str,
        content: Arc<dyn Content>,
        _content_encoding: Option<&str>,
    ) -> Result<(), StoreError> {
        let file = self.file("put", path)?;
        let writer = Arc::clone(&self.writer);
        blocking("put", &file, move |file| writer.put(file, content.as_ref())).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Listed>, StoreError> {
        let (folders, name_prefix) = key::prefix(prefix)?;
        let top = self.base.join(folders.join("/"));
        let name_prefix = name_prefix.to_owned();
        let base = self.base.clone();
        let writer = Arc::clone(&self.writer);
        blocking("list", &top, move |top| {
            // Without its folder this is no store, rather than an empty one.
            std::fs::metadata(&base)?;
            let walked = walk::walk(top, &name_prefix)?;
            // What callers see must last, as they drop their own copies then.
            for folder in &walked.folders {
                writer.settle_parents(folder)?;
                writer.settle(folder)?;
            }
            walk::remove_stale(&walked.partials, SystemTime::now());
            Ok(walked.objects)
        })
        .await
    }

    async fn remove(&self, path: &str) -> Result<(), StoreError> {
        let file = self.file("remove", path)?;
        let writer = Arc::clone(&self.writer);
        blocking("remove", &file, move |file| writer.remove(file)).await
    }

    async fn sign_get(&self, path: &str, _ttl: Duration) -> Result<String, StoreError> {
        // Relative to the root, which readers know as a path of their own.
        let path = key::parts("signget", path)?.join("/");
        let path = format!("{}{path}", self.url_path);
        Ok(format!("file://{}", key::percent_encode(&path)))
    }

    fn is_auth_error(&self, error: &StoreError) -> bool {
        match error.kind() {
            StoreErrorKind::Denied => true,
            // Anything but a read finds nothing missing except the folder of the store.
            StoreErrorKind::NotFound => error.operation() != Operation::Get.name(),
            StoreErrorKind::Retry
            | StoreErrorKind::NoSpace
            | StoreErrorKind::Invalid
            | StoreErrorKind::Corrupt => false,
        }
    }
}

/// Does file I/O where it does not hold up the runtime. A cancelled call goes on to its end there.
async fn blocking<T: Send + 'static>(
    operation: &'static str,
    file: &Path,
    call: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
) -> Result<T, StoreError> {
    let owned = file.to_owned();
    match task::spawn_blocking(move || call(&owned)).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(StoreError::from_io(
            operation,
            file.display().to_string(),
            &error,
        )),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_cancelled) => Err(StoreError::new(
                StoreErrorKind::Retry,
                operation,
                file.display().to_string(),
                "the process is shutting down",
            )),
        },
    }
}

fn cannot_open(url: &str, cause: String) -> StoreError {
    StoreError::new(
        StoreErrorKind::Invalid,
        "open",
        format!("store {url}"),
        cause,
    )
    .with_next("create it or correct the spec")
}

fn no_such_object() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "no such object")
}

/// Tells that a file is not there, also if something on the way to it is a file.
fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// Start of the names of files that are being written.
const PARTIAL_PREFIX: &str = ".partial-";

#[cfg(test)]
mod tests;
