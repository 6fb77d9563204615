//! Appends.

use gazette_client::fake::{Call, Fault};
use gazette_protocol::Status;
use serde_json::{Value, json};

use crate::House;

#[test]
fn an_input_without_framing_is_one_append() {
    let house = House::new(&["app/log"]);
    let append = "journals append -l name=app/log";
    assert_eq!(house.run_with(append, b"hello\nworld\n").done(), "");
    let said = house.run_with(&format!("{append} -o json"), b"more").done();
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said, json!({"journal": "app/log", "begin": 12, "end": 16}));
    assert_eq!(house.content("app/log"), "hello\nworld\nmore");
    assert_eq!(house.broker.calls(Call::Append), 2);

    // Larger than what is held in memory.
    let large: Vec<u8> = (0..10_000_000_u32)
        .map(|n| b'a' + u8::try_from(n % 26).unwrap())
        .collect();
    house.write("large", std::str::from_utf8(&large).unwrap());
    house.run(&format!("{append} -i large")).done();
    assert_eq!(house.broker.content("app/log")[16..], large);

    house
        .run("journals append -l name=app/none")
        .failed(1, &["no journals match"]);
    house
        .broker
        .inject(Call::Append, [Fault::Status(Status::NotAllowed)]);
    house
        .run_with(append, b"x")
        .failed(1, &["append app/log: ", "NOT_ALLOWED", "; next: "]);
    house.broker.inject(Call::Append, [Fault::DropAnswer]);
    house
        .run_with(append, b"y")
        .failed(1, &["it may have taken place"]);
}

#[test]
fn each_line_is_an_append_of_its_own_and_the_last_one_gets_its_newline() {
    let house = House::new(&["tmp/a"]);
    let append = "journals append -l name=tmp/a -f lines -o json";
    let said = house.run_with(append, b"four\nfive").done();
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said, json!({"appends": 2, "bytes": 10, "error": null}));
    assert_eq!(house.content("tmp/a"), "four\nfive\n");

    let lines = (0..50_000)
        .map(|n| format!("line {n}\n"))
        .collect::<Vec<_>>()
        .concat();
    house.run_with(append, lines.as_bytes()).done();
    assert_eq!(house.content("tmp/a"), format!("four\nfive\n{lines}"));
}

#[test]
fn records_go_to_the_journals_that_their_keys_map_to() {
    let house = House::new(&["tmp/a", "tmp/b", "tmp/c"]);
    let append = "journals append -l prefix=tmp/ -f lines -m";
    let run = |mapping: &str, input: &str| {
        house.run_with(&format!("{append} {mapping}"), input.as_bytes())
    };
    run(
        "modulo",
        "key-1\nvalue-1\nkey-2\nvalue-2\nkey-3\nvalue-3\nkey-4\nvalue-4\n",
    )
    .done();
    run("rendezvous", "key-1\nR1\nkey-2\nR2\nkey-3\nR3\nkey-4\nR4\n").done();
    run(
        "direct",
        "tmp/b\ndirect-b\ntmp/c\ndirect-c\ntmp/a\ndirect-a\n",
    )
    .done();
    assert_eq!(house.content("tmp/a"), "value-3\nR4\ndirect-a\n");
    assert_eq!(house.content("tmp/b"), "value-1\nR3\ndirect-b\n");
    assert_eq!(
        house.content("tmp/c"),
        "value-2\nvalue-4\nR1\nR2\ndirect-c\n"
    );
    run("direct", "tmp/a\nyes\ntmp/zzz\nno\n").failed(
        1,
        &["1 records were appended before", "tmp/zzz", "; next: "],
    );
    run("modulo", "key\n").failed(1, &["ends after the key \"key\""]);
    let base64 = format!("{append} direct --base64");
    house.run_with(&base64, b"dG1wL2E=\nb64\n").done();
    assert!(house.content("tmp/a").ends_with("yes\nb64\n"));
    house
        .run_with(&base64, b"???\nb64\n")
        .failed(1, &["is not base64"]);
}
