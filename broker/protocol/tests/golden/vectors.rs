//! Bytes that were worked out by hand from the fields.

use gazette_protocol::*;
use prost::Message;

fn hex(message: &impl Message) -> String {
    message
        .encode_to_vec()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect::<Vec<_>>()
        .concat()
}

#[test]
fn a_broker_spec_has_these_bytes() {
    let spec = BrokerSpec {
        process_spec: ProcessSpec {
            id: process_spec::Id::new("local", "broker-1"),
            endpoint: "http://host:8080".to_owned(),
        },
        journal_limit: 1024,
        exiting: false,
    };
    assert_eq!(
        hex(&spec),
        "0a250a110a056c6f63616c120862726f6b65722d311210687474703a2f2f686f73743a38303830108008",
    );
}

#[test]
fn a_journal_spec_writes_its_empty_labels_and_durations() {
    let spec = JournalSpec {
        name: "foo/bar1".to_owned(),
        replication: 1,
        fragment: journal_spec::Fragment {
            length: 1 << 20,
            compression_codec: CompressionCodec::Snappy.into(),
            stores: vec!["file:///".to_owned()],
            refresh_interval: duration::from_seconds(60),
            ..journal_spec::Fragment::default()
        },
        ..JournalSpec::default()
    };
    assert_eq!(
        hex(&spec),
        "0a08666f6f2f6261723110011a0022180880804010041a0866696c653a2f2f2f2202083c2a003200",
    );
}

#[test]
fn routes_have_these_bytes() {
    let id = |zone: &str, suffix: &str| process_spec::Id::new(zone, suffix);
    let route = Route {
        members: vec![id("a", "brokerA"), id("b", "brokerB")],
        primary: 1,
        endpoints: Vec::new(),
    };
    assert_eq!(
        hex(&route),
        "0a0c0a0161120762726f6b6572410a0c0a0162120762726f6b6572421001"
    );
    assert_eq!(hex(&Route::unrouted()), "10ffffffffffffffffff01");
}

#[test]
fn an_empty_list_response_writes_an_empty_header() {
    assert_eq!(hex(&ListResponse::default()), "12060a0012001a00");
}

#[test]
fn presence_survives() {
    let header = Header::default();
    let response = AppendResponse::committed(header, Fragment::default(), LabelSet::default());
    let decoded = AppendResponse::decode(response.encode_to_vec().as_slice()).unwrap();
    assert_eq!(decoded.registers, Some(LabelSet::default()));
    assert_eq!(decoded.commit, Some(Fragment::default()));

    let request = AppendRequest {
        union_registers: Some(LabelSet::default()),
        ..Default::default()
    };
    let decoded = AppendRequest::decode(request.encode_to_vec().as_slice()).unwrap();
    assert!(decoded.changes_registers() && decoded.check_registers.is_none());
}

#[test]
fn fields_that_are_always_written_may_be_absent_from_a_peer() {
    assert_eq!(
        JournalSpec::decode([].as_slice()),
        Ok(JournalSpec::default())
    );
    assert_eq!(Header::decode([].as_slice()), Ok(Header::default()));
}

#[test]
fn fields_of_later_peers_are_skipped() {
    // Field 500, a text.
    let unknown = [0xa2, 0x1f, 0x02, b'h', b'i'];
    assert_eq!(Label::decode(unknown.as_slice()), Ok(Label::default()));
}
