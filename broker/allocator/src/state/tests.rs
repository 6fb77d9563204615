use super::*;
use crate::testing::{Cluster, Toy, id};

fn names<'a>(items: impl Iterator<Item = ItemEntry<'a, Toy>>) -> Vec<&'a str> {
    items.map(|item| item.decoded.id.as_str()).collect()
}

#[test]
fn items_members_and_assignments_are_found_by_name() {
    let mut cluster = Cluster::new();
    cluster.member("zb#two", 5, false);
    cluster.member("za#one", 5, false);
    for item in ["a", "a/b", "a-c", "b"] {
        cluster.item(item, 1);
    }
    cluster.assign("a", "zb#two", 0, true);
    cluster.assign("a/b", "za#one", 0, true);
    cluster.assign("a", "za#one", 1, true);
    cluster.assign("gone", "za#one", 0, true);
    let state = cluster.state();

    assert_eq!(names(state.items()), ["a", "a-c", "a/b", "b"]);
    assert_eq!(names(state.items_with_prefix("a/")), ["a/b"]);
    assert_eq!(state.item("a").map(|item| item.decoded.spec), Some(1));
    assert!(state.item("a/").is_none());
    assert!(state.member(&id("za#one")).is_some() && state.member(&id("za#on")).is_none());
    let members = |item| -> Vec<_> {
        state
            .assignments_of(item)
            .map(|entry| entry.decoded.member.suffix.as_str())
            .collect()
    };
    assert_eq!(members("a"), ["one", "two"]);
    assert_eq!(members("gone"), ["one"]);
    assert_eq!(members("b"), [""; 0]);
    assert_eq!(state.assignments_to(&id("za#one")).count(), 3);
    let leader = state.leader().map(|member| member.decoded.id.clone());
    assert_eq!(leader, Some(id("zb#two")), "who came first leads");
}

#[test]
fn a_route_has_members_in_order_and_their_endpoints() {
    let mut cluster = Cluster::new();
    cluster.member("za#one", 5, false);
    cluster.assign("a", "zb#gone", 2, true);
    cluster.assign("a", "za#one", 0, true);
    let route = cluster.state().route("a");
    assert_eq!(route.members, [id("za#one"), id("zb#gone")]);
    assert_eq!(route.primary, 0);
    assert_eq!(route.endpoints, ["http://toy", ""]);
    assert_eq!(cluster.state().route("b"), Route::unrouted());
}

#[test]
fn an_item_is_consistent_when_all_its_assignments_are() {
    let mut cluster = Cluster::new();
    cluster.assign("a", "za#one", 0, true);
    cluster.assign("a", "za#two", 1, false);
    assert!(!cluster.state().is_consistent("a"));
    cluster.assign("a", "za#two", 1, true);
    assert!(cluster.state().is_consistent("a"));
    assert!(cluster.state().is_consistent("nothing"));
}
