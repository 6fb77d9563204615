//! This project and the reference, Gazette, in every pairing of tool, broker, mount and store.
//!
//! `GAZETTE_REFERENCE` names the folder of the reference's programs `gazette` and `gazctl`, and an
//! `etcd` (3.5 or later). Without it nothing of this runs, and each test says so. `GAZFS_BIN` names
//! the folder of our programs `gazctl` and `gazfs`; without it they are built.

mod brokers;
mod fragments;
mod our_gazctl;
mod our_mount;
mod programs;
mod scenarios;
mod their_gazctl;
mod tool;
