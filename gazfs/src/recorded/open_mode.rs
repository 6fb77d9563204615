//! How handles of a file read and write: through the pages of this mount, around them, or around
//! this daemon too.
//!
//! The kernel mixes ways of one inode as [`choose`] has it, and gives EIO otherwise. A handle keeps
//! its way until it is closed, and there is no request for a mapping, so what cannot be known is
//! taken for the worst: pages of this mount, which is always right.

/// How a handle reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// Through the pages of this mount. All that is written comes here, also what is stored through
    /// a mapping.
    Cached,
    /// Around the pages of this mount: each request is one of the program. A mapping is one of the
    /// backing file, so what is stored through it does not come here.
    Direct,
    /// The kernel reads and writes the backing file itself, and nothing comes here.
    Passthrough,
}

/// How many handles an inode has in each way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Opens {
    pub(super) cached: u64,
    pub(super) direct: u64,
    pub(super) passthrough: u64,
}

/// What is known of the use of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Nothing.
    Ordinary,
    /// It is written once, and only read after that.
    WriteOnce,
    /// It is not recorded.
    LeftOut,
}

/// Chooses the way of a new handle. `may_pass` says whether the kernel may read and write backing
/// files itself.
pub(super) fn choose(opens: Opens, class: Class, may_write: bool, may_pass: bool) -> OpenMode {
    if opens.passthrough > 0 || opens.direct > 0 {
        // Through pages of this mount would be refused. What is stored through a mapping is looked
        // for later.
        return if may_write && class != Class::LeftOut {
            OpenMode::Direct
        } else {
            OpenMode::Passthrough
        };
    }
    if opens.cached > 0 || !may_pass {
        return OpenMode::Cached;
    }
    match class {
        Class::LeftOut => OpenMode::Passthrough,
        Class::WriteOnce if !may_write => OpenMode::Passthrough,
        Class::WriteOnce | Class::Ordinary => OpenMode::Cached,
    }
}

/// Says what is known of a file by its name.
pub(super) fn class(name: Option<&[u8]>, is_left_out: bool) -> Class {
    let is_write_once = |name: &[u8]| {
        WRITE_ONCE
            .iter()
            .any(|suffix| name.ends_with(suffix.as_bytes()))
    };
    if is_left_out {
        Class::LeftOut
    } else if name.is_some_and(is_write_once) {
        Class::WriteOnce
    } else {
        Class::Ordinary
    }
}

impl Opens {
    pub(super) fn count(&mut self, mode: OpenMode) -> &mut u64 {
        match mode {
            OpenMode::Cached => &mut self.cached,
            OpenMode::Direct => &mut self.direct,
            OpenMode::Passthrough => &mut self.passthrough,
        }
    }

    pub(super) fn is_empty(self) -> bool {
        self == Self::default()
    }
}

/// Sorted tables of `RocksDB` and `LevelDB`, and blobs of `RocksDB`.
const WRITE_ONCE: [&str; 3] = [".sst", ".ldb", ".blob"];

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel does with a new handle, as it was measured: `false` is EIO.
    fn kernel_allows(opens: Opens, mode: OpenMode) -> bool {
        match mode {
            OpenMode::Cached => opens.passthrough == 0 && opens.direct == 0,
            OpenMode::Direct | OpenMode::Passthrough => opens.cached == 0,
        }
    }

    const CLASSES: [Class; 3] = [Class::Ordinary, Class::WriteOnce, Class::LeftOut];

    /// Opens and closes in every order, up to a depth, from what is open now on.
    fn explore(opens: Opens, depth: u32) {
        if depth == 0 {
            return;
        }
        for class in CLASSES {
            for (may_write, may_pass) in
                [(false, false), (false, true), (true, false), (true, true)]
            {
                let mode = choose(opens, class, may_write, may_pass);
                assert!(kernel_allows(opens, mode), "{mode:?} beside {opens:?}");
                let is_seen = mode != OpenMode::Passthrough || class == Class::LeftOut;
                assert!(!may_write || is_seen, "a write of {class:?} is not seen");
                let mut more = opens;
                *more.count(mode) += 1;
                explore(more, depth - 1);
            }
        }
        for mode in [OpenMode::Cached, OpenMode::Direct, OpenMode::Passthrough] {
            let mut fewer = opens;
            if *fewer.count(mode) > 0 {
                *fewer.count(mode) -= 1;
                explore(fewer, depth - 1);
            }
        }
    }

    #[test]
    fn the_kernel_allows_each_choice_and_no_recorded_write_passes_by() {
        explore(Opens::default(), 4);
    }

    #[test]
    fn without_the_right_to_pass_everything_is_cached() {
        for class in CLASSES {
            for may_write in [false, true] {
                let mode = choose(Opens::default(), class, may_write, false);
                assert_eq!(mode, OpenMode::Cached);
            }
        }
    }

    #[test]
    fn a_table_is_read_by_the_kernel_itself_once_nobody_writes_it() {
        let table = class(Some(b"000123.sst"), false);
        assert_eq!(
            choose(Opens::default(), table, true, true),
            OpenMode::Cached
        );
        let writing = Opens {
            cached: 1,
            ..Opens::default()
        };
        assert_eq!(choose(writing, table, false, true), OpenMode::Cached);
        assert_eq!(
            choose(Opens::default(), table, false, true),
            OpenMode::Passthrough
        );
        let reading = Opens {
            passthrough: 1,
            ..Opens::default()
        };
        assert_eq!(choose(reading, table, false, true), OpenMode::Passthrough);
        assert_eq!(choose(reading, table, true, true), OpenMode::Direct);
    }

    #[test]
    fn classes_go_by_name_unless_the_file_is_left_out() {
        assert_eq!(class(Some(b"x.db"), false), Class::Ordinary);
        assert_eq!(class(Some(b"x.db-shm"), false), Class::Ordinary);
        assert_eq!(class(Some(b"x.db-shm"), true), Class::LeftOut);
        assert_eq!(class(None, false), Class::Ordinary);
    }
}
