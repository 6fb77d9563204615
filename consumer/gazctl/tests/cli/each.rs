//! What is done for each of several journals, and to stores.

use gazette_client::fake::{Call, Fault};
use gazette_protocol::CompressionCodec;
use serde_json::Value;

use crate::House;

#[test]
fn what_concerns_each_journal_is_told_for_each() {
    let house = House::new(&["tmp/a", "tmp/b"]);
    house.broker.append("tmp/a", b"content\n");
    house
        .broker
        .store("tmp/a", CompressionCodec::Gzip, house.folder.path())
        .unwrap();
    let fragments = house.run("journals fragments -l prefix=tmp/").done();
    assert!(
        fragments.contains("│ tmp/a   │ 0      │ 8 B    │ "),
        "{fragments}"
    );
    let json = house.run("journals fragments -l name=tmp/a -o json").done();
    let json: Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    assert_eq!(json["spec"]["end"], 8);

    let flushed = house.run("journals flush -l name=tmp/a").done();
    assert_eq!(flushed, "tmp/a: all before offset 8 is stored\n");
    house.broker.append("tmp/b", b"not stored\n");
    house
        .run("journals flush -l name=tmp/b --timeout 100ms")
        .failed(
            1,
            &[
                "flush tmp/b: what follows offset 0 is not in a store",
                "; next: ",
            ],
        );

    let heads = house.run("journals reset-head -l prefix=tmp/").done();
    assert_eq!(heads, "tmp/a: write head is 8\ntmp/b: write head is 11\n");
    house
        .broker
        .inject(Call::Append, [Fault::Rpc(tonic::Code::Internal, "no luck")]);
    let failed = house.run("journals reset-head -l prefix=tmp/");
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(
        failed
            .err
            .contains("error: reset head: 1 of 2 journals failed"),
        "{failed:?}"
    );

    let suspended = house
        .run("journals suspend -f -l prefix=tmp/ -o json")
        .done();
    let suspended: Vec<Value> = suspended
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(suspended.len(), 2);
    assert_eq!(suspended[1]["journal"], "tmp/b");
    assert_eq!(suspended[1]["error"], Value::Null);
    let table = house.run("journals list -p").done();
    assert_eq!(table.matches("<S>").count(), 2, "{table}");
}

#[test]
fn the_health_of_a_store_is_the_exit_code() {
    let house = House::new(&[]);
    let health = house.run("journals store-health file:///store/").done();
    assert_eq!(health, "Fragment store file:///store/ is healthy\n");
    house.broker.set_store_error("the disk is gone");
    house
        .run("journals store-health file:///store/")
        .failed(1, &["check store file:///store/: the disk is gone"]);
}
