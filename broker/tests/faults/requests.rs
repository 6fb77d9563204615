//! Requests that are wrong.

use gazette_client::in_process_channel;
use gazette_protocol::{
    ApplyRequest, JournalSpec, apply_request::Change, journal_client::JournalClient,
};

use crate::house::{self, House};

#[tokio::test(flavor = "multi_thread")]
async fn wrong_specs_and_names_are_refused_whole_and_say_what_is_wrong_where() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::start(folder.path()).await.unwrap();
    let client = house.client();
    house::create(&client, house::spec("good/one")).await;
    house::append(&client, "good/one", "content").await;
    let edit = |edit: fn(&mut JournalSpec)| {
        let mut spec = house::spec("wrong/one");
        edit(&mut spec);
        spec
    };
    let cases = [
        (
            edit(|s| s.fragment.stores = vec!["flie:///x/".to_owned()]),
            "Stores[0]",
        ),
        (
            edit(|s| s.fragment.stores = vec!["file:///no-slash".to_owned()]),
            "Stores[0]",
        ),
        (
            edit(|s| s.fragment.compression_codec = 99),
            "CompressionCodec",
        ),
        (edit(|s| s.fragment.length = 1), "Length"),
        (
            edit(|s| s.fragment.path_postfix_template = "{{ .Nope".to_owned()),
            "PathPostfixTemplate",
        ),
        (edit(|s| s.replication = 0), "Replication"),
        (edit(|s| s.name = "a".to_owned()), "Name"),
        (edit(|s| s.name = "with space/x".to_owned()), "Name"),
        (edit(|s| s.name = "/begins/so".to_owned()), "Name"),
        (edit(|s| s.name = "ends/so/".to_owned()), "Name"),
        (edit(|s| s.name = "up/../there".to_owned()), "Name"),
        (edit(|s| s.name = "nul\0/x".to_owned()), "Name"),
    ];
    let mut rpc = JournalClient::new(in_process_channel(house.broker.service().clone()));
    for (wrong, place) in cases {
        let change = |spec| Change {
            upsert: Some(spec),
            ..Change::default()
        };
        let good = change(house::spec("beside/it"));
        let request = ApplyRequest {
            changes: vec![good, change(wrong.clone())],
        };
        // Past the client, which looks too.
        let status = rpc.apply(request.clone()).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::Unknown, "{status}");
        assert!(status.message().contains("Changes[1].Upsert"), "{status}");
        assert!(
            status.message().contains(place),
            "{place} is not in {status}"
        );
        let error = client.apply(request).await.unwrap_err().to_string();
        assert!(
            error.contains(place) && error.contains("; next: "),
            "{error}"
        );
    }
    assert!(client.get_journal("beside/it").await.unwrap().is_none());
    assert_eq!(house::read(&client, "good/one").await, b"content");
    house.stop().await;
}
