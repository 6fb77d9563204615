//! What goes wrong, and when.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use gazette_protocol::Status;
use tonic::Code;

use super::FakeBroker;

/// An RPC of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    /// Lists and watches.
    List,
    /// Changes of journals.
    Apply,
    /// Reads.
    Read,
    /// Appends.
    Append,
    /// Lists of fragments.
    ListFragments,
    /// Checks of a store.
    StoreHealth,
}

/// What goes wrong with one RPC.
#[derive(Debug, Clone)]
pub enum Fault {
    /// Nothing does. It takes a place in the script.
    None,
    /// It is answered with this status, and nothing is done.
    Status(Status),
    /// It fails with this code and text, before anything is done.
    Rpc(Code, &'static str),
    /// An append is done, but its answer is lost: the caller sees a failed connection.
    DropAnswer,
    /// It is done, after a while.
    Delay(Duration),
    /// It is never answered.
    Hang,
    /// A read breaks off with an error after so many messages.
    BreakAfter(usize),
    /// A read ends as if all was well after so many messages.
    EndAfter(usize),
}

impl Fault {
    /// The status that is answered instead of doing anything.
    pub(super) fn status(&self) -> Option<Status> {
        if let Self::Status(status) = self {
            Some(*status)
        } else {
            None
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Faults {
    scripts: Mutex<BTreeMap<Call, Script>>,
}

#[derive(Debug, Default)]
struct Script {
    calls: u64,
    next: std::collections::VecDeque<Fault>,
    every: Option<(u64, Fault)>,
}

impl FakeBroker {
    /// Sets what goes wrong with the next calls, one each, after those that are set already.
    pub fn inject(&self, call: Call, faults: impl IntoIterator<Item = Fault>) {
        let mut scripts = self
            .inner
            .faults
            .scripts
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        scripts.entry(call).or_default().next.extend(faults);
    }

    /// Sets what goes wrong with every `nth` call.
    pub fn inject_every(&self, call: Call, nth: u64, fault: Fault) {
        let mut scripts = self
            .inner
            .faults
            .scripts
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        scripts.entry(call).or_default().every = Some((nth.max(1), fault));
    }

    /// Lets nothing go wrong any more.
    pub fn heal(&self) {
        let mut scripts = self
            .inner
            .faults
            .scripts
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for script in scripts.values_mut() {
            script.next.clear();
            script.every = None;
        }
    }

    /// How often an RPC was called.
    pub fn calls(&self, call: Call) -> u64 {
        let scripts = self
            .inner
            .faults
            .scripts
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        scripts.get(&call).map_or(0, |script| script.calls)
    }

    /// Counts a call, and returns what goes wrong with it. Waits where that is what goes wrong.
    pub(super) async fn fault(&self, call: Call) -> Result<Fault, tonic::Status> {
        let fault = {
            let mut scripts = self
                .inner
                .faults
                .scripts
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let script = scripts.entry(call).or_default();
            script.calls += 1;
            match (script.next.pop_front(), &script.every) {
                (Some(fault), _) => fault,
                (None, Some((nth, fault))) if script.calls.is_multiple_of(*nth) => fault.clone(),
                (None, _) => Fault::None,
            }
        };
        match &fault {
            Fault::Rpc(code, text) => return Err(tonic::Status::new(*code, *text)),
            Fault::Delay(time) => tokio::time::sleep(*time).await,
            Fault::Hang => std::future::pending().await,
            Fault::None
            | Fault::Status(_)
            | Fault::DropAnswer
            | Fault::BreakAfter(_)
            | Fault::EndAfter(_) => {}
        }
        Ok(fault)
    }
}
