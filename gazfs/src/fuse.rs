//! Answers the kernel's requests: one adapter for each file system.
//!
//! One thread reads requests. It answers what does not wait, and leaves the rest to others: a second
//! reader would cost more in wake-ups than it brings.

pub mod journals;
pub mod recorded;

use fuser::{InitFlags, KernelConfig};

/// Takes of what is wanted what the kernel offers, and the limits that both file systems have.
fn take(config: &mut KernelConfig, wanted: &[InitFlags]) {
    for wanted in wanted {
        if config.add_capabilities(*wanted).is_err() {
            tracing::debug!(?wanted, "the kernel does not offer it");
        }
    }
    // The nearest possible value is as good.
    let _nearest = config.set_max_write(WRITE_BYTES_MAX);
    let _nearest = config.set_max_background(BACKGROUND_MAX);
}

/// One request of the kernel has at most this. The kernel takes one page less if the program's buffer
/// does not begin at a page.
const WRITE_BYTES_MAX: u32 = 1 << 20;

/// Read-ahead and other requests in the background that the kernel may have open.
const BACKGROUND_MAX: u16 = 64;

/// What lseek(2) is asked for; linux/fs.h.
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;
