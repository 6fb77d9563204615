#![doc = include_str!("../README.md")]

pub mod commands;
pub mod doctor;
pub mod fuse;
pub mod journals;
pub mod mount;
pub mod recorded;
pub mod recording;
pub mod supervise;
pub mod work_dir;
