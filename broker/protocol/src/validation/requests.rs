//! Rules of requests.

use super::{
    Validate, ValidationCause, ValidationError, Within, require, tokens, unset, validate_option,
};
use crate::{
    AppendRequest, ApplyRequest, FragmentStoreHealthRequest, FragmentsRequest, LabelSet,
    ListRequest, ReadRequest, ReplicateRequest, append_request::Suspend, apply_request::Change,
    duration, go_duration, journal_name, labels, store_url,
};

const MAX_PAGE_LIMIT: i32 = 10_000;
const MAX_PREFIX: usize = 512;

impl Validate for ReadRequest {
    fn validate(&self) -> Result<(), ValidationError> {
        validate_option(self.header.as_ref(), "Header")?;
        journal_name::validate_with_meta(&self.journal).within("Journal")?;
        require(self.offset >= -1, || {
            ValidationCause::out_of_range("Offset", self.offset, "at least -1")
        })?;
        let bounded = self.end_offset >= 0 && self.end_offset >= self.offset;
        require(self.end_offset == 0 || bounded, || {
            let expected = format!("0, or at least {}", self.offset.max(0));
            ValidationCause::out_of_range("EndOffset", self.end_offset, expected)
        })
    }
}

impl Validate for AppendRequest {
    fn validate(&self) -> Result<(), ValidationError> {
        if self.journal.is_empty() {
            self.validate_content()
        } else {
            self.validate_first()
        }
    }
}

impl AppendRequest {
    fn validate_first(&self) -> Result<(), ValidationError> {
        validate_option(self.header.as_ref(), "Header")?;
        journal_name::validate_with_meta(&self.journal).within("Journal")?;
        require(self.offset >= 0, || {
            ValidationCause::out_of_range("Offset", self.offset, "at least 0")
        })?;
        unset(!self.content.is_empty(), "Content", "in the first message")?;
        validate_option(self.check_registers.as_ref(), "CheckRegisters")?;
        validate_option(self.union_registers.as_ref(), "UnionRegisters")?;
        validate_option(self.subtract_registers.as_ref(), "SubtractRegisters")?;
        require(Suspend::try_from(self.suspend).is_ok(), || {
            ValidationCause::Variant {
                what: "mode of suspension",
                value: self.suspend.to_string(),
            }
        })
        .within("Suspend")
    }

    fn validate_content(&self) -> Result<(), ValidationError> {
        const LATER: &str = "after the first message";
        unset(self.header.is_some(), "Header", LATER)?;
        unset(self.do_not_proxy, "DoNotProxy", LATER)?;
        unset(self.offset != 0, "Offset", LATER)?;
        unset(self.check_registers.is_some(), "CheckRegisters", LATER)?;
        unset(self.union_registers.is_some(), "UnionRegisters", LATER)?;
        unset(
            self.subtract_registers.is_some(),
            "SubtractRegisters",
            LATER,
        )?;
        unset(self.suspend != 0, "Suspend", LATER)?;
        unset(self.flush, "Flush", LATER)
    }
}

/// An absent field of registers beside a proposal is allowed, and means empty registers.
impl Validate for ReplicateRequest {
    fn validate(&self) -> Result<(), ValidationError> {
        let Some(proposal) = &self.proposal else {
            return self.validate_content();
        };
        if let Some(header) = &self.header {
            require(self.acknowledge, || ValidationCause::Missing {
                field: "Acknowledge",
                condition: "with Header",
            })?;
            header.validate().within("Header")?;
        }
        proposal.validate().within("Proposal")?;
        validate_option(self.registers.as_ref(), "Registers")?;
        unset(!self.content.is_empty(), "Content", "with Proposal")?;
        unset(self.content_delta != 0, "ContentDelta", "with Proposal")?;
        let deprecated = &self.deprecated_journal;
        require(
            deprecated.is_empty() || *deprecated == proposal.journal,
            || ValidationCause::Mismatch {
                left: "DeprecatedJournal",
                left_value: deprecated.clone(),
                right: "Proposal.Journal",
                right_value: proposal.journal.clone(),
            },
        )
    }
}

impl ReplicateRequest {
    fn validate_content(&self) -> Result<(), ValidationError> {
        const CONTENT: &str = "with Content";
        require(!self.content.is_empty(), || ValidationCause::Missing {
            field: "Content or Proposal",
            condition: "in each message",
        })?;
        require(self.content_delta >= 0, || {
            ValidationCause::out_of_range("ContentDelta", self.content_delta, "at least 0")
        })?;
        unset(self.header.is_some(), "Header", CONTENT)?;
        unset(self.registers.is_some(), "Registers", CONTENT)?;
        unset(self.acknowledge, "Acknowledge", CONTENT)?;
        unset(
            !self.deprecated_journal.is_empty(),
            "DeprecatedJournal",
            CONTENT,
        )
    }
}

impl Validate for ListRequest {
    fn validate(&self) -> Result<(), ValidationError> {
        self.selector.validate().within("Selector")?;
        let folders = |set: &LabelSet, field| {
            for path in set.values_of(labels::META_PREFIX) {
                require(path.ends_with('/'), || ValidationCause::NoTrailingSlash {
                    path: path.to_owned(),
                })
                .within(r#"Labels["prefix"]"#)
                .within(field)
                .within("Selector")?;
            }
            Ok(())
        };
        folders(&self.selector.include, "Include")?;
        folders(&self.selector.exclude, "Exclude")
    }
}

impl Validate for ApplyRequest {
    fn validate(&self) -> Result<(), ValidationError> {
        for (index, change) in self.changes.iter().enumerate() {
            change.validate().within_entry("Changes", index)?;
        }
        Ok(())
    }
}

impl Validate for Change {
    fn validate(&self) -> Result<(), ValidationError> {
        let revision = self.expect_mod_revision;
        let expect = |holds, expected| {
            require(holds || revision == -1, || {
                ValidationCause::out_of_range("ExpectModRevision", revision, expected)
            })
        };
        match (&self.upsert, self.delete.as_str()) {
            (None, "") => Err(ValidationCause::Missing {
                field: "Upsert or Delete",
                condition: "in each change",
            }
            .into()),
            (Some(spec), "") => {
                unset(self.delete_fragments, "DeleteFragments", "with Upsert")?;
                spec.validate().within("Upsert")?;
                expect(revision >= 0, "at least 0, or -1")
            }
            (Some(_), _) => unset(true, "Delete", "with Upsert"),
            (None, journal) => {
                journal_name::validate_with_meta(journal).within("Delete")?;
                expect(revision > 0, "more than 0, or -1")
            }
        }
    }
}

impl Validate for FragmentsRequest {
    fn validate(&self) -> Result<(), ValidationError> {
        validate_option(self.header.as_ref(), "Header")?;
        journal_name::validate_with_meta(&self.journal).within("Journal")?;
        require(
            self.end_mod_time == 0 || self.end_mod_time >= self.begin_mod_time,
            || {
                let expected = format!("0, or at least {}", self.begin_mod_time);
                ValidationCause::out_of_range("EndModTime", self.end_mod_time, expected)
            },
        )?;
        require(self.next_page_token >= 0, || {
            ValidationCause::out_of_range("NextPageToken", self.next_page_token, "at least 0")
        })?;
        require((0..=MAX_PAGE_LIMIT).contains(&self.page_limit), || {
            let expected = format!("0 to {MAX_PAGE_LIMIT}");
            ValidationCause::out_of_range("PageLimit", self.page_limit, expected)
        })?;
        let Some(ttl) = &self.signature_ttl else {
            return Ok(());
        };
        let nanos = duration::to_nanos(ttl).unwrap_or(i64::MIN);
        require(nanos > 0, || {
            let value = go_duration::format(nanos);
            ValidationCause::out_of_range("SignatureTTL", value, "more than 0s")
        })
    }
}

impl Validate for FragmentStoreHealthRequest {
    fn validate(&self) -> Result<(), ValidationError> {
        store_url::validate(&self.fragment_store).within("FragmentStore")?;
        let prefix = &self.check_delete_prefix;
        if prefix.is_empty() {
            return Ok(());
        }
        let check = || -> Result<(), ValidationError> {
            unset(
                !self.check_delete,
                "CheckDeletePrefix",
                "without CheckDelete",
            )?;
            let Some(folder) = prefix.strip_suffix('/') else {
                return Err(ValidationCause::NoTrailingSlash {
                    path: prefix.clone(),
                }
                .into());
            };
            require(folder != ".." && !folder.starts_with("../"), || {
                ValidationCause::Traversal {
                    path: prefix.clone(),
                }
            })?;
            Ok(tokens::path_component(folder, 1, MAX_PREFIX)?)
        };
        check().within("CheckDeletePrefix")
    }
}
