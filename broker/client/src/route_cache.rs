//! Remembers which brokers serve a journal.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use gazette_protocol::Route;
use quick_cache::sync::Cache;

/// How many routes are remembered, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteCacheOptions {
    /// Most routes. With zero, every call goes to the default endpoint, which proxies it.
    pub size: usize,
    /// How long a route is believed after a broker last confirmed it.
    pub ttl: Duration,
}

impl Default for RouteCacheOptions {
    fn default() -> Self {
        Self {
            size: 0,
            ttl: Duration::from_mins(1),
        }
    }
}

#[derive(Debug)]
pub(crate) struct RouteCache {
    entries: Cache<String, Entry>,
    ttl: Duration,
}

#[derive(Debug, Clone)]
struct Entry {
    route: Arc<Route>,
    since: Instant,
}

impl RouteCache {
    /// Returns `None` if nothing is to be remembered.
    pub(crate) fn new(options: RouteCacheOptions) -> Option<Self> {
        (options.size > 0).then(|| Self {
            entries: Cache::new(options.size),
            ttl: options.ttl,
        })
    }

    pub(crate) fn get(&self, journal: &str, now: Instant) -> Option<Arc<Route>> {
        let entry = self.entries.get(journal)?;
        if now.saturating_duration_since(entry.since) >= self.ttl {
            self.entries.remove(journal);
            return None;
        }
        Some(entry.route)
    }

    /// Remembers `route`, or forgets the old one if it has no members.
    pub(crate) fn update(&self, journal: &str, route: &Route, now: Instant) {
        if route.members.is_empty() {
            self.forget(journal);
        } else {
            let entry = Entry {
                route: Arc::new(route.clone()),
                since: now,
            };
            self.entries.insert(journal.to_owned(), entry);
        }
    }

    pub(crate) fn forget(&self, journal: &str) {
        self.entries.remove(journal);
    }
}

#[cfg(test)]
mod tests {
    use gazette_protocol::process_spec;

    use super::*;

    fn route(suffix: &str) -> Route {
        Route {
            members: vec![process_spec::Id {
                zone: "z".to_owned(),
                suffix: suffix.to_owned(),
            }],
            primary: 0,
            endpoints: vec![format!("http://{suffix}:1")],
        }
    }

    fn cache(size: usize) -> RouteCache {
        RouteCache::new(RouteCacheOptions {
            size,
            ttl: Duration::from_mins(1),
        })
        .unwrap()
    }

    #[test]
    fn no_size_means_no_cache() {
        assert!(RouteCache::new(RouteCacheOptions::default()).is_none());
    }

    #[test]
    fn a_route_ages_from_its_last_confirmation_and_not_from_its_use() {
        let (cache, start) = (cache(8), Instant::now());
        cache.update("a/b", &route("one"), start);
        assert!(cache.get("a/b", start + Duration::from_secs(59)).is_some());
        assert!(cache.get("a/b", start + Duration::from_mins(1)).is_none());

        cache.update("a/b", &route("one"), start);
        cache.update("a/b", &route("two"), start + Duration::from_secs(50));
        let found = cache.get("a/b", start + Duration::from_secs(100)).unwrap();
        assert_eq!(*found, route("two"));
    }

    #[test]
    fn a_route_without_members_forgets() {
        let (cache, now) = (cache(8), Instant::now());
        cache.update("a/b", &route("one"), now);
        cache.update(
            "a/b",
            &Route {
                primary: -1,
                ..Route::default()
            },
            now,
        );
        assert!(cache.get("a/b", now).is_none());
    }

    #[test]
    fn the_number_of_routes_is_bounded() {
        let (cache, now) = (cache(4), Instant::now());
        for n in 0..100 {
            cache.update(&format!("a/{n}"), &route("one"), now);
        }
        let kept = (0..100)
            .filter(|n| cache.get(&format!("a/{n}"), now).is_some())
            .count();
        assert!(kept <= 4, "{kept}");
    }
}
