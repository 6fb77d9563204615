//! Plays logs: rebuilds the tree of files that was recorded, at the end of a log or as of a point of its past.

mod branches;
mod detach;
mod drive;
mod error;
mod follow;
mod options;
mod plan;
mod playback;
mod reached;
mod recovered;
mod run;
mod start;

pub use error::{Damage, DamageCause, HintsFault, Missing, Nearest, NeededBy, RecoverError};
pub use follow::{Copied, Followed};
pub use options::{HintsChoice, Point, Progress, RecoverOptions, Tell};
pub use reached::Skipped;
pub use recovered::{HintsUse, Recovered, Report};
pub use run::Player;

pub(crate) use drive::Drive;
pub(crate) use follow::{Follower, follow};
pub(crate) use playback::Playback;
pub(crate) use reached::{Met, Standing};
pub(crate) use start::{find as find_start, first_hints};

use crate::Source;

/// Rebuilds the directory that a log recorded.
///
/// It appears at [`RecoverOptions::to`] complete, or not at all. Every wait ends: with it, or with an error that
/// says what to do.
pub async fn recover(source: &Source, options: RecoverOptions) -> Result<Recovered, RecoverError> {
    let mut player = Player::begin(source, options).await?;
    player.play().await?;
    player.finish().await
}
