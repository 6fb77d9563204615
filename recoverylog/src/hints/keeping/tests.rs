use super::*;
use crate::hints::Note;

/// What a journal says in which each record has ten bytes, from a record on.
fn keeping_from(first: usize, notes: &[NoteBody], now: i64) -> Keeping {
    let mut keeping = Keeping::default();
    for (begin, body) in (0..).step_by(10).zip(notes).skip(first) {
        let note = Note {
            time: Timestamp::default(),
            body: body.clone(),
        };
        let end = begin + 10;
        keeping.add(Scanned::Note { begin, end, note }, now);
    }
    keeping
}

fn pin_until(until: Option<i64>) -> NoteBody {
    NoteBody::Pin(Pin {
        name: "keep/monday".to_owned(),
        until,
        from: 0,
        to: 5,
        hints: FsmHints::of_log("a/log"),
    })
}

fn release() -> NoteBody {
    let name = "keep/monday".to_owned();
    NoteBody::Release { name }
}

#[test]
fn what_ended_a_pin_is_needed_as_long_as_the_record_of_the_pin_is_there() {
    let (for_ever, short) = (pin_until(None), pin_until(Some(50)));
    let cases = [
        (vec![for_ever.clone(), release()], Some(10)),
        (vec![for_ever.clone(), short.clone()], Some(10)),
        (vec![for_ever.clone(), short, release()], Some(20)),
        (vec![for_ever.clone(), release(), release()], Some(20)),
        (vec![for_ever.clone(), release(), for_ever], None),
    ];
    for (notes, end) in cases {
        let keeping = keeping_from(0, &notes, 100);
        let ends = keeping.ends.get("keep/monday").map(|(begin, _)| *begin);
        assert_eq!(ends, end, "{notes:?}");
        assert_eq!(keeping.pins.is_empty(), end.is_some(), "{notes:?}");
        // The pin's record is gone: what ended it may go too.
        let later = keeping_from(1, &notes[..2], 100);
        assert_eq!((later.ends.len(), later.pins.len()), (0, 0));
    }
}
