//! The table of the FSM, and the checksum chain.

use bytes::{Bytes, BytesMut};
use gazette_recoverylog_fsm::{
    Applied, Author, FRAME_HEADER_BYTES, Fsm, FsmError, FsmHints, OpExtent, RecordedOp, chain,
};

use crate::support::{assert_state, base64, hex, int, json, list, log_name, op, uint32, wide};

fn reference_text(error: &FsmError) -> &'static str {
    match error {
        FsmError::NotHintedAuthor { .. } => "op author does not match the next hinted author",
        FsmError::WrongSeqNo { .. } => "wrong sequence number",
        FsmError::ChecksumMismatch { .. } => "checksum mismatch",
        FsmError::ExpectedHintedFnode => "op is not create, and an Fnode was hinted",
        FsmError::LinkExists => "link exists",
        FsmError::PropertyExists => "property exists",
        FsmError::NoSuchLink => "fnode has no such link",
    }
}

#[test]
fn the_fsm_applies_and_refuses_as_the_reference() {
    let table = json("fsm.json");
    let mut steps = 0;
    for row in list(&table["rows"]) {
        let name = row["name"].as_str().unwrap();
        let hints = FsmHints::decode(row["hints"].to_string().as_bytes()).unwrap();
        let fsm = Fsm::new(&hints);
        if let Some(error) = row.get("new_fsm_error") {
            assert!(fsm.is_err(), "{name}: {error}");
            continue;
        }
        let mut fsm = fsm.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_state(&fsm, &row["initial_state"], name);
        for (index, step) in list(&row["steps"]).iter().enumerate() {
            let context = format!("{name}, step {index}");
            let frame = Bytes::from(hex(step["frame"].as_str().unwrap()));
            let payload = frame.slice(FRAME_HEADER_BYTES..);
            let decoded = RecordedOp::decode(payload.clone()).unwrap();
            if let Some(op) = op(step) {
                assert_eq!(decoded, op, "{context}");
                let mut encoded = BytesMut::new();
                op.encode_frame(&mut encoded);
                // One row's frame holds the name of another log, which recorders never write.
                if step["log"] == "a/log" {
                    assert_eq!(encoded, frame, "{context}");
                }
            }
            let log = log_name(&step["log"]);
            let (begin, end) = (int(step, "first_offset"), int(step, "last_offset"));
            let extent = OpExtent {
                log: &log,
                begin,
                end,
            };
            let applied = fsm.apply(&decoded, chain(decoded.checksum, &payload), extent);
            let text = match applied {
                Ok(Applied::Applied) => None,
                Ok(Applied::NotTracked) => Some("fnode not tracked"),
                Err(error) => Some(reference_text(&error)),
            };
            assert_eq!(text, step["error"].as_str(), "{context}");
            assert_state(&fsm, &step["state"], &context);
            steps += 1;
        }
        let hints = wide(fsm.hints(fsm.last_log()));
        let expected = row["build_hints_json"].as_str().unwrap();
        assert_eq!(hints.to_json(), expected, "{name}");
        assert_eq!(
            hints.encode(),
            base64(&row["build_hints_pb_base64"]),
            "{name}"
        );
        // A row has a name with a member that only protobuf can say.
        assert_eq!(FsmHints::decode(&hints.encode()).unwrap(), hints, "{name}");
    }
    assert!(steps > 100, "{steps}");
}

#[test]
fn checksums_chain_and_authors_print_as_in_the_reference() {
    let data = json("checksum-chain.json");
    let mut previous = 0;
    for row in list(&data["chain"]) {
        let payload = hex(row["payload_hex"].as_str().unwrap());
        assert_eq!(chain(0, &payload), uint32(row, "from_zero"));
        previous = chain(previous, &payload);
        assert_eq!(previous, uint32(row, "chained"));
    }
    for row in list(&data["fences"]) {
        let author = Author::new(uint32(row, "author")).unwrap();
        let value = row["fence"]["labels"][0]["value"].as_str().unwrap();
        assert_eq!(author.register_value(), value);
        assert_eq!(Author::from_register_value(value), Some(author));
    }
}

/// Seven ops by author 1234, with the checksum after each.
const VECTORS: [(&str, &str, u32); 7] = [
    (
        "663393361800000008011dd2040000220f0a0d2f706174682f746f2f66696c65",
        "",
        0x568e_8e4e,
    ),
    (
        "66339336120000000802154e8e8e561dd20400003a0408011805",
        "68656c6c6f",
        0xe096_af84,
    ),
    (
        "663393361900000008031584af96e01dd20400002a0b080112072f6c696e6b6564",
        "",
        0x0cf4_6a01,
    ),
    (
        "663393361f000000080415016af40c1dd204000032110801120d2f706174682f746f2f66696c65",
        "",
        0x452d_b2ba,
    ),
    (
        "663393361f000000080515bab22d451dd204000042110a092f4944454e54495459120469642d31",
        "",
        0xc5ee_40e5,
    ),
    ("663393360c000000080615e540eec51dd2040000", "", 0x9f03_b143),
    (
        "663393361600000008071543b1039f1dd20400003a080801108080401801",
        "00",
        0xeaab_9c27,
    ),
];

#[test]
fn seven_ops_have_the_reference_bytes_checksums_and_hints() {
    let log: std::sync::Arc<str> = "a/log".into();
    let mut fsm = Fsm::of_log("a/log").unwrap();
    let mut offset = 0;
    for (frame, content, checksum) in VECTORS {
        let frame = Bytes::from(hex(frame));
        let payload = frame.slice(FRAME_HEADER_BYTES..);
        let op = RecordedOp::decode(payload.clone()).unwrap();
        let mut encoded = BytesMut::new();
        assert_eq!(op.encode_frame(&mut encoded), checksum);
        assert_eq!(encoded, frame);
        let content = hex(content).len();
        assert_eq!(op.content_length(), content as i64);
        let (begin, end) = (offset, offset + (frame.len() + content) as i64);
        let extent = OpExtent {
            log: &log,
            begin,
            end,
        };
        assert_eq!(
            fsm.apply(&op, chain(op.checksum, &payload), extent),
            Ok(Applied::Applied)
        );
        offset = end;
    }
    assert_eq!(offset, 225);
    let hints = fsm.hints(&log);
    assert_eq!(
        hints.to_json(),
        r#"{"log":"a/log","live_nodes":[{"fnode":1,"segments":[{"author":1234,"first_seq_no":1,"last_seq_no":7,"last_offset":225}]}],"properties":[{"path":"/IDENTITY","content":"id-1"}]}"#
    );
    let bytes = hex(
        "0a05612f6c6f6712100801120c0dd20400001001280730e1011a110a092f4944454e54495459120469642d31",
    );
    assert_eq!(hints.encode(), bytes);
}
