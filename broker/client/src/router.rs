//! Chooses the channel of a call.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use gazette_protocol::{Route, journal_client::JournalClient};
use tokio::time::Instant;
use tonic::Code;

use crate::{
    BoxChannel,
    channel::{ChannelOptions, ConnectError, RECEIVE_MAX_BYTES, connect_channel},
    error::is_local,
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
struct Channels {
    /// For calls that end soon.
    calls: BoxChannel,
    /// For reads and watches, which may stay open for long. A server bounds the streams of one
    /// connection, so followers get one of their own and cannot use up that of the appends.
    streams: BoxChannel,
}

impl Channels {
    fn connect(endpoint: &str, options: &ChannelOptions) -> Result<Self, ConnectError> {
        Ok(Self {
            calls: connect_channel(endpoint, options)?,
            streams: connect_channel(endpoint, options)?,
        })
    }

    fn same(channel: BoxChannel) -> Self {
        Self {
            calls: channel.clone(),
            streams: channel,
        }
    }
}

pub(crate) struct Router {
    default: Mutex<Arc<Channels>>,
    /// Where the default channels lead, unless they were given to us.
    endpoint: Option<String>,
    cache: Option<RouteCache>,
    zone: String,
    options: Mutex<ChannelOptions>,
    peers: Mutex<BTreeMap<String, Arc<Channels>>>,
}

impl Router {
    pub(crate) fn connect(
        endpoint: &str,
        options: ChannelOptions,
        cache: RouteCacheOptions,
        zone: String,
    ) -> Result<Self, ConnectError> {
        let channels = Channels::connect(endpoint, &options)?;
        Ok(Self::new(
            channels,
            Some(endpoint.to_owned()),
            options,
            cache,
            zone,
        ))
    }

    pub(crate) fn over(
        channel: BoxChannel,
        options: ChannelOptions,
        cache: RouteCacheOptions,
        zone: String,
    ) -> Self {
        Self::new(Channels::same(channel), None, options, cache, zone)
    }

    fn new(
        default: Channels,
        endpoint: Option<String>,
        options: ChannelOptions,
        cache: RouteCacheOptions,
        zone: String,
    ) -> Self {
        Self {
            default: Mutex::new(Arc::new(default)),
            endpoint,
            cache: RouteCache::new(cache),
            zone,
            options: Mutex::new(options),
            peers: Mutex::new(BTreeMap::new()),
        }
    }

    /// For calls that any broker answers.
    pub(crate) fn any(&self) -> Grpc {
        grpc(lock(&self.default).calls.clone())
    }

    /// For long streams that any broker answers.
    pub(crate) fn any_stream(&self) -> Grpc {
        grpc(lock(&self.default).streams.clone())
    }

    /// For calls about `journal`.
    pub(crate) fn call(&self, journal: &str, need: Need) -> Grpc {
        grpc(self.pick(journal, None, need).calls.clone())
    }

    /// For long streams about `journal`. A `route` that was just learned goes before the cache.
    pub(crate) fn stream(&self, journal: &str, route: Option<&Route>, need: Need) -> Grpc {
        grpc(self.pick(journal, route, need).streams.clone())
    }

    fn pick(&self, journal: &str, route: Option<&Route>, need: Need) -> Arc<Channels> {
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
            .unwrap_or_else(|| Arc::clone(&lock(&self.default)))
    }

    fn peer(&self, endpoint: &str) -> Option<Arc<Channels>> {
        let options = lock(&self.options).clone();
        let mut peers = lock(&self.peers);
        if let Some(channels) = peers.get(endpoint) {
            return Some(Arc::clone(channels));
        }
        let channels = Arc::new(Channels::connect(endpoint, &options).ok()?);
        if peers.len() >= PEERS_MAX {
            // Calls under way hold their own clone.
            peers.clear();
        }
        peers.insert(endpoint.to_owned(), Arc::clone(&channels));
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

    /// Learns from a failed call about `journal`. Its route is forgotten if the broker is away: the next
    /// call goes to the default endpoint, which knows better.
    pub(crate) fn failed(&self, journal: &str, status: &tonic::Status) {
        self.calm(status);
        if let Some(cache) = &self.cache
            && (status.code() == Code::Unavailable || is_local(status))
        {
            cache.forget(without_meta(journal));
        }
    }

    /// Asks brokers no longer whether they are there, if one has closed the connection over it. Brokers
    /// of Gazette do after three questions within five minutes.
    pub(crate) fn calm(&self, status: &tonic::Status) {
        if !is_local(status) || status.code() != Code::ResourceExhausted {
            return;
        }
        let calm = {
            let mut options = lock(&self.options);
            if options.keep_alive_interval.is_zero() {
                return;
            }
            options.keep_alive_interval = Duration::ZERO;
            options.clone()
        };
        tracing::debug!(err = %status, "broker wants fewer pings");
        lock(&self.peers).clear();
        let again = self
            .endpoint
            .as_ref()
            .map(|endpoint| Channels::connect(endpoint, &calm));
        if let Some(Ok(channels)) = again {
            *lock(&self.default) = Arc::new(channels);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

    #[derive(Debug, thiserror::Error)]
    #[error("too_many_pings")]
    struct Closed(#[source] tonic::Status);

    #[tokio::test]
    async fn a_broker_that_minds_being_asked_is_asked_no_more() {
        let options = ChannelOptions::default();
        let cache = RouteCacheOptions {
            size: 4,
            ..RouteCacheOptions::default()
        };
        let router = Router::connect("http://127.0.0.1:1", options, cache, String::new()).unwrap();
        let asks = |router: &Router| !lock(&router.options).keep_alive_interval.is_zero();
        router.peer("http://127.0.0.1:2").unwrap();
        router.calm(&tonic::Status::resource_exhausted("the disk is full"));
        assert!(asks(&router) && lock(&router.peers).len() == 1);

        let closed = Closed(tonic::Status::resource_exhausted("ENHANCE_YOUR_CALM"));
        router.failed("app/log", &tonic::Status::from_error(Box::new(closed)));
        assert!(!asks(&router) && lock(&router.peers).is_empty());
    }
}
