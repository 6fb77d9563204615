//! The file system as it is and as it is on the disk, between the kernel's calls and the guard.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fuser::{Errno, FileType};

use super::luck::{Luck, WriteBack};
use super::model::{Ino, Model, ModelError};
use super::survivors::Survivors;

/// What the mounted file system and its guard share.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// How long a sync of a file takes.
    pub(super) sync_time: Duration,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) model: Model,
    write_back: Option<WriteBack>,
    /// What open folders list, so that names removed meanwhile shift nothing.
    pub(super) listings: BTreeMap<u64, Vec<(OsString, Ino, FileType)>>,
    pub(super) listings_opened: u64,
    /// Present once the power is gone.
    survivors: Option<Survivors>,
}

impl Shared {
    pub(super) fn new(model: Model, write_back: Option<WriteBack>, sync_time: Duration) -> Self {
        Self {
            sync_time,
            state: Mutex::new(State {
                model,
                write_back,
                listings: BTreeMap::new(),
                listings_opened: 0,
                survivors: None,
            }),
        }
    }

    /// Cuts the power, unless it is gone already. Returns the inodes that the kernel may know.
    pub(super) fn cut(&self, luck: &mut dyn Luck) -> Vec<Ino> {
        let mut state = self.locked();
        if state.survivors.is_some() {
            return vec![];
        }
        state.survivors = Some(state.model.survivors(luck));
        state.model.inodes().collect()
    }

    pub(super) fn survivors(&self) -> Option<Survivors> {
        self.locked().survivors.clone()
    }

    pub(super) fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks or changes the model, while there is power.
    pub(super) fn with<T>(
        &self,
        call: impl FnOnce(&mut Model) -> Result<T, ModelError>,
    ) -> Result<T, Errno> {
        self.with_state(|state| call(&mut state.model))
    }

    pub(super) fn with_state<T>(
        &self,
        call: impl FnOnce(&mut State) -> Result<T, ModelError>,
    ) -> Result<T, Errno> {
        let mut state = self.locked();
        if state.survivors.is_some() {
            return Err(Errno::EIO);
        }
        call(&mut state).map_err(errno)
    }

    /// Lets the system write something back that nobody asked for.
    pub(super) fn write_back(&self, ino: Ino) {
        let state = &mut *self.locked();
        let page = state.write_back.as_mut().and_then(WriteBack::decide);
        if let (Some(page), Ok(file)) = (page, state.model.file_mut(ino)) {
            file.write_back(page);
        }
    }
}

fn errno(error: ModelError) -> Errno {
    match error {
        ModelError::NotFound => Errno::ENOENT,
        ModelError::Exists => Errno::EEXIST,
        ModelError::NotFolder => Errno::ENOTDIR,
        ModelError::IsFolder => Errno::EISDIR,
        ModelError::NotEmpty => Errno::ENOTEMPTY,
        ModelError::Invalid => Errno::EINVAL,
    }
}
