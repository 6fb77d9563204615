//! What the bearer of a token may do. How tokens are signed is not the business of this crate.

use std::{fmt, ops::BitOr};

use crate::LabelSelector;

/// A set of actions. Bits from the 17th on belong to applications.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Capability(pub u32);

impl Capability {
    /// List journals.
    pub const LIST: Self = Self(1 << 1);
    /// Create, change and delete journals.
    pub const APPLY: Self = Self(1 << 2);
    /// Read journals and list their fragments.
    pub const READ: Self = Self(1 << 3);
    /// Append to journals.
    pub const APPEND: Self = Self(1 << 4);
    /// Replicate appends, as brokers do.
    pub const REPLICATE: Self = Self(1 << 5);
    /// Everything, also what applications define.
    pub const ALL: Self = Self(u32::MAX);

    /// Whether every action of `required` is allowed.
    pub fn allows(self, required: Self) -> bool {
        self.0 & required.0 == required.0
    }
}

impl BitOr for Capability {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The names of the actions, such as `READ|APPEND`.
impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::ALL {
            return f.write_str("ALL");
        }
        let named = [
            (Self::LIST, "LIST"),
            (Self::APPLY, "APPLY"),
            (Self::READ, "READ"),
            (Self::APPEND, "APPEND"),
            (Self::REPLICATE, "REPLICATE"),
        ];
        let mut unnamed = self.0;
        let mut names = Vec::new();
        for (capability, name) in named {
            if self.allows(capability) {
                names.push(name.to_owned());
                unnamed &= !capability.0;
            }
        }
        if unnamed != 0 || names.is_empty() {
            names.push(format!("{unnamed:#x}"));
        }
        f.write_str(&names.join("|"))
    }
}

/// What a token grants: actions, on the journals that its selector selects.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Claims {
    /// The actions.
    pub capability: Capability,
    /// The journals. It comes from outside and may not be sorted or valid; matching copes.
    pub selector: LabelSelector,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_required_bit_must_be_there() {
        let both = Capability::READ | Capability::APPEND;
        assert!(both.allows(Capability::READ) && both.allows(both));
        assert!(!both.allows(Capability::READ | Capability::LIST));
        assert!(Capability::ALL.allows(Capability(1 << 20)));
        assert_eq!(both.to_string(), "READ|APPEND");
        assert_eq!(Capability(1 << 16 | 2).to_string(), "LIST|0x10000");
        assert_eq!(Capability(0).to_string(), "0x0");
    }
}
