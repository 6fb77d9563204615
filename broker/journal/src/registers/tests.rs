use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn set(pairs: &[(&str, &str)]) -> LabelSet {
    LabelSet::from_pairs(pairs.iter().copied())
}

#[test]
fn empty_registers_pass_every_check() {
    let check = LabelSelector::parse("author=me").unwrap();
    assert!(admits(&LabelSet::default(), Some(&check)));
    assert!(admits(&set(&[("author", "me")]), Some(&check)));
    assert!(!admits(&set(&[("author", "you")]), Some(&check)));
    assert!(!admits(&set(&[("other", "x")]), Some(&check)));
    assert!(admits(&set(&[("author", "you")]), None));
}

#[test]
fn subtraction_comes_before_union() {
    let registers = set(&[("author", "me"), ("epoch", "1")]);
    let subtract = set(&[("author", "me")]);
    let union = set(&[("author", "you")]);
    let updated = update(&registers, Some(&subtract), Some(&union));
    assert_eq!(updated, set(&[("author", "you"), ("epoch", "1")]));
}

#[test]
fn labels_are_subtracted_and_united_as_a_whole() {
    let registers = set(&[("aa", "1"), ("aa", "2"), ("bb", "1")]);
    let one = set(&[("aa", "1")]);
    assert_eq!(
        update(&registers, Some(&one), None),
        registers,
        "it names one value of two"
    );
    let both = set(&[("aa", "1"), ("aa", "2")]);
    assert_eq!(update(&registers, Some(&both), None), set(&[("bb", "1")]));
    let united = update(&registers, None, Some(&set(&[("aa", "3")])));
    assert_eq!(united, set(&[("aa", "3"), ("bb", "1")]));
}

#[test]
fn an_empty_set_is_no_change() {
    assert!(!is_changed_by(None, Some(&LabelSet::default())));
    assert!(is_changed_by(Some(&set(&[("aa", "1")])), None));
}

type Model = BTreeMap<String, Vec<String>>;

fn model(set: &LabelSet) -> Model {
    let mut model = Model::new();
    for label in &set.labels {
        model
            .entry(label.name.clone())
            .or_default()
            .push(label.value.clone());
    }
    model
}

fn label_sets() -> impl Strategy<Value = LabelSet> {
    let names = prop::sample::select(vec!["aa", "bb", "cc"]);
    let values = prop::sample::select(vec!["1", "2", "3"]);
    prop::collection::vec((names, values), 0..6).prop_map(LabelSet::from_pairs)
}

proptest! {
    #[test]
    fn registers_are_a_map_from_names_to_lists(
        start in label_sets(),
        changes in prop::collection::vec((label_sets(), label_sets()), 0..8),
    ) {
        let mut expected = model(&start);
        let mut registers = start;
        for (subtract, union) in changes {
            registers = update(&registers, Some(&subtract), Some(&union));
            for (name, values) in model(&subtract) {
                if expected.get(&name) == Some(&values) {
                    expected.remove(&name);
                }
            }
            expected.extend(model(&union));
            prop_assert_eq!(model(&registers), expected.clone());
        }
    }
}
