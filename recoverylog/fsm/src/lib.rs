#![doc = include_str!("../README.md")]

mod checkpoint;
pub mod clean;
mod fsm;
mod hints;
mod ids;
#[cfg(any(test, feature = "test-util"))]
pub mod image;
mod inode;
mod liveness;
mod mutation;
mod op;
mod proto;
pub mod prune;
mod reader;
mod segment;
mod tree;
mod writer;

pub use checkpoint::{Checkpoint, CheckpointError};
pub use fsm::{Applied, FromHintsError, Fsm, FsmError, LiveNode, OpExtent, Rest, ResumeError};
pub use hints::{FnodeSegments, FsmHints, HintsError, Property};
pub use ids::{Author, Fnode, Timestamp};
pub use inode::{AttributeChange, Inode, Kind};
pub use liveness::{Estimate, Liveness, LivenessError, PAGE_BYTES};
pub use mutation::{Mutation, Place, SizeChange};
pub use op::{
    Body, Change, FRAME_HEADER_BYTES, FRAME_MAGIC, Group, LinkName, Mark, Mode, OpError,
    RecordedOp, Restated, Write, chain,
};
pub use proto::ProtoError;
pub use reader::{DecodedOp, Event, FRAME_BYTES_MAX, OpReader, Unfinished};
pub use segment::{Segment, SegmentConflict, SegmentError, SegmentSet};
pub use tree::{Attributes, NameError, Orphan, Tree, TreeError};
pub use writer::{
    AcknowledgeError, DIRECTORY_RENAME_LINKS_MAX, EXPANSION_BYTES_MAX, Mismatch, OpWriter,
    ReadContent, Refusal, StartError, WriteError, Written,
};
