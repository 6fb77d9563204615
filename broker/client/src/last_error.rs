//! A window on what a retrying operation fails with.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

/// Shows the error that an operation is retrying after, if it is.
///
/// A clone sees the same. It can be asked while the operation waits.
pub struct LastError<E> {
    slot: Arc<Mutex<Option<Arc<E>>>>,
}

impl<E> LastError<E> {
    pub(crate) fn new() -> Self {
        Self {
            slot: Arc::new(Mutex::new(None)),
        }
    }

    /// Returns the error of the latest attempt, or `None` if that succeeded.
    pub fn get(&self) -> Option<Arc<E>> {
        self.slot
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn set(&self, error: E) {
        *self.slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(error));
    }

    pub(crate) fn clear(&self) {
        *self.slot.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl<E> Clone for LastError<E> {
    fn clone(&self) -> Self {
        Self {
            slot: Arc::clone(&self.slot),
        }
    }
}

impl<E: fmt::Debug> fmt::Debug for LastError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LastError").field(&self.get()).finish()
    }
}
