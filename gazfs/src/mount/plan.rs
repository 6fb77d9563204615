//! What may be mounted where.
//!
//! Pure: paths and the table of mounts go in. A mount that lies within what it needs, or the
//! other way round, hangs, so it is refused before anything is done.

use std::path::{Path, PathBuf};

use thiserror::Error;

use super::table::{self, MountEntry};

/// What to do before mounting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    /// Nothing.
    Mount,
    /// Take a mount away whose daemon died.
    Replace,
}

/// Why nothing can be mounted at a place.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PlanError {
    /// Another daemon serves it.
    #[error(
        "mount {}: process {pid} serves it already; next: use it, or end that with gazfs umount",
        .point.display()
    )]
    Served {
        /// The mount point.
        point: PathBuf,
        /// The daemon.
        pid: u32,
    },
    /// It lies in another mount of journals.
    #[error(
        "mount {}: it lies in the mount {}, where a directory is part of the names of journals; \
         next: choose a directory outside",
        .point.display(), .outer.display()
    )]
    Nested {
        /// The mount point.
        point: PathBuf,
        /// The mount around it.
        outer: PathBuf,
    },
    /// Another mount of journals lies in it.
    #[error(
        "mount {}: it would hide the mount {}; next: choose another directory, or end that with \
         gazfs umount",
        .point.display(), .inner.display()
    )]
    Hiding {
        /// The mount point.
        point: PathBuf,
        /// The mount within it.
        inner: PathBuf,
    },
    /// The broker's data and the mount overlap.
    #[error(
        "mount {}: it overlaps with the data in {}, which must stay reachable; next: choose \
         directories of which none lies in the other",
        .point.display(), .data.display()
    )]
    OverlapsData {
        /// The mount point.
        point: PathBuf,
        /// The folder of the data.
        data: PathBuf,
    },
}

/// Says what to do before mounting at `point`. Paths are absolute, without links. `is_alive` tells
/// whether a daemon still runs.
pub fn plan(
    point: &Path,
    data: Option<&Path>,
    table: &[MountEntry],
    is_alive: impl Fn(u32) -> bool,
) -> Result<Plan, PlanError> {
    if let Some(data) = data
        && (point.starts_with(data) || data.starts_with(point))
    {
        return Err(PlanError::OverlapsData {
            point: point.to_owned(),
            data: data.to_owned(),
        });
    }
    let ours = |entry: &&MountEntry| entry.is_ours() && entry.point != point;
    let is_around = |entry: &&MountEntry| point.starts_with(&entry.point);
    if let Some(outer) = table.iter().filter(ours).find(is_around) {
        return Err(PlanError::Nested {
            point: point.to_owned(),
            outer: outer.point.clone(),
        });
    }
    if let Some(inner) = table
        .iter()
        .filter(ours)
        .find(|entry| entry.point.starts_with(point))
    {
        return Err(PlanError::Hiding {
            point: point.to_owned(),
            inner: inner.point.clone(),
        });
    }
    match table::at(table, point).filter(|entry| entry.is_ours()) {
        None => Ok(Plan::Mount),
        Some(entry) => match entry.daemon().filter(|pid| is_alive(*pid)) {
            Some(pid) => Err(PlanError::Served {
                point: point.to_owned(),
                pid,
            }),
            None => Ok(Plan::Replace),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journals(point: &str, pid: u32) -> MountEntry {
        MountEntry {
            point: point.into(),
            kind: "fuse".into(),
            source: table::source(pid),
            device: "0:9".into(),
        }
    }

    fn decide(point: &str, data: Option<&str>, table: &[MountEntry]) -> Result<Plan, PlanError> {
        plan(Path::new(point), data.map(Path::new), table, |pid| pid == 1)
    }

    #[test]
    fn a_dead_mount_is_replaced_and_a_living_one_is_not() {
        assert_eq!(decide("/j", None, &[]), Ok(Plan::Mount));
        assert_eq!(decide("/j", None, &[journals("/j", 2)]), Ok(Plan::Replace));
        let error = decide("/j", None, &[journals("/j", 1)]).expect_err("it is served");
        assert!(error.to_string().contains("process 1 serves it"), "{error}");
        let other = MountEntry {
            kind: "tmpfs".into(),
            ..journals("/j", 1)
        };
        assert_eq!(decide("/j", None, &[other]), Ok(Plan::Mount));
    }

    #[test]
    fn nested_mounts_are_refused_with_both_paths() {
        let table = [journals("/a/journals", 1)];
        for point in ["/a/journals/x", "/a"] {
            let error = decide(point, None, &table)
                .expect_err("they overlap")
                .to_string();
            assert!(
                error.contains(point) && error.contains("/a/journals"),
                "{error}"
            );
        }
        assert_eq!(decide("/a/journals2", None, &table), Ok(Plan::Mount));
    }

    #[test]
    fn data_within_the_mount_and_the_other_way_round_are_refused() {
        for (point, data) in [("/x", "/x"), ("/x", "/x/in"), ("/x/in", "/x")] {
            let error = decide(point, Some(data), &[])
                .expect_err("they overlap")
                .to_string();
            assert!(error.contains(point) && error.contains(data), "{error}");
        }
        assert_eq!(decide("/x/journals", Some("/x/data"), &[]), Ok(Plan::Mount));
    }
}
