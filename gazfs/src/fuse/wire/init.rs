//! The first request: what the kernel offers, and what is taken of it.

use super::{Answer, Malformed, fields::Fields};

/// What both sides may agree on; each is a bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities(u64);

impl Capabilities {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Reads of one file may be under way at once.
    pub const ASYNC_READ: Self = Self(1);
    /// Open empties a file itself.
    pub const ATOMIC_TRUNCATE: Self = Self(1 << 3);
    /// Writes may be larger than a page.
    pub const BIG_WRITES: Self = Self(1 << 5);
    /// The mode that a new file gets is not changed by the kernel.
    pub const DONT_MASK: Self = Self(1 << 6);
    /// Lines of directories come with attributes.
    pub const LINES_PLUS: Self = Self(1 << 13);
    /// They do where that is of use.
    pub const LINES_PLUS_AUTO: Self = Self(1 << 14);
    /// Requests of one call with `O_DIRECT` may be under way at once.
    pub const ASYNC_DIRECT: Self = Self(1 << 15);
    /// Names of one directory are looked up at once.
    pub const PARALLEL_DIRECTORY: Self = Self(1 << 18);
    /// Access rights beyond modes are kept here.
    pub const POSIX_ACL: Self = Self(1 << 20);
    /// The most pages of a request can be said.
    pub const MAX_PAGES: Self = Self(1 << 22);
    /// The kernel remembers targets of links.
    pub const KEEP_LINKS: Self = Self(1 << 23);
    /// The kernel drops pages only when it is told to.
    pub const EXPLICIT_STALE: Self = Self(1 << 25);
    /// Set-user-ID bits are taken away here, and only where they are.
    pub const HANDLE_KILL_PRIVILEGES: Self = Self(1 << 28);
    /// There are more than 32 bits.
    const MORE: Self = Self(1 << 30);
    /// Files that are read without pages can be mapped.
    pub const DIRECT_MAP: Self = Self(1 << 36);
    /// The kernel may read and write backing files itself.
    pub const PASSTHROUGH: Self = Self(1 << 37);
    /// Requests may come through rings.
    pub const IO_URING: Self = Self(1 << 41);

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Says whether all of these are there.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    const fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// What the kernel offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// Version of its words.
    pub major: u32,
    /// The same, after the point.
    pub minor: u32,
    /// The most bytes that it reads ahead.
    pub read_ahead_bytes: u32,
    /// What may be agreed on.
    pub capabilities: Capabilities,
}

impl Offer {
    /// Reads it from the payload of the first request.
    pub fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields::new(payload);
        let (major, minor) = (fields.u32()?, fields.u32()?);
        let (read_ahead_bytes, low) = (fields.u32()?, fields.u32()?);
        let is_more = Capabilities(low.into()).has(Capabilities::MORE);
        let high = if is_more { fields.u32()? } else { 0 };
        Ok(Self {
            major,
            minor,
            read_ahead_bytes,
            capabilities: Capabilities(u64::from(high) << 32 | u64::from(low)),
        })
    }

    /// Says whether these are the words that are spoken here.
    pub fn is_understood(&self) -> bool {
        self.major == MAJOR && self.minor >= MINOR_MIN
    }
}

/// What is taken of an offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Init {
    /// What is wanted; what was not offered is not taken.
    pub wanted: Capabilities,
    /// The most bytes of a write.
    pub write_bytes_max: u32,
    /// The most requests in the background.
    pub background_max: u16,
}

impl Init {
    /// What both agree on.
    pub fn agreed(&self, offer: &Offer) -> Capabilities {
        let always = Capabilities::ASYNC_READ
            .and(Capabilities::BIG_WRITES)
            .and(Capabilities::MAX_PAGES)
            .and(Capabilities::MORE);
        self.wanted.and(always).common(offer.capabilities)
    }

    /// Answers an offer. `page_bytes` is the size of a page.
    pub fn answer(&self, offer: &Offer, page_bytes: u32) -> Answer {
        let agreed = self.agreed(offer);
        let [low, high] = [agreed.0, agreed.0 >> 32]
            .map(|bits| u32::try_from(bits & u64::from(u32::MAX)).unwrap_or(0));
        let pages =
            u16::try_from(self.write_bytes_max.div_ceil(page_bytes.max(1))).unwrap_or(u16::MAX);
        let depth = u32::from(agreed.has(Capabilities::PASSTHROUGH));
        let crowded = self.background_max / 4 * 3;
        let mut out = Answer::new();
        out.u32(MAJOR)
            .u32(offer.minor.min(MINOR))
            .u32(offer.read_ahead_bytes)
            .u32(low);
        out.u16(self.background_max).u16(crowded);
        out.u32(self.write_bytes_max);
        // Times have nanoseconds.
        out.u32(1);
        out.u16(pages).u16(0).u32(high).u32(depth).zeros(6 * 4);
        out
    }
}

const MAJOR: u32 = 7;
/// All that is used is there by then.
const MINOR: u32 = 45;
/// Linux 5.4.
const MINOR_MIN: u32 = 31;
