//! What notices say at a moment. Pure.

use std::collections::BTreeMap;

use super::{Notice, PRESENT_FOR, Who};
use crate::standby::Now;

/// An owner, as he says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerSeen {
    /// Who.
    pub who: Who,
    /// His author.
    pub author: u32,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
    /// When he said so last.
    pub at: Now,
}

/// A standby, as it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandbySeen {
    /// Who.
    pub who: Who,
    /// How far it is.
    pub offset: i64,
    /// When it said so last.
    pub at: Now,
}

/// All that was said so far.
#[derive(Debug, Clone, Default)]
pub struct Board {
    owner: Option<OwnerSeen>,
    /// The last author who said that he ended.
    ended: Option<u32>,
    standbys: BTreeMap<String, StandbySeen>,
}

impl Board {
    /// Notes a notice.
    pub fn apply(&mut self, now: Now, notice: &Notice) {
        match notice {
            Notice::Owner {
                who,
                author,
                since_ms,
            } => {
                self.standbys.remove(&who.id);
                self.owner = Some(OwnerSeen {
                    who: who.clone(),
                    author: *author,
                    since_ms: *since_ms,
                    at: now,
                });
            }
            Notice::Ended { author, .. } => self.ended = Some(*author),
            Notice::Standby { who, offset, .. } => {
                let seen = StandbySeen {
                    who: who.clone(),
                    offset: *offset,
                    at: now,
                };
                if self.standbys.len() < STANDBYS_MAX || self.standbys.contains_key(&who.id) {
                    self.standbys.insert(who.id.clone(), seen);
                }
            }
            Notice::Gone { id } => drop(self.standbys.remove(id)),
            Notice::Serving { who, .. } => drop(self.standbys.remove(&who.id)),
            Notice::Ask { .. }
            | Notice::Handoff { .. }
            | Notice::Stopping { .. }
            | Notice::CalledOff { .. } => {}
        }
    }

    /// Who says that he owns the log as this author.
    pub fn owner(&self, author: u32) -> Option<&OwnerSeen> {
        self.owner.as_ref().filter(|owner| owner.author == author)
    }

    /// Who said last that he owns the log.
    pub fn last_owner(&self) -> Option<&OwnerSeen> {
        self.owner.as_ref()
    }

    /// Whether an author said that he ended.
    pub fn has_ended(&self, author: u32) -> bool {
        self.ended == Some(author)
    }

    /// The standbys that are there.
    pub fn standbys(&self, now: Now) -> impl Iterator<Item = &StandbySeen> {
        let is_there = move |seen: &&StandbySeen| now.saturating_sub(seen.at) <= PRESENT_FOR;
        self.standbys.values().filter(is_there)
    }

    /// Until when somebody watches the owner, if nothing more is said.
    pub fn watched_until(&self) -> Option<Now> {
        let last = self.standbys.values().map(|seen| seen.at).max()?;
        Some(last + PRESENT_FOR)
    }

    /// Chooses the standby that a hand-off goes to: the one that is named, or the one that is furthest.
    pub fn choose(&self, now: Now, to: Option<&str>) -> Result<&StandbySeen, NoStandby> {
        let named =
            |seen: &&StandbySeen| to.is_none_or(|to| seen.who.id == to || seen.who.host == to);
        let mut there: Vec<_> = self.standbys(now).collect();
        there.sort_by_key(|seen| std::cmp::Reverse(seen.offset));
        let others = there.iter().map(|seen| seen.who.id.clone()).collect();
        match there.into_iter().find(named) {
            Some(seen) => Ok(seen),
            None => Err(NoStandby { others }),
        }
    }
}

/// There is no such standby.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoStandby {
    /// Those that there are.
    pub others: Vec<String>,
}

impl NoStandby {
    /// In words.
    pub fn cause(&self) -> String {
        if self.others.is_empty() {
            "no standby is there".to_owned()
        } else {
            format!(
                "there is no such standby; there are: {}",
                self.others.join(", ")
            )
        }
    }
}

/// More than anybody runs; others are not listed.
const STANDBYS_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Silence after which nobody is believed any more.
    const LONG: Now = Now::from_mins(1);

    fn who(id: &str) -> Who {
        Who {
            id: id.to_owned(),
            host: format!("host-of-{id}"),
            pid: 1,
            mountpoint: "/m".to_owned(),
            boot: String::new(),
        }
    }

    fn standby(id: &str, offset: i64) -> Notice {
        Notice::Standby {
            who: who(id),
            offset,
            takeover_after_ms: None,
        }
    }

    #[test]
    fn standbys_are_there_for_as_long_as_they_say_so() {
        let mut board = Board::default();
        board.apply(Now::ZERO, &standby("a", 5));
        board.apply(LONG / 2, &standby("b", 4));
        assert_eq!(board.standbys(LONG / 2).count(), 1);
        assert_eq!(board.watched_until(), Some(LONG / 2 + PRESENT_FOR));
        board.apply(LONG / 2, &Notice::Gone { id: "b".to_owned() });
        assert_eq!(board.standbys(LONG / 2).count(), 0);
        let none = board.choose(LONG, None).expect_err("nobody is there");
        assert_eq!(none.cause(), "no standby is there");
    }

    #[test]
    fn a_handoff_goes_to_the_one_that_is_named_or_to_the_furthest() {
        let mut board = Board::default();
        for (id, offset) in [("a", 5), ("b", 9), ("c", 7)] {
            board.apply(Now::ZERO, &standby(id, offset));
        }
        let chosen = |to| board.choose(Now::ZERO, to).map(|seen| seen.who.id.clone());
        assert_eq!(chosen(None), Ok("b".to_owned()));
        assert_eq!(chosen(Some("c")), Ok("c".to_owned()));
        assert_eq!(chosen(Some("host-of-a")), Ok("a".to_owned()));
        let error = chosen(Some("d")).expect_err("there is none");
        assert_eq!(
            error.cause(),
            "there is no such standby; there are: b, c, a"
        );
    }

    #[test]
    fn an_owner_is_known_by_his_author_and_is_no_standby_any_more() {
        let mut board = Board::default();
        board.apply(Now::ZERO, &standby("a", 5));
        let owner = Notice::Owner {
            who: who("a"),
            author: 7,
            since_ms: 1,
        };
        board.apply(Now::ZERO, &owner);
        assert!(board.owner(7).is_some() && board.owner(8).is_none());
        assert_eq!(board.standbys(Now::ZERO).count(), 0);
        board.apply(
            Now::ZERO,
            &Notice::Ended {
                author: 7,
                offset: 1,
                handoff: None,
            },
        );
        assert!(board.has_ended(7) && !board.has_ended(8));
    }
}
