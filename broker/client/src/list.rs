//! Snapshots of the journals that match a selector.

use std::collections::BTreeMap;

use gazette_protocol::{Header, ListResponse, Status, Validate, list_response};

use crate::error::Cause;

/// All journals that match a selector, at one revision.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Listing {
    /// The broker that answered, and the revision.
    pub header: Header,
    /// The journals, in the order of their names.
    pub journals: Vec<list_response::Journal>,
}

/// How one listing differs from an earlier one.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ListingDiff {
    /// Journals that are new. One that was deleted and created again is removed *and* added.
    pub added: Vec<list_response::Journal>,
    /// Journals that are gone, as they were.
    pub removed: Vec<list_response::Journal>,
    /// Journals of which the specification changed, as they are now.
    pub changed: Vec<list_response::Journal>,
}

impl Listing {
    /// Returns the journal called `name`.
    pub fn get(&self, name: &str) -> Option<&list_response::Journal> {
        self.journals
            .iter()
            .find(|journal| journal.spec.name == name)
    }

    /// Says how this listing differs from the earlier one `before`.
    pub fn diff(&self, before: &Self) -> ListingDiff {
        let mut old: BTreeMap<&str, &list_response::Journal> = before
            .journals
            .iter()
            .map(|journal| (journal.spec.name.as_str(), journal))
            .collect();
        let mut diff = ListingDiff::default();
        for journal in &self.journals {
            match old.remove(journal.spec.name.as_str()) {
                Some(was) if was.create_revision != journal.create_revision => {
                    diff.removed.push(was.clone());
                    diff.added.push(journal.clone());
                }
                Some(was) if was.mod_revision != journal.mod_revision => {
                    diff.changed.push(journal.clone());
                }
                Some(_) => {}
                None => diff.added.push(journal.clone()),
            }
        }
        diff.removed.extend(old.into_values().cloned());
        diff.removed.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
        diff
    }
}

/// Puts the messages of a snapshot together.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    listing: Option<Listing>,
}

impl Assembler {
    /// Takes the next message. Returns the snapshot if the message is the empty one that ends it.
    pub(crate) fn push(&mut self, response: ListResponse) -> Result<Option<Listing>, Cause> {
        match &mut self.listing {
            None => {
                let status = Status::try_from(response.status)
                    .map_err(|_| Cause::Protocol("a status that this client does not know"))?;
                if status != Status::Ok {
                    return Err(Cause::Status {
                        status,
                        detail: String::new(),
                    });
                }
                response.validate().map_err(Cause::Answer)?;
                self.listing = Some(Listing {
                    header: response.header,
                    journals: response.journals,
                });
                Ok(None)
            }
            Some(_) if response.journals.is_empty() => Ok(self.listing.take()),
            Some(listing) => {
                // Only the first message has a header, so the others are not valid by themselves.
                let whole = ListResponse {
                    header: listing.header.clone(),
                    ..response
                };
                whole.validate().map_err(Cause::Answer)?;
                listing.journals.extend(whole.journals);
                Ok(None)
            }
        }
    }

    /// Returns the snapshot at the end of the stream.
    pub(crate) fn finish(self) -> Result<Listing, Cause> {
        self.listing
            .ok_or(Cause::Protocol("a list that ends before it begins"))
    }
}

#[cfg(test)]
mod tests;
