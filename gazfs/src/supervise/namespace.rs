//! Mounting without privilege: in a user and mount namespace of our own, in which the user is who
//! he was. The program in it sees the mount, nobody else does.

use std::{fs, io};

use rustix::{
    process::{getegid, geteuid},
    thread::{UnshareFlags, unshare_unsafe},
};

/// Moves this process into a new user and mount namespace. It must not have a second thread yet.
///
/// The user keeps his number, as some programs refuse to run as root. Until it starts another
/// program this process may mount there.
pub fn enter() -> io::Result<()> {
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)?;
    // The kernel wants this before a group is mapped by a user without privilege.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1\n"))?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1\n"))
}

/// Says what keeps users of this machine from namespaces of their own, if the settings tell.
pub fn obstacle() -> Option<&'static str> {
    let is =
        |path: &str, value: &str| fs::read_to_string(path).is_ok_and(|found| found.trim() == value);
    if !fs::exists("/proc/self/ns/user").unwrap_or(false) {
        Some("this kernel has no user namespaces")
    } else if is("/proc/sys/user/max_user_namespaces", "0") {
        Some("user.max_user_namespaces is 0")
    } else if is("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        Some("kernel.unprivileged_userns_clone is 0")
    } else if is(
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
    ) {
        Some("kernel.apparmor_restrict_unprivileged_userns is 1")
    } else {
        None
    }
}

#[expect(unsafe_code, reason = "the call is unsafe for file descriptors only")]
fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: descriptors stay shared, as FILES is not among the flags that we give.
    unsafe { unshare_unsafe(flags) }?;
    Ok(())
}
