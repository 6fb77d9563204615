//! How names of journals become names of files, and back.

use gazette_protocol::journal_name;

use super::error::Cause;

/// Ends the file name of a journal that is also a directory of others. No journal can have a
/// semicolon in its name, so it never hides another file.
pub const JOURNAL_SUFFIX: &str = ";journal";

/// Returns the components of a journal's name, or `None` if it cannot be shown as a path: a
/// component is longer than [`COMPONENT_BYTES_MAX`], or means another folder.
pub(super) fn components(journal: &str) -> Option<Vec<&str>> {
    let parts: Vec<&str> = journal.split('/').collect();
    parts.iter().all(|part| is_showable(part)).then_some(parts)
}

/// Returns the name below `folder`, which is empty for the top.
pub(super) fn join(folder: &str, component: &str) -> String {
    if folder.is_empty() {
        component.to_owned()
    } else {
        format!("{folder}/{component}")
    }
}

/// Returns the component of a file name that the kernel sent, checked only for what no entry can
/// have at all.
pub(super) fn component(name: &[u8]) -> Result<&str, Cause> {
    if name.len() > COMPONENT_BYTES_MAX {
        return Err(Cause::NameTooLong {
            bytes: name.len(),
            max: COMPONENT_BYTES_MAX,
        });
    }
    std::str::from_utf8(name).map_err(|_| Cause::BadName {
        reason: "it is not UTF-8".into(),
    })
}

/// Checks that a journal may have this name.
pub(super) fn check_journal(name: &str) -> Result<(), Cause> {
    check(name)
}

/// Checks that journals may be made below a directory of this name.
pub(super) fn check_folder(name: &str) -> Result<(), Cause> {
    check(&format!("{name}/{SHORTEST}"))
}

fn check(name: &str) -> Result<(), Cause> {
    if name.len() > JOURNAL_BYTES_MAX {
        return Err(Cause::NameTooLong {
            bytes: name.len(),
            max: JOURNAL_BYTES_MAX,
        });
    }
    journal_name::validate(name).map_err(|error| Cause::BadName {
        reason: error.to_string(),
    })
}

fn is_showable(component: &str) -> bool {
    !matches!(component, "" | "." | "..") && component.len() <= COMPONENT_BYTES_MAX
}

/// Longest component of a path on Linux, which programs have in their buffers.
pub const COMPONENT_BYTES_MAX: usize = 255;

/// Longest name of a journal in the protocol.
const JOURNAL_BYTES_MAX: usize = 512;

/// Some name that is long enough for a journal.
const SHORTEST: &str = "none";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_cannot_be_paths_are_not_shown() {
        assert_eq!(components("a/b=1/%c"), Some(vec!["a", "b=1", "%c"]));
        for name in [
            "../../etc",
            "a/./b",
            "a//b",
            &format!("a/{}", "x".repeat(256)),
        ] {
            assert_eq!(components(name), None, "{name}");
        }
        assert!(components(&format!("a/{}", "x".repeat(255))).is_some());
    }

    #[test]
    fn journals_of_less_than_four_bytes_are_refused_with_the_reason() {
        assert!(matches!(check_journal("abc"), Err(Cause::BadName { .. })));
        assert_eq!(check_journal("abcd"), Ok(()));
        assert_eq!(check_journal("a/bc"), Ok(()));
        assert_eq!(check_folder("a"), Ok(()));
    }

    #[test]
    fn illegal_characters_are_refused_and_long_names_are_too_long() {
        for name in ["with space", "a;journal", "comma,", "col:on"] {
            assert!(
                matches!(check_journal(name), Err(Cause::BadName { .. })),
                "{name}"
            );
            assert!(
                matches!(check_folder(name), Err(Cause::BadName { .. })),
                "{name}"
            );
        }
        let long = ["x".repeat(200), "y".repeat(200), "z".repeat(200)].join("/");
        assert!(matches!(
            check_journal(&long),
            Err(Cause::NameTooLong { .. })
        ));
        assert!(matches!(
            component(&[b'x'; 256]),
            Err(Cause::NameTooLong { .. })
        ));
        assert!(matches!(component(&[0xff]), Err(Cause::BadName { .. })));
    }
}
