//! Routes and headers.

use crate::{
    Header, Route, Validate, ValidationError, endpoint, header,
    process_spec::Id,
    validation::{ValidationCause, Within, require},
};

impl Route {
    /// The route of a journal that no broker holds. It differs from the default, which
    /// names a primary that is not there and so does not validate.
    pub fn unrouted() -> Self {
        Self {
            members: Vec::new(),
            primary: -1,
            endpoints: Vec::new(),
        }
    }

    /// The primary, if there is one.
    pub fn primary_member(&self) -> Option<&Id> {
        self.members.get(usize::try_from(self.primary).ok()?)
    }

    /// The endpoint of a member, if it is known.
    pub fn endpoint_of(&self, member: usize) -> Option<&str> {
        self.endpoints
            .get(member)
            .map(String::as_str)
            .filter(|endpoint| !endpoint.is_empty())
    }

    /// The endpoint of the primary, if there is one and it is known.
    pub fn primary_endpoint(&self) -> Option<&str> {
        self.endpoint_of(usize::try_from(self.primary).ok()?)
    }

    /// Whether the same members and the same primary hold the journal, wherever they listen.
    pub fn is_equivalent(&self, other: &Self) -> bool {
        self.primary == other.primary && self.members == other.members
    }
}

impl Header {
    /// A header of `process` about no journal.
    pub fn unrouted(process: Id, etcd: header::Etcd) -> Self {
        Self {
            process_id: process,
            route: Route::unrouted(),
            etcd,
        }
    }
}

impl Validate for Route {
    fn validate(&self) -> Result<(), ValidationError> {
        for (index, member) in self.members.iter().enumerate() {
            member.validate().within_entry("Members", index)?;
            let previous = index
                .checked_sub(1)
                .and_then(|before| self.members.get(before));
            if let Some(previous) = previous {
                require(previous < member, || ValidationCause::Unsorted {
                    what: "members",
                    index,
                    previous: previous.to_string(),
                    next: member.to_string(),
                })?;
            }
        }
        let members = self.members.len();
        let primary = usize::try_from(self.primary);
        require(
            self.primary == -1 || primary.is_ok_and(|index| index < members),
            || {
                let expected = format!("-1, or less than {members}");
                ValidationCause::out_of_range("Primary", self.primary, expected)
            },
        )?;
        require(
            self.endpoints.is_empty() || self.endpoints.len() == members,
            || ValidationCause::Mismatch {
                left: "count of Endpoints",
                left_value: self.endpoints.len().to_string(),
                right: "count of Members",
                right_value: members.to_string(),
            },
        )?;
        for (index, endpoint) in self.endpoints.iter().enumerate() {
            if !endpoint.is_empty() {
                endpoint::validate(endpoint).within_entry("Endpoints", index)?;
            }
        }
        Ok(())
    }
}

impl Validate for header::Etcd {
    fn validate(&self) -> Result<(), ValidationError> {
        let check = |holds, field, value: String| {
            require(holds, || {
                ValidationCause::out_of_range(field, value, "more than zero")
            })
        };
        check(
            self.cluster_id != 0,
            "ClusterId",
            self.cluster_id.to_string(),
        )?;
        check(self.member_id != 0, "MemberId", self.member_id.to_string())?;
        check(self.revision > 0, "Revision", self.revision.to_string())?;
        check(self.raft_term != 0, "RaftTerm", self.raft_term.to_string())
    }
}

impl Validate for Header {
    fn validate(&self) -> Result<(), ValidationError> {
        if !self.process_id.is_empty() {
            self.process_id.validate().within("ProcessId")?;
        }
        self.route.validate().within("Route")?;
        self.etcd.validate().within("Etcd")
    }
}
