//! Chooses the channel of a call.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Mutex, PoisonError},
};

use gazette_protocol::{Route, journal_client::JournalClient};
use tokio::time::Instant;
use tonic::Code;

use crate::{
    BoxChannel,
    channel::{ChannelOptions, ConnectError, RECEIVE_MAX_BYTES, connect_channel},
    route_cache::{RouteCache, RouteCacheOptions},
};

/// Brokers to which a channel is kept besides the default one. A cluster is smaller than that; if it
/// is not, the channels are made anew.
const PEERS_MAX: usize = 64;

pub(crate) type Grpc = JournalClient<BoxChannel>;

/// What a call needs of the broker that it goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// The primary, as only it appends.
    Primary,
    /// Any broker with a replica.
    Member,
}

/// Two connections to one broker.
#[derive(Clone)]
pub(crate) struct Channels {
    /// For calls that end soon.
    calls: BoxChannel,
    /// For reads and watches, which may stay open for long. A server bounds the streams of one
    /// connection, so followers get one of their own and cannot use up that of the appends.
    streams: BoxChannel,
}

impl Channels {
    pub(crate) fn connect(endpoint: &str, options: &ChannelOptions) -> Result<Self, ConnectError> {
        Ok(Self {
            calls: connect_channel(endpoint, options)?,
            streams: connect_channel(endpoint, options)?,
        })
    }

    pub(crate) fn same(channel: BoxChannel) -> Self {
        Self {
            calls: channel.clone(),
            streams: channel,
        }
    }
}

pub(crate) struct Router {
    default: Channels,
    cache: Option<RouteCache>,
    zone: String,
    options: ChannelOptions,
    peers: Mutex<BTreeMap<String, Channels>>,
}

impl Router {
    pub(crate) fn new(
        default: Channels,
        options: ChannelOptions,
        cache: RouteCacheOptions,
        zone: String,
    ) -> Self {
        Self {
            default,
            cache: RouteCache::new(cache),
            zone,
            options,
            peers: Mutex::new(BTreeMap::new()),
        }
    }

    /// For calls that any broker answers.
    pub(crate) fn any(&self) -> Grpc {
        grpc(self.default.calls.clone())
    }

    /// For long streams that any broker answers.
    pub(crate) fn any_stream(&self) -> Grpc {
        grpc(self.default.streams.clone())
    }

    /// For calls about `journal`.
    pub(crate) fn call(&self, journal: &str, need: Need) -> Grpc {
        grpc(self.pick(journal, None, need).calls)
    }

    /// For long streams about `journal`. A `route` that was just learned goes before the cache.
    pub(crate) fn stream(&self, journal: &str, route: Option<&Route>, need: Need) -> Grpc {
        grpc(self.pick(journal, route, need).streams)
    }

    fn pick(&self, journal: &str, route: Option<&Route>, need: Need) -> Channels {
        let journal = without_meta(journal);
        let cached;
        let route = match (route, &self.cache) {
            (Some(route), _) => Some(route),
            (None, Some(cache)) => {
                cached = cache.get(journal, Instant::now().into_std());
                cached.as_deref()
            }
            (None, None) => None,
        };
        route
            .and_then(|route| endpoint(route, need, &self.zone))
            .and_then(|endpoint| self.peer(endpoint))
            .unwrap_or_else(|| self.default.clone())
    }

    fn peer(&self, endpoint: &str) -> Option<Channels> {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(channels) = peers.get(endpoint) {
            return Some(channels.clone());
        }
        let channels = Channels::connect(endpoint, &self.options).ok()?;
        if peers.len() >= PEERS_MAX {
            // Calls under way hold their own clone.
            peers.clear();
        }
        peers.insert(endpoint.to_owned(), channels.clone());
        Some(channels)
    }

    /// Whether calls go to the brokers that serve a journal, rather than all to one.
    pub(crate) fn is_routing(&self) -> bool {
        self.cache.is_some()
    }

    /// Learns a route from an answer.
    pub(crate) fn learn(&self, journal: &str, route: &Route) {
        if let Some(cache) = &self.cache {
            cache.update(without_meta(journal), route, Instant::now().into_std());
        }
    }

    /// Forgets the route of a journal if `status` says that its broker is away. The next call goes
    /// to the default endpoint, which knows better.
    pub(crate) fn failed(&self, journal: &str, status: &tonic::Status) {
        if let Some(cache) = &self.cache
            && (status.code() == Code::Unavailable || crate::error::is_local(status))
        {
            cache.forget(without_meta(journal));
        }
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router")
            .field("zone", &self.zone)
            .finish_non_exhaustive()
    }
}

pub(crate) fn grpc(channel: BoxChannel) -> Grpc {
    JournalClient::new(channel).max_decoding_message_size(RECEIVE_MAX_BYTES)
}

/// The name without its `;meta` part, by which routes are known.
pub(crate) fn without_meta(journal: &str) -> &str {
    journal.split_once(';').map_or(journal, |(name, _)| name)
}

/// Chooses among the members of a route: the primary, or one in our zone, or any.
fn endpoint<'r>(route: &'r Route, need: Need, zone: &str) -> Option<&'r str> {
    let index = match need {
        Need::Primary => usize::try_from(route.primary).ok()?,
        Need::Member => route
            .members
            .iter()
            .position(|member| member.zone == zone)
            .unwrap_or(0),
    };
    route
        .endpoints
        .get(index)
        .map(String::as_str)
        .filter(|endpoint| !endpoint.is_empty())
}

#[cfg(test)]
mod tests {
    use gazette_protocol::process_spec::Id;

    use super::*;

    #[test]
    fn a_read_prefers_its_own_zone_and_an_append_the_primary() {
        let route = Route {
            members: ["a", "b", "c"]
                .map(|zone| Id {
                    zone: zone.to_owned(),
                    suffix: "s".to_owned(),
                })
                .to_vec(),
            primary: 2,
            endpoints: ["http://a", "http://b", "http://c"]
                .map(str::to_owned)
                .to_vec(),
        };
        assert_eq!(endpoint(&route, Need::Member, "b"), Some("http://b"));
        assert_eq!(endpoint(&route, Need::Member, "z"), Some("http://a"));
        assert_eq!(endpoint(&route, Need::Primary, "b"), Some("http://c"));

        let without_primary = Route {
            primary: -1,
            ..route.clone()
        };
        assert_eq!(endpoint(&without_primary, Need::Primary, "b"), None);
        let without_endpoints = Route {
            endpoints: Vec::new(),
            ..route
        };
        assert_eq!(endpoint(&without_endpoints, Need::Member, "b"), None);
    }
}
