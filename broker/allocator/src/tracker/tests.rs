use crate::testing::{Cluster, id};

fn take(cluster: &mut Cluster) -> (Vec<String>, bool) {
    let dirty = cluster.tracker.take_dirty().into_iter().collect();
    (dirty, cluster.tracker.take_network_changed())
}

fn dirty(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn only_demand_and_supply_change_the_network() {
    let mut cluster = Cluster::new();
    cluster.item("a", 2);
    assert_eq!(take(&mut cluster), (dirty(&["a"]), true));
    cluster.item("a", 2);
    assert_eq!(
        take(&mut cluster),
        (dirty(&["a"]), false),
        "the same replication"
    );
    cluster.item("a", 3);
    assert_eq!(take(&mut cluster), (dirty(&["a"]), true));
    cluster.member("za#one", 5, false);
    assert_eq!(take(&mut cluster), (dirty(&[]), true));
    cluster.member("za#one", 5, false);
    assert_eq!(take(&mut cluster), (dirty(&[]), false));
    cluster.member("za#one", 5, true);
    assert_eq!(take(&mut cluster), (dirty(&[]), true));
    cluster.assign("a", "za#one", 0, false);
    assert_eq!(take(&mut cluster), (dirty(&["a"]), false));
    cluster.remove_item("a");
    assert_eq!(take(&mut cluster), (dirty(&["a"]), true));
}

#[test]
fn loads_are_counted_up_and_down() {
    let mut cluster = Cluster::new();
    cluster.member("za#one", 5, false);
    cluster.member("za#two", 5, false);
    cluster.assign("a", "za#one", 0, false);
    cluster.assign("b", "za#one", 1, false);
    cluster.assign("b", "za#two", 0, false);
    cluster.catch_up();
    let load = |cluster: &Cluster, member| {
        let load = cluster.tracker.load(&id(member));
        (load.assigned, load.primary)
    };
    assert_eq!(load(&cluster, "za#one"), (2, 1));
    assert_eq!(load(&cluster, "za#two"), (1, 1));
    cluster.kill("za#one");
    assert_eq!(load(&cluster, "za#one"), (0, 0));
    assert_eq!(cluster.tracker.loads().len(), 1);
}
