//! Extended attributes: what a journal is, for scripts. They cannot be set.

use std::sync::Arc;

use gazette_protocol::{JournalSpec, Route, list_response, yaml::print_spec};

use super::{
    caller::Caller,
    error::{Cause, FsError},
    fs::JournalFs,
    inode::Inode,
    patience::Patience,
    tree::{Ino, Kind},
};

/// An attribute of journals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    WriteHead,
    FirstOffset,
    Labels,
    Spec,
    Primary,
}

impl Name {
    const ALL: [Self; 5] = [
        Self::WriteHead,
        Self::FirstOffset,
        Self::Labels,
        Self::Spec,
        Self::Primary,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::WriteHead => "user.gazette.write_head",
            Self::FirstOffset => "user.gazette.first_offset",
            Self::Labels => "user.gazette.labels",
            Self::Spec => "user.gazette.spec",
            Self::Primary => "user.gazette.primary",
        }
    }

    fn parse(name: &[u8]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|known| known.as_str().as_bytes() == name)
    }
}

impl JournalFs {
    /// Answers for attributes that there are none of: the kernel and tools ask for some each time.
    pub fn try_attribute(&self, ino: Ino, name: &[u8]) -> Option<FsError> {
        let is_journal = self.names().tree.kind(ino) == Some(Kind::Journal);
        let is_ours = is_journal && Name::parse(name).is_some();
        (!is_ours).then(|| {
            let name = String::from_utf8_lossy(name).into_owned();
            FsError::new("get attribute", name, Cause::NoAttribute)
        })
    }

    /// Returns the value of an attribute.
    pub async fn attribute(
        &self,
        caller: Caller,
        ino: Ino,
        name: &[u8],
    ) -> Result<Vec<u8>, FsError> {
        let object = String::from_utf8_lossy(name).into_owned();
        let fail = |cause| FsError::new("get attribute", object, cause);
        let Some(name) = Name::parse(name) else {
            return Err(fail(Cause::NoAttribute));
        };
        let value = async { self.value(caller, &*self.inode(ino)?, name).await };
        value.await.map_err(fail)
    }

    /// Returns the names of the attributes of a node, each with a zero byte at its end.
    pub fn attribute_names(&self, ino: Ino) -> Vec<u8> {
        let mut names = Vec::new();
        if self.names().tree.kind(ino) == Some(Kind::Journal) {
            for name in Name::ALL {
                names.extend_from_slice(name.as_str().as_bytes());
                names.push(0);
            }
        }
        names
    }

    async fn value(&self, caller: Caller, inode: &Inode, name: Name) -> Result<Vec<u8>, Cause> {
        let patience = self.patience(caller);
        let text = match name {
            Name::WriteHead => self.ask_head(inode, patience).await?.to_string(),
            Name::FirstOffset => {
                let head = self.ask_head(inode, patience).await?;
                self.ask_coverage(inode, patience)
                    .await?
                    .first(head)
                    .to_string()
            }
            Name::Labels => labels(&self.relisted(inode, patience).await?.spec),
            Name::Primary => primary(&self.relisted(inode, patience).await?.route),
            Name::Spec => {
                let printed = print_spec(&self.relisted(inode, patience).await?.spec);
                printed.map_err(|error| Cause::Broker {
                    text: error.to_string(),
                    is_outcome_unknown: false,
                })?
            }
        };
        Ok(text.into_bytes())
    }

    /// Looks a journal up anew: routes change without the watch telling so.
    async fn relisted(
        &self,
        inode: &Inode,
        patience: Patience,
    ) -> Result<Arc<list_response::Journal>, Cause> {
        self.relist(inode, patience).await?;
        Ok(inode.listed())
    }
}

/// One label per line.
fn labels(spec: &JournalSpec) -> String {
    let lines = spec
        .labels
        .labels
        .iter()
        .map(|label| format!("{}={}", label.name, label.value));
    lines.collect::<Vec<_>>().join("\n")
}

/// The broker that takes appends, as zone/suffix, and its endpoint.
fn primary(route: &Route) -> String {
    let index = usize::try_from(route.primary).ok();
    let Some((index, id)) = index.and_then(|index| Some((index, route.members.get(index)?))) else {
        return String::new();
    };
    let endpoint = route.endpoints.get(index).map_or("", String::as_str);
    format!("{}/{} {endpoint}", id.zone, id.suffix)
        .trim_end()
        .to_owned()
}
