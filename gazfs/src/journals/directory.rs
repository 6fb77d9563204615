//! Operations on names: looking up, listing, making and removing.

use std::{sync::Arc, time::Duration};

use gazette_client::ErrorKind;
use gazette_protocol::{ApplyRequest, Label, LabelSelector, LabelSet, Status, apply_request};

use super::{
    attributes::Attributes,
    caller::Caller,
    error::{Cause, FsError},
    fs::JournalFs,
    handle::HandleId,
    names,
    open::{OpenFlags, Opened},
    patience::Patience,
    tree::{Entry, Ino, Kind, TreeError},
};

impl JournalFs {
    /// Looks a name up among those that are known.
    pub fn try_lookup(&self, parent: Ino, name: &[u8]) -> Option<Result<Attributes, FsError>> {
        let component = match names::component(name) {
            Ok(component) => component,
            Err(Cause::NameTooLong { bytes, max }) => {
                let cause = Cause::NameTooLong { bytes, max };
                return Some(Err(FsError::new("look up", lossy(name), cause)));
            }
            // No entry has such a name.
            Err(_) => return Some(Err(FsError::new("look up", lossy(name), Cause::NotFound))),
        };
        let found = self.names().tree.lookup(parent, component);
        let (ino, _) = found?;
        let attributes = self.known_attributes(ino);
        Some(attributes.map_err(|cause| FsError::new("look up", component, cause)))
    }

    /// Looks a name up that is not known, as somebody may have made it a moment ago.
    pub async fn lookup(
        &self,
        caller: Caller,
        parent: Ino,
        name: &[u8],
    ) -> Result<Attributes, FsError> {
        let fail = |cause| FsError::new("look up", lossy(name), cause);
        if let Some(answer) = self.try_lookup(parent, name) {
            return answer;
        }
        let component = names::component(name).map_err(fail)?;
        let journal = self.names().tree.journal_name(parent, component);
        let journal = journal.ok_or(Cause::Stale).map_err(fail)?;
        if names::check_folder(&journal).is_err() && names::check_journal(&journal).is_err() {
            return Err(fail(Cause::NotFound));
        }
        let patience = self.patience(caller).at_most(NEWS_TIMEOUT);
        let listing = patience
            .wait(self.client().list(at_or_below(&journal)))
            .await;
        match listing {
            Ok(Ok(listing)) => {
                self.answered();
                self.learn(&listing);
            }
            Ok(Err(error)) => self.not_answered(&error.into()),
            Err(cause @ Cause::Interrupted { .. }) => return Err(fail(cause)),
            // What was known before still stands: the name is not there.
            Err(cause) => self.not_answered(&cause),
        }
        self.try_lookup(parent, name)
            .unwrap_or_else(|| Err(fail(Cause::NotFound)))
    }

    /// Opens a directory: what it holds is fixed until it is read from the start again.
    pub async fn open_directory(&self, caller: Caller, ino: Ino) -> Result<HandleId, FsError> {
        let patience = self.patience(caller).at_most(NEWS_TIMEOUT);
        // Without news, what is known is shown.
        let news = if self.is_away() {
            Ok(())
        } else {
            self.refresh_names(patience).await
        };
        let (path, entries) = {
            let names = self.names();
            let path = names.tree.path(ino).unwrap_or_default().to_owned();
            (path, names.tree.list(ino))
        };
        let fail = |cause| FsError::new("list", path, cause);
        match news {
            Err(cause @ Cause::Interrupted { .. }) => return Err(fail(cause)),
            Err(cause) => self.not_answered(&cause),
            Ok(()) => {}
        }
        let entries = entries.ok_or(Cause::Stale).map_err(fail)?;
        Ok(self.handles().open_directory(entries))
    }

    /// Returns what an open directory holds. At the start it is looked at anew.
    pub fn read_directory(
        &self,
        ino: Ino,
        handle: HandleId,
        is_start: bool,
    ) -> Result<Arc<Vec<Entry>>, FsError> {
        let fail = |cause| FsError::new("list", "", cause);
        if is_start {
            let entries = self
                .names()
                .tree
                .list(ino)
                .ok_or(Cause::Stale)
                .map_err(fail)?;
            return Ok(self.handles().reread_directory(handle, entries));
        }
        self.handles().directory(handle).map_err(fail)
    }

    /// Closes a directory.
    pub fn close_directory(&self, handle: HandleId) {
        self.handles().close_directory(handle);
    }

    /// Returns the directory above a node: itself for the top.
    pub fn parent(&self, ino: Ino) -> Ino {
        self.names().tree.parent(ino).unwrap_or(Ino::ROOT)
    }

    /// Makes a directory, which lasts in this mount until it is removed, or has journals.
    pub fn make_directory(&self, parent: Ino, name: &[u8]) -> Result<Attributes, FsError> {
        let made = || {
            let component = names::component(name)?;
            let names = &mut *self.names();
            let folder = names.tree.path(parent).ok_or(Cause::Stale)?;
            names::check_folder(&names::join(folder, component))?;
            Ok(names.tree.make_directory(parent, component)?)
        };
        made()
            .and_then(|ino| self.known_attributes(ino))
            .map_err(|cause| FsError::new("make directory", lossy(name), cause))
    }

    /// Removes an empty directory.
    pub fn remove_directory(&self, parent: Ino, name: &[u8]) -> Result<(), FsError> {
        let removed = || {
            let component = names::component(name)?;
            Ok(self.names().tree.remove_directory(parent, component)?)
        };
        removed().map_err(|cause| FsError::new("remove directory", lossy(name), cause))
    }

    /// Deletes a journal with its content, where that is allowed.
    pub async fn unlink(&self, caller: Caller, parent: Ino, name: &[u8]) -> Result<(), FsError> {
        let found = names::component(name).and_then(|component| {
            let names = self.names();
            match names.tree.lookup(parent, component) {
                Some((ino, Kind::Journal)) => names.inodes.get(&ino).cloned().ok_or(Cause::Stale),
                Some((_, Kind::Directory)) => Err(Cause::IsDirectory),
                None => Err(Cause::NotFound),
            }
        });
        let inode = found.map_err(|cause| FsError::new("delete", lossy(name), cause))?;
        let fail = |cause| FsError::new("delete", &*inode.name, cause);
        if !self.options().allow_delete {
            return Err(fail(Cause::DeleteNotAllowed));
        }
        let patience = self.patience(caller);
        // News of the deletion may come before its answer.
        self.names().tree.keep(parent);
        loop {
            self.relist(&inode, patience).await.map_err(fail)?;
            let change = apply_request::Change {
                expect_mod_revision: inode.listed().mod_revision,
                delete: inode.name.clone(),
                delete_fragments: true,
                ..apply_request::Change::default()
            };
            let request = ApplyRequest {
                changes: vec![change],
            };
            match patience
                .wait(self.client().apply(request))
                .await
                .map_err(fail)?
            {
                Ok(response) => {
                    let revision = response.header.etcd.revision;
                    self.names().tree.remove_deleted(&inode.name, revision);
                    self.gone(&inode);
                    return Ok(());
                }
                // Its spec was changed a moment ago, for example as it was suspended.
                Err(error) if error.kind() == ErrorKind::Fenced => {
                    patience
                        .wait(tokio::time::sleep(RETRY_INTERVAL))
                        .await
                        .map_err(fail)?;
                }
                Err(error) => return Err(fail(error.into())),
            }
        }
    }

    /// Refuses what would move or link a journal. Never as if it were on another device: then
    /// programs would copy, and delete.
    pub fn refuse_move(operation: &'static str, name: &[u8]) -> FsError {
        let cause = Cause::AppendOnly {
            what: "it cannot be moved or linked",
        };
        FsError::new(operation, lossy(name), cause)
    }

    /// Makes a journal and opens it. An existing one is just opened, unless the flags forbid it.
    pub async fn create(
        &self,
        caller: Caller,
        parent: Ino,
        name: &[u8],
        flags: OpenFlags,
    ) -> Result<(Attributes, Opened), FsError> {
        let fail = |cause| FsError::new("create", lossy(name), cause);
        let patience = self.patience(caller);
        let ino = self
            .make_journal(patience, parent, name, flags.is_exclusive)
            .await;
        let ino = ino.map_err(fail)?;
        let attributes = self.known_attributes(ino).map_err(fail)?;
        let opened = match self.try_open(ino, flags) {
            Some(opened) => opened?,
            None => self.open(caller, ino, flags).await?,
        };
        Ok((attributes, opened))
    }

    /// Makes a journal without opening it.
    pub async fn make_node(
        &self,
        caller: Caller,
        parent: Ino,
        name: &[u8],
    ) -> Result<Attributes, FsError> {
        let made = self
            .make_journal(self.patience(caller), parent, name, true)
            .await;
        made.and_then(|ino| self.known_attributes(ino))
            .map_err(|cause| FsError::new("create", lossy(name), cause))
    }

    async fn make_journal(
        &self,
        patience: Patience,
        parent: Ino,
        name: &[u8],
        is_exclusive: bool,
    ) -> Result<Ino, Cause> {
        self.check_not_ending()?;
        let component = names::component(name)?;
        let (journal, found) = {
            let names = self.names();
            let journal = names
                .tree
                .journal_name(parent, component)
                .ok_or(Cause::Stale)?;
            (journal, names.tree.lookup(parent, component))
        };
        match found {
            Some((_, Kind::Directory)) => return Err(Cause::IsDirectory),
            Some(_) if is_exclusive => return Err(Cause::Exists),
            Some((ino, Kind::Journal)) => return Ok(ino),
            None => names::check_journal(&journal)?,
        }
        let change = apply_request::Change {
            upsert: Some(self.options().template.spec_of(&journal)),
            ..apply_request::Change::default()
        };
        let request = ApplyRequest {
            changes: vec![change],
        };
        let applied = patience.wait(self.client().apply(request)).await?;
        match applied {
            Ok(_) => {}
            // Somebody else made it a moment ago.
            Err(error) if error.status() == Some(Status::EtcdTransactionFailed) => {
                if is_exclusive {
                    return Err(Cause::Exists);
                }
            }
            Err(error) => {
                let cause = Cause::from(error);
                self.not_answered(&cause);
                return Err(cause);
            }
        }
        self.answered();
        let listing = patience
            .wait(self.client().list(super::head::named(&journal)))
            .await??;
        self.learn(&listing);
        let ino = self.names().tree.journal(&journal).ok_or(Cause::NotFound)?;
        self.wait_until_served(patience, ino).await?;
        Ok(ino)
    }

    /// Waits until brokers serve a journal that was made a moment ago.
    async fn wait_until_served(&self, patience: Patience, ino: Ino) -> Result<(), Cause> {
        let inode = self.inode(ino)?;
        loop {
            match patience.wait(self.client().read_head(&inode.name)).await? {
                Ok(head) => {
                    inode.observe(head.write_head, std::time::SystemTime::now());
                    return Ok(());
                }
                Err(error) if matches!(error.kind(), ErrorKind::Retry | ErrorKind::NotFound) => {
                    patience.wait(tokio::time::sleep(RETRY_INTERVAL)).await?;
                }
                // A journal that is made write-only.
                Err(error) if error.kind() == ErrorKind::Denied => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl From<TreeError> for Cause {
    fn from(error: TreeError) -> Self {
        match error {
            TreeError::NotFound => Self::NotFound,
            TreeError::Exists => Self::Exists,
            TreeError::NotDirectory => Self::NotDirectory,
            TreeError::NotEmpty => Self::NotEmpty,
        }
    }
}

/// Selects the journal of this name, and all below it.
fn at_or_below(name: &str) -> LabelSelector {
    let label = |value: String, prefix| Label {
        name: "name".to_owned(),
        value,
        prefix,
    };
    LabelSelector {
        include: LabelSet {
            labels: vec![
                label(name.to_owned(), false),
                label(format!("{name}/"), true),
            ],
        },
        exclude: LabelSet::default(),
    }
}

fn lossy(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// How long a look at names waits for news. What is known still stands after that.
const NEWS_TIMEOUT: Duration = Duration::from_secs(1);

/// Between two looks at something that changes now.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);
