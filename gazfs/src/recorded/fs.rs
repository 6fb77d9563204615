//! The file system: what its operations share.

use std::{
    fmt, io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, OnceLock, atomic::AtomicBool},
};

use gazette_recoverylog_fsm::{AttributeChange, Fnode, Kind, Mutation, Place, Timestamp};
use rustix::{
    fs::{
        AtFlags, Mode, StatxFlags, Timespec, Timestamps, UTIME_OMIT, fstat, fstatvfs, statx,
        utimensat,
    },
    io::Errno,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};
use thiserror::Error;

use super::{
    attributes::{Attributes, Ino, MODE_BITS, Space, attributes, kind, mtime, space},
    backing::{Backing, path_of, stat_name},
    call::{Call, Patience},
    error::FsError,
    handle::{HandleId, Handles},
    log::{Ended, Hold, Log},
    names::Names,
    node::{Node, State, lock},
    sqlite,
};

/// A directory whose every mutation goes into a log.
#[derive(Debug)]
pub struct RecordedFs<L: Log> {
    pub(super) shared: Arc<Shared<L>>,
}

impl<L: Log> Clone for RecordedFs<L> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

#[derive(Debug)]
pub(super) struct Shared<L> {
    pub(super) log: L,
    pub(super) backing: Backing,
    names: Mutex<Names>,
    pub(super) handles: Handles,
    told: Told,
    /// The kernel may read and write backing files itself.
    pub(super) may_pass: AtomicBool,
}

/// Who is told when attributes changed in a way that the kernel does not expect.
#[derive(Default)]
struct Told(OnceLock<Box<dyn Fn(Ino) + Send + Sync>>);

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Told")
            .field(&self.0.get().is_some())
            .finish()
    }
}

/// Why the file system did not start.
#[derive(Debug, Error)]
#[error("open the backing files {}: {cause}; next: check that the directory exists, belongs to this \
         user, and that /proc is mounted", .tree.display())]
pub struct StartError {
    tree: PathBuf,
    cause: io::Error,
}

impl<L: Log> RecordedFs<L> {
    /// Serves a tree, which is as the log says.
    pub fn start(log: L, tree: &Path) -> Result<Self, StartError> {
        let fail = |cause| StartError {
            tree: tree.to_owned(),
            cause,
        };
        let (backing, root) = Backing::open(tree).map_err(fail)?;
        let node = Node::new(Ino::ROOT, Kind::Directory, Some(Fnode::ROOT));
        let names = Names::new(Arc::new(node), root, descriptors_max());
        Ok(Self {
            shared: Arc::new(Shared {
                log,
                backing,
                names: Mutex::new(names),
                handles: Handles::default(),
                told: Told::default(),
                may_pass: AtomicBool::new(false),
            }),
        })
    }

    /// Returns the log.
    pub fn log(&self) -> &L {
        &self.shared.log
    }

    /// Looks a name up. The kernel knows the file from now on, until it forgets it.
    pub fn look_up(&self, parent: Ino, name: &[u8]) -> Result<Attributes, FsError> {
        let mut names = self.names();
        let directory = names.descriptor(self.backing(), parent)?;
        let stat = stat_name(directory.as_fd(), name)?;
        let ino = self.backing().ino(stat.st_ino);
        if let Some(node) = names.look_up(ino, parent, name) {
            return Ok(attributes(ino, node.generation, &stat));
        }
        let above = names.node(parent)?;
        let place = Place {
            parent: above.fnode(),
            name,
        };
        let fnode = self.log().fnode_at(place);
        if fnode.is_none() && !sqlite::is_shared_memory_name(name) {
            tracing::error!(
                name = %name.escape_ascii(),
                "a file of the backing tree is not in the log"
            );
            return Err(Errno::IO.into());
        }
        let node = names.add(Node::new(ino, kind(&stat), fnode), parent, name);
        Ok(attributes(ino, node.generation, &stat))
    }

    /// Has somebody told, from now on, whenever a change of content changed other attributes too. He is
    /// told before the change is answered, and must not call back. Who came first stays.
    pub fn tell(&self, changed: impl Fn(Ino) + Send + Sync + 'static) {
        let _first = self.shared.told.0.set(Box::new(changed));
    }

    /// The kernel forgot a file so many times.
    pub fn forget(&self, ino: Ino, lookups: u64) {
        self.names().forget(ino, lookups);
    }

    /// Returns what tells all files that the kernel knows. It does not keep the file system.
    pub fn known(&self) -> impl Fn() -> Vec<Ino> + Send + use<L> {
        let shared = Arc::downgrade(&self.shared);
        move || {
            let shared = shared.upgrade();
            shared.map_or(Vec::new(), |shared| lock(&shared.names).inos())
        }
    }

    /// Returns what stat(2) tells.
    pub fn attributes(&self, ino: Ino, handle: Option<HandleId>) -> Result<Attributes, FsError> {
        if let Some(handle) = handle.and_then(|handle| self.shared.handles.get(handle).ok()) {
            return Ok(attributes(
                ino,
                handle.node.generation,
                &fstat(&handle.descriptor)?,
            ));
        }
        let mut names = self.names();
        let stat = names.stat(self.backing(), ino)?;
        let node = names.node(ino)?;
        Ok(attributes(ino, node.generation, &stat))
    }

    /// Returns when the backing file was made, if its file system knows that.
    pub fn born(&self, ino: Ino) -> Result<Option<Timestamp>, FsError> {
        let descriptor = self.names().descriptor(self.backing(), ino)?;
        let found = statx(&descriptor, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME)?;
        let is_known = found.stx_mask & StatxFlags::BTIME.bits() != 0;
        Ok(is_known.then_some(Timestamp {
            seconds: found.stx_btime.tv_sec,
            nanos: found.stx_btime.tv_nsec,
        }))
    }

    /// Returns what a symbolic link says.
    pub fn read_link(&self, ino: Ino) -> Result<Vec<u8>, FsError> {
        let node = self.node(ino)?;
        let link = self.names().descriptor(self.backing(), ino)?;
        let _state = node.lock();
        let before = fstat(&link)?;
        let target = rustix::fs::readlinkat(&link, "", Vec::new())?;
        // The log has the time of access that a program set. Of links there is no way to read one that leaves it.
        let after = fstat(&link)?;
        if (after.st_atime, after.st_atime_nsec) != (before.st_atime, before.st_atime_nsec) {
            let times = Timestamps {
                last_access: Timespec {
                    tv_sec: before.st_atime,
                    tv_nsec: before.st_atime_nsec.cast_signed(),
                },
                last_modification: Timespec {
                    tv_sec: 0,
                    tv_nsec: UTIME_OMIT,
                },
            };
            utimensat(&link, "", &times, AtFlags::EMPTY_PATH)?;
        }
        Ok(target.into_bytes())
    }

    /// Returns how much room there is: on the backing disk or in the log, whichever is less.
    pub fn space(&self) -> Result<Space, FsError> {
        let root = self.names().descriptor(self.backing(), Ino::ROOT)?;
        Ok(space(&fstatvfs(root)?, self.log().room()))
    }

    /// Calls back once all that happened so far is durable. Never waits.
    pub fn sync(&self, done: impl FnOnce(Result<(), FsError>) + Send + 'static) {
        if self.log().is_ended() {
            return done(Err(Errno::IO.into()));
        }
        self.log().barrier(Box::new(move |acknowledged| {
            done(acknowledged.map_err(|Ended| Errno::IO.into()));
        }));
    }

    pub(super) fn backing(&self) -> &Backing {
        &self.shared.backing
    }

    /// Locks the names. Before the lock of an inode, never after it.
    pub(super) fn names(&self) -> MutexGuard<'_, Names> {
        lock(&self.shared.names)
    }

    pub(super) fn node(&self, ino: Ino) -> Result<Arc<Node>, FsError> {
        Ok(self.names().node(ino)?)
    }

    pub(super) fn descriptor(&self, ino: Ino) -> Result<Arc<OwnedFd>, FsError> {
        Ok(self.names().descriptor(self.backing(), ino)?)
    }

    /// Reserves room for a mutation. No lock may be held, as this may wait.
    pub(super) fn reserve(
        &self,
        call: &Call<'_>,
        mutation: &Mutation<'_>,
    ) -> Result<L::Reservation, FsError> {
        let reserved = match call.patience {
            Patience::None => self.log().reserve(mutation),
            Patience::Until(give_up) => self.log().reserve_blocking(mutation, give_up),
        };
        if reserved.as_ref().is_err_and(|hold| *hold == Hold::TimedOut) {
            tracing::warn!("the log took nothing for too long, so a change was refused");
        }
        Ok(reserved?)
    }

    /// Reserves room for attributes.
    pub(super) fn reserve_attributes(
        &self,
        call: &Call<'_>,
        fnode: Fnode,
    ) -> Result<L::Reservation, FsError> {
        let change = AttributeChange {
            mode: Some(0),
            uid: Some(0),
            gid: Some(0),
            atime: Some(Timestamp::default()),
            mtime: Some(Timestamp::default()),
        };
        self.reserve(call, &Mutation::Attributes { fnode, change })
    }

    /// Records that a directory changed with its names. Its lock is held.
    pub(super) fn record_directory(
        &self,
        reservation: L::Reservation,
        node: &Node,
        descriptor: impl AsFd,
    ) -> rustix::io::Result<()> {
        let stat = fstat(descriptor)?;
        let change = AttributeChange {
            mtime: Some(mtime(&stat)),
            ..AttributeChange::default()
        };
        self.record_attributes(reservation, node, change);
        Ok(())
    }

    /// Records a mutation that does not change content.
    pub(super) fn record(&self, reservation: L::Reservation, mutation: &Mutation<'_>) {
        // Only changes of content make other files of files.
        let _same = self.log().record(reservation, mutation, &mut |_, _| 0);
    }

    /// Records a mutation that changes content. The lock of the inode is held.
    pub(super) fn record_content(
        &self,
        reservation: L::Reservation,
        mutation: &Mutation<'_>,
        node: &Node,
        file: &OwnedFd,
    ) {
        let mut read = |offset, into: &mut [u8]| read_all(file, offset, into);
        let recorded = self.log().record(reservation, mutation, &mut read);
        if let Some((_, fnode)) = recorded.replaced {
            node.replaced(fnode);
        }
    }

    pub(super) fn record_attributes(
        &self,
        reservation: L::Reservation,
        node: &Node,
        change: AttributeChange,
    ) {
        let fnode = node.fnode();
        self.record(reservation, &Mutation::Attributes { fnode, change });
    }

    /// Reserves room for what changing content takes away from a file.
    pub(super) fn reserve_losses(
        &self,
        call: &Call<'_>,
        node: &Node,
        file: &OwnedFd,
        keeps_privileges: bool,
    ) -> Result<Losses<L>, FsError> {
        let (is_privileged, has_capability) = {
            let mut state = node.lock();
            if !state.is_recorded {
                return Ok(Losses::default());
            }
            let is_privileged = !keeps_privileges && is_privileged(&mut state, file)?;
            (is_privileged, has_capability(&mut state, file))
        };
        Ok(Losses {
            mode: is_privileged
                .then(|| self.reserve_attributes(call, node.fnode()))
                .transpose()?,
            capability: has_capability
                .then(|| self.reserve(call, &capability_removed(node.fnode())))
                .transpose()?,
        })
    }

    /// Takes set-user-ID and set-group-ID bits away. The lock of the inode is held.
    pub(super) fn drop_privileges(
        &self,
        losses: &mut Losses<L>,
        node: &Node,
        state: &mut State,
        file: &OwnedFd,
    ) -> rustix::io::Result<()> {
        if !is_privileged(state, file)? {
            return Ok(());
        }
        let mode = without_privileges(fstat(file)?.st_mode) & MODE_BITS;
        rustix::fs::fchmod(file, Mode::from_raw_mode(mode))?;
        state.is_privileged = Some(false);
        if let Some(reservation) = losses.mode.take().filter(|_| state.is_recorded) {
            let change = AttributeChange {
                mode: Some(mode),
                ..AttributeChange::default()
            };
            self.record_attributes(reservation, node, change);
        }
        if let Some(told) = self.shared.told.0.get() {
            told(node.ino);
        }
        Ok(())
    }

    /// Records that the backing file system took a capability away, if it did. The lock of the inode
    /// is held.
    pub(super) fn record_lost_capability(
        &self,
        losses: Losses<L>,
        node: &Node,
        state: &mut State,
        file: &OwnedFd,
    ) {
        if let Some(reservation) = losses.capability
            && state.is_recorded
            && !has_capability(state, file)
        {
            self.record(reservation, &capability_removed(node.fnode()));
        }
    }
}

/// Room for what changing content takes away from a file.
#[derive(Debug)]
pub(super) struct Losses<L: Log> {
    mode: Option<L::Reservation>,
    capability: Option<L::Reservation>,
}

impl<L: Log> Losses<L> {
    /// Whether the log may have to say more than the change itself.
    pub(super) fn may_be_some(&self) -> bool {
        self.mode.is_some() || self.capability.is_some()
    }
}

impl<L: Log> Default for Losses<L> {
    fn default() -> Self {
        Self {
            mode: None,
            capability: None,
        }
    }
}

/// Reads what a log repeats. Returns how much there was.
fn read_all(file: &OwnedFd, offset: u64, into: &mut [u8]) -> usize {
    let mut done = 0;
    while done < into.len() {
        let at = offset + u64::try_from(done).unwrap_or(u64::MAX);
        match rustix::io::pread(file, &mut into[done..], at) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(Errno::INTR) => {}
            Err(error) => {
                tracing::error!(err = %error, "content that the log repeats cannot be read");
                break;
            }
        }
    }
    done
}

/// Says whether a file has bits that writing takes away.
fn is_privileged(state: &mut State, file: &OwnedFd) -> rustix::io::Result<bool> {
    if let Some(known) = state.is_privileged {
        return Ok(known);
    }
    let mode = fstat(file)?.st_mode;
    let is_privileged = without_privileges(mode) != mode;
    state.is_privileged = Some(is_privileged);
    Ok(is_privileged)
}

/// Says whether a file has `security.capability`.
fn has_capability(state: &mut State, file: &OwnedFd) -> bool {
    if state.may_have_capability {
        state.may_have_capability = rustix::fs::getxattr_query(path_of(file), CAPABILITY).is_ok();
    }
    state.may_have_capability
}

fn capability_removed(fnode: Fnode) -> Mutation<'static> {
    Mutation::RemoveXattr {
        fnode,
        name: CAPABILITY.as_bytes(),
    }
}

/// Returns a mode without the bits that give rights to who runs the file. Set-group-ID without
/// execution by the group means something else.
pub(super) fn without_privileges(mode: u32) -> u32 {
    let mode = mode & !0o4000;
    if mode & 0o2010 == 0o2010 {
        mode & !0o2000
    } else {
        mode
    }
}

/// Checks a name that comes from the kernel.
pub(super) fn check_name(name: &[u8]) -> Result<(), FsError> {
    if name.len() > NAME_BYTES_MAX {
        return Err(Errno::NAMETOOLONG.into());
    }
    Ok(())
}

/// How many descriptors may be kept for names: half of what this process may have, after it asked
/// for as many as it can get.
fn descriptors_max() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let now = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    let half = now.map_or(DESCRIPTORS_MAX, |now| now / 2);
    usize::try_from(half.min(DESCRIPTORS_MAX)).unwrap_or(1)
}

const CAPABILITY: &str = "security.capability";

const DESCRIPTORS_MAX: u64 = 8192;

pub(super) const NAME_BYTES_MAX: usize = 255;
