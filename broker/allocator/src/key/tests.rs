use proptest::prelude::*;

use super::*;

fn keys() -> Keys {
    Keys::new("/gazette/cluster").unwrap()
}

#[test]
fn keys_are_those_of_the_reference() {
    let (keys, member) = (keys(), Id::new("local", "broker-1"));
    assert_eq!(keys.item("foo/bar1"), "/gazette/cluster/items/foo/bar1");
    assert_eq!(
        keys.member(&member),
        "/gazette/cluster/members/local#broker-1"
    );
    let assignment = keys.assignment("foo/bar1", &member, 0);
    assert_eq!(
        assignment,
        "/gazette/cluster/assign/foo/bar1#local#broker-1#0"
    );
    assert!(assignment.starts_with(&keys.assignments_of("foo/bar1")));
    assert!(!assignment.starts_with(&keys.assignments_of("foo/bar")));
}

#[test]
fn the_root_must_be_the_shortest_form_of_a_path() {
    let unclean = |root: &str| match Keys::new(root) {
        Err(KeyError::UncleanRoot { clean, .. }) => clean,
        other => panic!("{other:?}"),
    };
    assert_eq!(unclean("/gazette/cluster/"), "/gazette/cluster");
    assert_eq!(unclean("/gazette//cluster"), "/gazette/cluster");
    assert_eq!(unclean("/gazette/./a/../cluster"), "/gazette/cluster");
    unclean("");
    unclean("/");
}

#[test]
fn keys_that_are_not_ours_do_not_parse() {
    let parse = |key: &str| keys().parse(key.as_bytes()).map(drop);
    let foreign = Err(KeyError::Foreign);
    assert_eq!(parse("/gazette/cluster"), foreign);
    assert_eq!(parse("/gazette/cluster/items"), foreign);
    assert_eq!(parse("/gazette/cluster/other/foo"), foreign);
    assert_eq!(parse("/gazette/cluster2/items/foo"), foreign);
    assert_eq!(
        keys().parse(b"/gazette/cluster/items/\xff"),
        Err(KeyError::Foreign)
    );
    let parts = |found, expected| Err(KeyError::Parts { found, expected });
    assert_eq!(parse("/gazette/cluster/items/foo#bar"), parts(2, 1));
    assert_eq!(parse("/gazette/cluster/members/zone"), parts(1, 2));
    assert_eq!(
        parse("/gazette/cluster/assign/foo#zone#suffix"),
        parts(3, 4)
    );
    let part = |part: &str| {
        Err(KeyError::Part {
            part: part.to_owned(),
        })
    };
    assert_eq!(parse("/gazette/cluster/items/"), part(""));
    assert_eq!(parse("/gazette/cluster/members/zone#"), part(""));
    assert_eq!(parse("/gazette/cluster/items/a b"), part("a b"));
    for slot in ["x", "-1", "+1", "1.5", "99999999999"] {
        let key = format!("/gazette/cluster/assign/foo#zone#suffix#{slot}");
        assert!(parse(&key).is_err(), "{slot}");
    }
}

fn name() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9_.%/-]{1,12}"
}

proptest! {
    #[test]
    fn keys_parse_to_what_they_were_built_from(
        item in name(),
        zone in name(),
        suffix in name(),
        slot in any::<u32>(),
    ) {
        let (keys, member) = (keys(), Id::new(zone, suffix));
        let key = keys.item(&item);
        prop_assert_eq!(keys.parse(&key), Ok(Key::Item { id: &item }));
        let key = keys.member(&member);
        prop_assert_eq!(keys.parse(&key), Ok(Key::Member { id: member.clone() }));
        let key = keys.assignment(&item, &member, slot);
        prop_assert_eq!(keys.parse(&key), Ok(Key::Assignment { item: &item, member, slot }));
    }

    #[test]
    fn any_bytes_can_be_parsed(key in prop::collection::vec(any::<u8>(), 0..40)) {
        keys().parse(&key).ok();
        let mut ours = b"/gazette/cluster/assign/".to_vec();
        ours.extend(key);
        keys().parse(&ours).ok();
    }

    #[test]
    fn assignments_sort_as_their_items_do(items in prop::collection::vec(name(), 2)) {
        let keys = keys();
        let member = Id::new("zone", "suffix");
        let [one, two] = [&items[0], &items[1]].map(|item| keys.assignment(item, &member, 0));
        prop_assert_eq!(one.cmp(&two), items[0].cmp(&items[1]));
    }
}
