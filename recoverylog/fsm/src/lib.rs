#![doc = include_str!("../README.md")]

mod ids;
mod inode;
mod mutation;

pub use ids::{Author, Fnode, Timestamp};
pub use inode::{AttributeChange, Inode, Kind};
pub use mutation::{Mutation, Place, SizeChange};
