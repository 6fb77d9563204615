//! Rules of responses.

use super::{Validate, ValidationCause, ValidationError, Within, require, unset, validate_option};
use crate::{
    AppendResponse, ApplyResponse, FragmentStoreHealthResponse, FragmentsResponse, ListResponse,
    ReadResponse, ReplicateResponse, Status, list_response::Journal, uri::Uri,
};

fn validate_status(status: i32) -> Result<(), ValidationError> {
    require(Status::try_from(status).is_ok(), || {
        ValidationCause::Variant {
            what: "status",
            value: status.to_string(),
        }
    })
    .within("Status")
}

fn validate_url(url: &str) -> Result<(), ValidationCause> {
    Ok(Uri::parse(url).map(drop)?)
}

impl Validate for ReadResponse {
    fn validate(&self) -> Result<(), ValidationError> {
        validate_status(self.status)?;
        if !self.content.is_empty() {
            const CONTENT: &str = "with Content";
            unset(self.status() != Status::Ok, "Status", CONTENT)?;
            unset(self.header.is_some(), "Header", CONTENT)?;
            unset(self.write_head != 0, "WriteHead", CONTENT)?;
            unset(self.fragment.is_some(), "Fragment", CONTENT)?;
            return unset(!self.fragment_url.is_empty(), "FragmentUrl", CONTENT);
        }
        validate_option(self.header.as_ref(), "Header")?;
        require(self.write_head >= 0, || {
            ValidationCause::out_of_range("WriteHead", self.write_head, "at least 0")
        })?;
        let Some(fragment) = &self.fragment else {
            let stray_offset = self.status() == Status::Ok && self.offset != 0;
            unset(stray_offset, "Offset", "without Fragment or Content")?;
            return unset(
                !self.fragment_url.is_empty(),
                "FragmentUrl",
                "without Fragment",
            );
        };
        fragment.validate().within("Fragment")?;
        require(fragment.contains(self.offset), || {
            let expected = format!("at least {} and less than {}", fragment.begin, fragment.end);
            ValidationCause::out_of_range("Offset", self.offset, expected)
        })?;
        require(self.write_head >= fragment.end, || {
            let expected = format!("at least {}", fragment.end);
            ValidationCause::out_of_range("WriteHead", self.write_head, expected)
        })?;
        validate_url(&self.fragment_url).within("FragmentUrl")
    }
}

impl Validate for AppendResponse {
    fn validate(&self) -> Result<(), ValidationError> {
        validate_status(self.status)?;
        self.header.validate().within("Header")?;
        let (ok, mismatch) = (
            self.status() == Status::Ok,
            self.status() == Status::RegisterMismatch,
        );
        require(self.commit.is_some() || !ok, || ValidationCause::Missing {
            field: "Commit",
            condition: "with status OK",
        })?;
        require(self.registers.is_some() || !(ok || mismatch), || {
            ValidationCause::Missing {
                field: "Registers",
                condition: "with status OK or REGISTER_MISMATCH",
            }
        })?;
        validate_option(self.commit.as_ref(), "Commit")?;
        validate_option(self.registers.as_ref(), "Registers")
    }
}

/// These are the nominal rules. Brokers send a header in each first response, which breaks
/// them: do not check responses of peers with this.
impl Validate for ReplicateResponse {
    fn validate(&self) -> Result<(), ValidationError> {
        const MISMATCH: &str = "with status PROPOSAL_MISMATCH only";
        validate_status(self.status)?;
        let check = |set: bool, expected: bool, field, condition| match (set, expected) {
            (false, true) => Err(ValidationCause::Missing { field, condition }),
            (true, false) => Err(ValidationCause::Unexpected { field, condition }),
            _ => Ok(()),
        };
        let wrong_route = self.status() == Status::WrongRoute;
        let mismatch = self.status() == Status::ProposalMismatch;
        check(
            self.header.is_some(),
            wrong_route,
            "Header",
            "with status WRONG_ROUTE only",
        )?;
        validate_option(self.header.as_ref(), "Header")?;
        check(self.fragment.is_some(), mismatch, "Fragment", MISMATCH)?;
        check(self.registers.is_some(), mismatch, "Registers", MISMATCH)?;
        validate_option(self.fragment.as_ref(), "Fragment")?;
        validate_option(self.registers.as_ref(), "Registers")
    }
}

impl Validate for ListResponse {
    fn validate(&self) -> Result<(), ValidationError> {
        validate_status(self.status)?;
        self.header.validate().within("Header")?;
        for (index, journal) in self.journals.iter().enumerate() {
            journal.validate().within_entry("Journals", index)?;
        }
        Ok(())
    }
}

impl Validate for Journal {
    fn validate(&self) -> Result<(), ValidationError> {
        self.spec.validate().within("Spec")?;
        require(self.mod_revision > 0, || {
            ValidationCause::out_of_range("ModRevision", self.mod_revision, "more than 0")
        })?;
        self.route.validate().within("Route")
    }
}

impl Validate for ApplyResponse {
    fn validate(&self) -> Result<(), ValidationError> {
        validate_status(self.status)?;
        self.header.validate().within("Header")
    }
}

impl Validate for FragmentsResponse {
    fn validate(&self) -> Result<(), ValidationError> {
        validate_status(self.status)?;
        self.header.validate().within("Header")?;
        for (index, fragment) in self.fragments.iter().enumerate() {
            fragment
                .spec
                .validate()
                .within("Spec")
                .within_entry("Fragments", index)?;
            validate_url(&fragment.signed_url)
                .within("SignedUrl")
                .within_entry("Fragments", index)?;
        }
        Ok(())
    }
}

impl Validate for FragmentStoreHealthResponse {
    fn validate(&self) -> Result<(), ValidationError> {
        validate_status(self.status)?;
        self.header.validate().within("Header")
    }
}
