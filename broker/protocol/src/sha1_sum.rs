//! SHA-1 digests of content.

use std::fmt;

use crate::Sha1Sum;

/// A text is not the hexadecimal form of a digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Sha1SumError {
    /// It is not 40 characters long.
    #[error("a SHA-1 digest has 40 hexadecimal digits, not {actual}")]
    Length {
        /// Its length.
        actual: usize,
    },
    /// A character is no hexadecimal digit.
    #[error("{character:?} is not a hexadecimal digit")]
    Digit {
        /// The character.
        character: char,
    },
}

impl Sha1Sum {
    /// The digest as the message holds it: three big-endian integers.
    pub fn from_digest(digest: [u8; 20]) -> Self {
        let mut parts = ([0; 8], [0; 8], [0; 4]);
        parts.0.copy_from_slice(&digest[..8]);
        parts.1.copy_from_slice(&digest[8..16]);
        parts.2.copy_from_slice(&digest[16..]);
        Self {
            part1: u64::from_be_bytes(parts.0),
            part2: u64::from_be_bytes(parts.1),
            part3: u32::from_be_bytes(parts.2),
        }
    }

    /// The bytes of the digest.
    pub fn to_digest(self) -> [u8; 20] {
        let mut digest = [0; 20];
        digest[..8].copy_from_slice(&self.part1.to_be_bytes());
        digest[8..16].copy_from_slice(&self.part2.to_be_bytes());
        digest[16..].copy_from_slice(&self.part3.to_be_bytes());
        digest
    }

    /// The digest as 40 lower-case hexadecimal digits.
    pub fn to_hex(self) -> String {
        format!("{:016x}{:016x}{:08x}", self.part1, self.part2, self.part3)
    }

    /// The digest of 40 hexadecimal digits, in any case.
    pub fn from_hex(hex: &str) -> Result<Self, Sha1SumError> {
        if hex.len() != 40 {
            return Err(Sha1SumError::Length { actual: hex.len() });
        }
        if let Some(character) = hex.chars().find(|c| !c.is_ascii_hexdigit()) {
            return Err(Sha1SumError::Digit { character });
        }
        let part = |begin, end| u64::from_str_radix(&hex[begin..end], 16).unwrap_or_default();
        Ok(Self {
            part1: part(0, 16),
            part2: part(16, 32),
            part3: u32::try_from(part(32, 40)).unwrap_or_default(),
        })
    }

    /// Whether this is the sum of an empty fragment: all zero, which is no real digest.
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Sha1Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hex())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_digest_is_three_big_endian_integers() {
        let digest = std::array::from_fn(|i| u8::try_from(i + 1).unwrap());
        let sum = Sha1Sum::from_digest(digest);
        assert_eq!(sum.part1, 0x0102_0304_0506_0708);
        assert_eq!(sum.part3, 0x1112_1314);
        assert_eq!(sum.to_hex(), "0102030405060708090a0b0c0d0e0f1011121314");
        assert!(!sum.is_zero());
    }

    #[test]
    fn only_forty_hexadecimal_digits_are_a_digest() {
        assert_eq!(
            Sha1Sum::from_hex("0102"),
            Err(Sha1SumError::Length { actual: 4 })
        );
        let text = "zz02030405060708090a0b0c0d0e0f1011121314";
        assert_eq!(
            Sha1Sum::from_hex(text),
            Err(Sha1SumError::Digit { character: 'z' })
        );
        let text = "é".repeat(20);
        assert_eq!(
            Sha1Sum::from_hex(&text),
            Err(Sha1SumError::Digit { character: 'é' })
        );
    }

    proptest! {
        #[test]
        fn digests_survive_both_forms(digest: [u8; 20]) {
            let sum = Sha1Sum::from_digest(digest);
            prop_assert_eq!(sum.to_digest(), digest);
            prop_assert_eq!(Sha1Sum::from_hex(&sum.to_hex()), Ok(sum));
            prop_assert_eq!(Sha1Sum::from_hex(&sum.to_hex().to_uppercase()), Ok(sum));
        }
    }
}
