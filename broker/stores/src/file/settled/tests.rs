use super::*;

fn folder() -> &'static Path {
    Path::new("/store/a")
}

#[test]
fn a_folder_is_settled_by_a_sync_only() {
    let mut settled = Settled::default();
    assert!(!settled.is_settled(folder()), "who knows what was before");
    let sync = settled.begin_sync(folder());
    settled.end_sync(folder(), &sync);
    assert!(settled.is_settled(folder()));
    assert!(
        !settled.is_settled(Path::new("/store")),
        "others are others"
    );
}

#[test]
fn a_change_unsettles_until_the_next_sync() {
    let mut settled = Settled::default();
    let sync = settled.begin_sync(folder());
    settled.end_sync(folder(), &sync);

    settled.begin_change(folder());
    assert!(!settled.is_settled(folder()));
    settled.end_change(folder());
    assert!(!settled.is_settled(folder()));

    let sync = settled.begin_sync(folder());
    settled.end_sync(folder(), &sync);
    assert!(settled.is_settled(folder()));
}

#[test]
fn a_sync_does_not_cover_a_change_that_overlaps_it() {
    // Each row: what happens in order. B and E begin and end a change, S and Y begin and end a sync.
    for (order, expected) in [
        ("BESY", true),
        ("BSEY", false),
        ("BSYE", false),
        ("SBEY", false),
        ("SBYE", false),
        ("SYBE", false),
        ("BBEESY", true),
        ("BBESEY", false),
        ("BESBEY", false),
    ] {
        let mut settled = Settled::default();
        let mut sync = None;
        for step in order.chars() {
            match step {
                'B' => settled.begin_change(folder()),
                'E' => settled.end_change(folder()),
                'S' => sync = Some(settled.begin_sync(folder())),
                _ => settled.end_sync(folder(), &sync.take().unwrap()),
            }
        }
        assert_eq!(settled.is_settled(folder()), expected, "{order}");
    }
}

#[test]
fn of_two_syncs_the_later_one_counts() {
    let mut settled = Settled::default();
    let early = settled.begin_sync(folder());
    settled.begin_change(folder());
    settled.end_change(folder());
    let late = settled.begin_sync(folder());
    settled.end_sync(folder(), &late);
    settled.end_sync(folder(), &early);
    assert!(settled.is_settled(folder()));
}
