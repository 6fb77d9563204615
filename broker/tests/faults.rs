//! A broker on a bad day: damaged files, full disks, clients that stall or go away.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "faults/clients.rs"]
mod clients;
#[path = "faults/damage.rs"]
mod damage;
#[path = "faults/full_disk.rs"]
mod full_disk;
#[expect(dead_code, reason = "each binary of tests uses its part")]
#[path = "common/house.rs"]
mod house;
#[expect(dead_code, reason = "each binary of tests uses its part")]
#[path = "common/raw_http.rs"]
mod raw_http;
#[path = "faults/requests.rs"]
mod requests;
#[path = "faults/tmpfs.rs"]
mod tmpfs;
