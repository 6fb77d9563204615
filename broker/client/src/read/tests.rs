use gazette_protocol::{CompressionCodec, Fragment, StoredFragment};

use super::*;
use crate::{
    ClientOptions, ErrorKind, FragmentReader,
    fake::{Call, FakeBroker, Fault},
    golden,
};

fn reader(offset: i64) -> Reader {
    let request = ReadRequest {
        journal: "app/log".to_owned(),
        offset,
        ..ReadRequest::default()
    };
    FakeBroker::new().client().reader(request)
}

fn metadata(begin: i64, end: i64, offset: i64) -> ReadResponse {
    ReadResponse {
        offset,
        write_head: end,
        fragment: Some(Fragment {
            journal: "app/log".to_owned(),
            begin,
            end,
            sum: gazette_protocol::Sha1Sum {
                part1: 1,
                part2: 2,
                part3: 3,
            },
            compression_codec: CompressionCodec::None.into(),
            ..Fragment::default()
        }),
        ..ReadResponse::default()
    }
}

fn content(offset: i64, content: &'static str) -> ReadResponse {
    ReadResponse {
        offset,
        content: content.into(),
        ..ReadResponse::default()
    }
}

/// Feeds messages as if they came from a broker. The connection itself is not looked at.
fn feed(reader: &mut Reader, messages: Vec<ReadResponse>) -> Result<Vec<ReadEvent>, ReadCause> {
    let mut events = Vec::new();
    for message in messages {
        match reader.take(message)? {
            Step::Event(event) => events.push(event),
            Step::Again => {}
            Step::End => break,
        }
    }
    Ok(events)
}

#[tokio::test]
async fn content_comes_at_the_offsets_that_were_announced() {
    let mut reader = reader(3);
    let messages = vec![metadata(0, 8, 3), content(3, "abc"), content(6, "de")];
    let events = feed(&mut reader, messages).unwrap();
    assert!(matches!(events[0], ReadEvent::Metadata(_)));
    assert_eq!(
        events[1],
        ReadEvent::Content {
            offset: 3,
            bytes: "abc".into()
        }
    );
    assert_eq!(
        events[2],
        ReadEvent::Content {
            offset: 6,
            bytes: "de".into()
        }
    );
    assert_eq!(reader.offset(), 8);
}

#[tokio::test]
async fn answers_that_break_the_protocol_are_errors() {
    let cases = [
        ("content before metadata", -1, vec![content(0, "abc")]),
        (
            "content at another offset",
            0,
            vec![metadata(0, 8, 0), content(1, "abc")],
        ),
        (
            "content that goes back",
            0,
            vec![metadata(0, 8, 0), content(0, "a"), content(0, "a")],
        ),
        (
            "an offset before the one asked for",
            5,
            vec![metadata(0, 8, 4)],
        ),
        (
            "an offset outside of the fragment",
            0,
            vec![metadata(2, 8, 1)],
        ),
        (
            "a status from the future",
            0,
            vec![ReadResponse {
                status: 99,
                ..metadata(0, 8, 0)
            }],
        ),
    ];
    for (name, offset, messages) in cases {
        let cause = feed(&mut reader(offset), messages).unwrap_err();
        let is_protocol = matches!(cause, ReadCause::Protocol(_) | ReadCause::Answer(_));
        assert!(is_protocol, "{name}: {cause}");
    }
}

#[tokio::test]
async fn an_empty_answer_at_the_end_gives_the_offset() {
    let mut reader = reader(-1);
    let answer = ReadResponse {
        status: Status::OffsetNotYetAvailable.into(),
        offset: 42,
        write_head: 42,
        ..ReadResponse::default()
    };
    assert!(matches!(reader.take(answer), Err(ReadCause::Status { .. })));
    assert_eq!(reader.offset(), 42);
}

#[tokio::test]
async fn all_answers_of_gazette_are_understood() {
    for case in golden::cases("Read") {
        let request: ReadRequest = case.request();
        let mut reader = FakeBroker::new().client().reader(request.clone());
        let mut offset = request.offset;
        for message in case.responses::<ReadResponse>() {
            let status = message.status();
            match reader.take(message) {
                Ok(Step::Event(ReadEvent::Content { offset: at, bytes })) => {
                    assert_eq!(at, offset, "{}", case.name);
                    offset += i64::try_from(bytes.len()).unwrap();
                }
                Ok(Step::Event(ReadEvent::Metadata(metadata))) => offset = metadata.offset,
                Ok(Step::Event(ReadEvent::Jump { to, .. })) => offset = to,
                Ok(_) => panic!("{}", case.name),
                Err(ReadCause::Status {
                    status: surfaced, ..
                }) => {
                    assert_ne!(status, Status::Ok, "{}", case.name);
                    assert_eq!(status, surfaced);
                }
                Err(cause) => panic!("{}: {cause}", case.name),
            }
        }
        if case.is_clean() && request.end_offset != 0 {
            assert_eq!(
                reader.offset().min(request.end_offset),
                reader.offset(),
                "{}",
                case.name
            );
        }
    }
}

#[tokio::test]
async fn fragments_that_gazette_stored_are_read_and_verified() {
    let mut count = 0;
    for store in ["store", "store_file_only"] {
        let root = golden::folder().join("fragments").join(store);
        let client = FakeBroker::new().client_with(ClientOptions {
            file_root: Some(root.clone()),
            ..ClientOptions::default()
        });
        let mut folders = vec![root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in folder.read_dir().unwrap().map(Result::unwrap) {
                if entry.file_type().unwrap().is_dir() {
                    folders.push(entry.path());
                    continue;
                }
                let path = entry
                    .path()
                    .strip_prefix(&root)
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned();
                let (journal, name) = path.rsplit_once('/').unwrap();
                let fragment = StoredFragment::parse(journal, name).unwrap().fragment;
                let whole = drain(&client, &fragment, &path, fragment.begin).await;
                assert_eq!(
                    whole.len() as u64,
                    fragment.content_length().cast_unsigned()
                );
                let middle = fragment.begin + fragment.content_length() / 2;
                let rest = drain(&client, &fragment, &path, middle).await;
                assert!(whole.ends_with(&rest));
                count += 1;
            }
        }
    }
    assert!(count > 10);
}

async fn drain(client: &Client, fragment: &Fragment, path: &str, begin: i64) -> Vec<u8> {
    let url = format!("file:///{path}");
    let opened =
        FragmentReader::open(client.clone(), fragment.clone(), url, begin, fragment.end).await;
    let mut reader = opened.unwrap();
    let mut content = Vec::new();
    while let Some(bytes) = reader.next().await.unwrap() {
        content.extend_from_slice(&bytes);
    }
    content
}

#[tokio::test]
async fn it_ends_once_and_stays_ended() {
    let broker = FakeBroker::new();
    broker.create("app/log");
    broker.append("app/log", b"x");
    broker.inject(Call::Read, [Fault::BreakAfter(1)]);
    let request = ReadRequest {
        journal: "app/log".to_owned(),
        ..ReadRequest::default()
    };
    let mut reader = broker.client().reader(request);
    assert!(matches!(
        reader.next().await,
        Ok(Some(ReadEvent::Metadata(_)))
    ));
    assert_eq!(reader.next().await.unwrap_err().kind(), ErrorKind::Retry);
    assert_eq!(reader.next().await.unwrap(), None);
}

#[tokio::test]
async fn a_request_that_is_not_valid_is_not_sent() {
    let error = reader(-7).next().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}
