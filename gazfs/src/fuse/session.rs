//! A mount that is served: what the kernel and this side agree on, and the way requests come.

use std::{
    io,
    os::fd::OwnedFd,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{Builder, JoinHandle},
};

use rustix::io::Errno;

use super::{
    BACKGROUND_MAX, WRITE_BYTES_MAX,
    device::{self, Device, Notifier},
    filesystem::Filesystem,
    rings::{self, Prepared, Running},
    transport::{Chosen, Transport, Way},
    wire::{self, Capabilities, Init, Offer, Operation},
};

/// A mount that is served by threads of its own.
#[derive(Debug)]
pub struct Session {
    device: Arc<Device>,
    chosen: Chosen,
    reader: JoinHandle<()>,
    rings: Option<Running>,
    ended: Receiver<io::Result<()>>,
}

/// Mounts, and takes a mount away again that does not work.
pub trait Mounts {
    /// Mounts, and returns the device that it is mounted by.
    fn mount(&self) -> io::Result<OwnedFd>;

    /// Unmounts what was mounted last, if it is.
    fn unmount(&self);
}

impl Session {
    /// Mounts a file system and serves it. If the kernel says that it has rings, and then does not take
    /// them, it is mounted anew without; if nothing else was asked for, that is
    /// [`io::ErrorKind::Unsupported`].
    pub fn start<F: Filesystem>(
        fs: F,
        transport: Transport,
        mounts: &impl Mounts,
    ) -> io::Result<Self> {
        Self::start_with(fs, transport, mounts, PAYLOAD_BYTES)
    }

    /// The same, with rings for so much beside headers: the kernel does not take them if that is less
    /// than what was agreed on.
    pub(crate) fn start_with<F: Filesystem>(
        fs: F,
        transport: Transport,
        mounts: &impl Mounts,
        payload_bytes: usize,
    ) -> io::Result<Self> {
        let started = Self::try_start(fs, transport, mounts, payload_bytes);
        if started.is_err() {
            mounts.unmount();
        }
        started
    }

    fn try_start<F: Filesystem>(
        fs: F,
        transport: Transport,
        mounts: &impl Mounts,
        payload_bytes: usize,
    ) -> io::Result<Self> {
        let fs = Arc::new(fs);
        let prepared = transport.wants_rings().and_then(|()| {
            rings::prepare::<F>(payload_bytes).map_err(|error| format!("no rings: {error}"))
        });
        let why = match prepared {
            Err(why) => why,
            Ok(prepared) => match Self::try_rings(&fs, prepared, mounts)? {
                Tried::Served(session) => return Ok(session),
                Tried::NotOffered(device) if transport == Transport::Auto => {
                    let chosen = Chosen::classic(NOT_OFFERED.to_owned());
                    return Self::serve(device, fs, None, chosen, channel());
                }
                Tried::NotOffered(_) => NOT_OFFERED.to_owned(),
                Tried::Refused(error) => {
                    mounts.unmount();
                    format!("the kernel does not take the rings: {error}")
                }
            },
        };
        if transport == Transport::IoUring {
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let device = Device::new(mounts.mount()?);
        shake_hands(&device, &*fs, false)?;
        Self::serve(device, fs, None, Chosen::classic(why), channel())
    }

    fn try_rings<F: Filesystem>(
        fs: &Arc<F>,
        prepared: Prepared<F>,
        mounts: &impl Mounts,
    ) -> io::Result<Tried> {
        let device = Device::new(mounts.mount()?);
        let agreed = shake_hands(&device, &**fs, true)?;
        if !agreed.has(Capabilities::IO_URING) {
            return Ok(Tried::NotOffered(device));
        }
        let (end, ended) = channel();
        // Until the kernel has all rings, it holds back every request but the first.
        match prepared.start(&device, fs, &end) {
            Ok(rings) => {
                let chosen = Chosen {
                    way: Way::IoUring,
                    why: "the kernel offers it".to_owned(),
                };
                let served = Self::serve(device, Arc::clone(fs), Some(rings), chosen, (end, ended));
                Ok(Tried::Served(served?))
            }
            // The threads of rings are gone, so nobody has the device any more, and the kernel gives
            // the connection up.
            Err(error) => Ok(Tried::Refused(error)),
        }
    }

    fn serve<F: Filesystem>(
        device: Arc<Device>,
        fs: Arc<F>,
        rings: Option<Running>,
        chosen: Chosen,
        (end, ended): (Sender<io::Result<()>>, Receiver<io::Result<()>>),
    ) -> io::Result<Self> {
        let served = Arc::clone(&device);
        let read = move || {
            let mut buffer = vec![0; REQUEST_BYTES_MAX];
            let result = device::serve(&served, &*fs, &mut buffer);
            // Nobody may be waiting any more.
            let _nobody = end.send(result);
        };
        let reader = Builder::new().name("fuse".to_owned()).spawn(read)?;
        Ok(Self {
            device,
            chosen,
            reader,
            rings,
            ended,
        })
    }

    /// The way by which requests come, and why it is not another.
    pub fn chosen(&self) -> &Chosen {
        &self.chosen
    }

    /// Tells the kernel what it must not go on to believe.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(&self.device)
    }

    /// Waits until the mount ended, or cannot be served any more.
    pub fn wait(&self) -> io::Result<()> {
        let gone = |_| io::Error::other("the reader of requests panicked");
        self.ended.recv().map_err(gone)?
    }

    /// Ends all threads of a mount that has ended.
    pub fn end(self) {
        if let Some(rings) = self.rings {
            rings.end();
        }
        if self.reader.join().is_err() {
            tracing::error!("the reader of requests panicked");
        }
    }
}

/// How it went to mount with rings.
enum Tried {
    /// It is mounted, and served.
    Served(Session),
    /// The kernel has none to offer. It is mounted, and not served yet.
    NotOffered(Arc<Device>),
    /// The kernel offers them, and does not take them. The mount does not work.
    Refused(io::Error),
}

/// Waits for the first request, and agrees on what is used.
fn shake_hands<F: Filesystem>(
    device: &Device,
    fs: &F,
    has_rings: bool,
) -> io::Result<Capabilities> {
    let mut buffer = vec![0; REQUEST_BYTES_MAX];
    loop {
        let ended = || io::Error::other("the mount ended before it began");
        let request = device.read(&mut buffer)?.ok_or_else(ended)?;
        let (header, arguments, payload) = wire::split(request).map_err(io::Error::other)?;
        let operation = Operation::decode(&header, arguments, payload).map_err(io::Error::other)?;
        if operation != Operation::Init {
            device.answer(header.unique, Err(Errno::IO));
            continue;
        }
        let offer = Offer::decode(payload).map_err(io::Error::other)?;
        if !offer.is_understood() {
            device.answer(header.unique, Err(Errno::PROTO));
            let (major, minor) = (offer.major, offer.minor);
            let old =
                format!("the kernel speaks FUSE {major}.{minor}, which is too old: Linux 5.4");
            return Err(io::Error::other(old));
        }
        let mut wanted = fs.init(offer.capabilities);
        if has_rings {
            wanted = wanted.and(Capabilities::IO_URING);
        }
        let init = Init {
            wanted,
            write_bytes_max: WRITE_BYTES_MAX,
            background_max: BACKGROUND_MAX,
        };
        let page_bytes = u32::try_from(rustix::param::page_size()).unwrap_or(4096);
        device.answer(header.unique, Ok(init.answer(&offer, page_bytes).bytes()));
        return Ok(init.agreed(&offer));
    }
}

const NOT_OFFERED: &str = "the kernel does not offer io_uring for this mount";

/// The most that a write brings or a read takes.
const PAYLOAD_BYTES: usize = WRITE_BYTES_MAX as usize;

/// A write of the most bytes, with what comes before them.
const REQUEST_BYTES_MAX: usize = PAYLOAD_BYTES + 4096;
