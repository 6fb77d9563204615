//! By which way requests come.

use std::{fmt, fs, str::FromStr};

use thiserror::Error;

/// Which way is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// The fastest that works.
    #[default]
    Auto,
    /// The device.
    Classic,
    /// Rings, or nothing.
    IoUring,
}

impl FromStr for Transport {
    type Err = ParseTransportError;

    fn from_str(text: &str) -> Result<Self, ParseTransportError> {
        match text {
            "auto" => Ok(Self::Auto),
            "classic" => Ok(Self::Classic),
            "io_uring" => Ok(Self::IoUring),
            _ => Err(ParseTransportError),
        }
    }
}

/// It is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("expected auto, classic or io_uring")]
pub struct ParseTransportError;

impl Transport {
    /// Says why rings are not to be tried.
    pub(super) fn wants_rings(self) -> Result<(), String> {
        match self {
            Self::Classic => Err("asked for".to_owned()),
            // Opening rings in vain takes longer.
            Self::Auto | Self::IoUring => obstacle().map_or(Ok(()), |why| Err(why.to_owned())),
        }
    }
}

/// By which way requests come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// By the device: one thread reads them.
    Classic,
    /// Through a ring of each processor.
    IoUring,
}

/// The way that was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// The way.
    pub way: Way,
    /// Why it is not another.
    pub why: String,
}

impl Chosen {
    pub(super) fn classic(why: String) -> Self {
        Self {
            way: Way::Classic,
            why,
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Classic => "classic",
            Self::IoUring => "io_uring",
        })
    }
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.way, self.why)
    }
}

/// Says why the kernel does not offer rings for FUSE, if it does not.
pub fn obstacle() -> Option<&'static str> {
    match fs::read_to_string(ENABLE).as_deref().map(str::trim) {
        Ok("Y" | "1") => None,
        Ok(_) => Some(
            "FUSE over io_uring is off; next: echo 1 > /sys/module/fuse/parameters/enable_uring",
        ),
        Err(_) => Some("this kernel has no FUSE over io_uring (Linux 6.14)"),
    }
}

const ENABLE: &str = "/sys/module/fuse/parameters/enable_uring";
