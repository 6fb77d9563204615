use gazette_protocol::Fragment;

use super::{super::At, *};

fn survey(fragments: &[(i64, i64)]) -> Survey {
    Survey {
        fragments: fragments
            .iter()
            .map(|&(begin, end)| Stretch {
                fragment: Fragment {
                    begin,
                    end,
                    ..Fragment::default()
                },
                at: At::Broker,
            })
            .collect(),
        head: fragments.iter().map(|f| f.1).max().unwrap_or(0),
        is_head_exact: true,
    }
}

type Shown = (i64, i64, Option<(i64, i64)>);

fn shown(parts: &[Part]) -> Vec<Shown> {
    parts
        .iter()
        .map(|part| {
            let supply = match &part.supply {
                Supply::Stretch(stretch) => Some((stretch.fragment.begin, stretch.fragment.end)),
                Supply::Nothing => None,
            };
            (part.begin, part.end, supply)
        })
        .collect()
}

#[test]
fn a_range_is_supplied_by_the_stretches_that_reach_furthest() {
    let survey = survey(&[(0, 10), (0, 30), (5, 20), (20, 40), (40, 50)]);
    assert_eq!(
        shown(&parts(&survey, 3, 45)),
        [
            (3, 30, Some((0, 30))),
            (30, 40, Some((20, 40))),
            (40, 45, Some((40, 50)))
        ]
    );
}

#[test]
fn what_nothing_supplies_is_a_gap() {
    let survey = survey(&[(10, 20), (30, 40)]);
    assert_eq!(
        shown(&parts(&survey, 0, 50)),
        [
            (0, 10, None),
            (10, 20, Some((10, 20))),
            (20, 30, None),
            (30, 40, Some((30, 40))),
            (40, 50, None)
        ]
    );
    assert_eq!(gaps(&survey, 12, 18), []);
    assert_eq!(gaps(&survey, 12, 31), [Gap { begin: 20, end: 30 }]);
}

#[test]
fn an_empty_range_has_no_parts() {
    assert!(parts(&survey(&[]), 7, 7).is_empty());
    assert_eq!(gaps(&survey(&[]), 0, 7), [Gap { begin: 0, end: 7 }]);
}
