//! Format.

pub(crate) const VERSION: u32 = 1;
