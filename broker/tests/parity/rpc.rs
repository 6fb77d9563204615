//! RPCs, case by case against `rpc/journal.json`.

use std::{fmt::Write as _, time::Duration};

use futures_util::{Stream, StreamExt as _, stream};
use gazette_client::in_process_channel;
use gazette_protocol::{
    AppendRequest, AppendResponse, ApplyRequest, FragmentStoreHealthRequest,
    FragmentStoreHealthResponse, FragmentsRequest, FragmentsResponse, Header, ListRequest,
    ListResponse, ReadRequest, ReadResponse, ReplicateRequest, ReplicateResponse, Status,
    journal_client::JournalClient,
    json::{self, JsonForm, WireMessage},
};
use serde_json::{Value, json};

use crate::house::{self, House};

type Rpc = JournalClient<gazette_client::BoxChannel>;

/// What needs other brokers, and what `docs/COMPATIBILITY.md` tells of.
fn is_left_out(case: &Value) -> bool {
    let name = case["name"].as_str().unwrap();
    let needs_peers = [
        // Asked of a broker that is not the primary, or not a member.
        "do_not_proxy_each_3",
        "do_not_proxy_each_4",
        "replicate_not_member_3",
        "replicate_not_member_4",
        "read_do_not_proxy_4",
    ];
    // In a process there is no limit of a message; the socket has it, see `message_over_4MiB`.
    let is_socket = name == "message_over_4MiB";
    needs_peers.contains(&name) || is_socket
}

/// The code that an RPC shall end with: the recorded one, but for two cases.
fn expected_end(case: &Value) -> Value {
    match case["name"].as_str().unwrap() {
        // INVALID_ARGUMENT tells a client that trying again is of no use.
        "apply_same_journal_twice" => json!(3),
        // A change of no registers changes none, so it needs no content.
        "empty_union_without_content" => Value::Null,
        _ => case["end"].get("code").cloned().unwrap_or_default(),
    }
}

/// A message of the recording, with the identity of the cluster replaced by ours.
fn message<M: WireMessage>(recorded: &Value, header: &Header) -> M {
    let mut recorded = recorded.clone();
    let name = recorded["journal"].as_str().map(str::to_owned);
    for field in ["header", "watch_resume"] {
        if let Some(theirs) = recorded.get_mut(field) {
            if theirs["etcd"]["cluster_id"] == json!("12101053776118486841") {
                theirs["etcd"]["cluster_id"] = json!(header.etcd.cluster_id.to_string());
                theirs["etcd"]["member_id"] = json!(header.etcd.member_id.to_string());
            }
            let future = theirs["etcd"]["revision"]
                .as_str()
                .is_some_and(|r| r.len() > 6);
            if !future {
                theirs["etcd"]["revision"] = json!(header.etcd.revision.to_string());
            }
        }
    }
    json::from_json(&recorded).unwrap_or_else(|error| panic!("{name:?}: {error}"))
}

/// A message as text, without what differs from run to run.
fn told<M: WireMessage>(message: &M) -> Value {
    let mut value = json::to_json(message, JsonForm::OriginalNames);
    strip(&mut value);
    value
}

fn strip(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for name in ["header", "route", "mod_revision", "create_revision"] {
                fields.remove(name);
            }
            if let Some(time) = fields.get_mut("mod_time") {
                *time = json!(*time != json!("0"));
            }
            for name in ["fragment_url", "signed_url"] {
                if let Some(url) = fields.get_mut(name) {
                    *url = json!(
                        url.as_str()
                            .unwrap()
                            .split_once("://")
                            .map(|(s, _)| s.to_owned())
                    );
                }
            }
            fields.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn end_of<T>(result: &Result<T, tonic::Status>) -> Value {
    match result {
        Ok(_) => Value::Null,
        Err(status) => json!(status.code() as i32),
    }
}

struct Run {
    rpc: Rpc,
    header: Header,
    told: String,
}

impl Run {
    fn unary<M: WireMessage + std::fmt::Debug>(
        &mut self,
        case: &Value,
        answer: &Result<M, tonic::Status>,
    ) {
        let name = case["name"].as_str().unwrap();
        let end = end_of(answer);
        let expected = expected_end(case);
        if end != expected {
            writeln!(
                self.told,
                "{name}: ends with {end} ({answer:?}) for {}",
                case["end"]
            )
            .unwrap();
        }
        if let (Ok(ours), Some(recorded)) = (answer, case.get("response")) {
            let (ours, recorded) = (told(ours), told(&message::<M>(recorded, &self.header)));
            if ours != recorded {
                writeln!(self.told, "{name}:\n   {ours}\n   {recorded}").unwrap();
            }
        }
    }

    /// Takes the messages of a stream and its end: null, a code, or 4 if it does not end.
    async fn stream<M>(
        &self,
        stream: Result<tonic::Response<tonic::Streaming<M>>, tonic::Status>,
        patience: Duration,
    ) -> (Vec<M>, Value) {
        let mut stream = match stream {
            Ok(stream) => stream.into_inner(),
            Err(status) => return (Vec::new(), json!(status.code() as i32)),
        };
        let mut messages = Vec::new();
        loop {
            match tokio::time::timeout(patience, stream.next()).await {
                Ok(Some(Ok(message))) => messages.push(message),
                Ok(Some(Err(status))) => return (messages, json!(status.code() as i32)),
                Ok(None) => return (messages, Value::Null),
                Err(_) => return (messages, json!(4)),
            }
        }
    }

    async fn read(&mut self, case: &Value) {
        let name = case["name"].as_str().unwrap();
        let request: ReadRequest = message(&case["request"], &self.header);
        let waits = case["end"]["code"] == json!(4);
        let patience = Duration::from_millis(if waits { 600 } else { 5000 });
        let asked = tokio::time::timeout(patience, self.rpc.read(request)).await;
        let (ours, end) = match asked {
            Ok(stream) => self.stream(stream, patience).await,
            Err(_) => (Vec::new(), json!(4)),
        };
        let expected = expected_end(case);
        if end != expected {
            writeln!(self.told, "{name}: ends with {end} for {expected}").unwrap();
        }
        let recorded: Vec<ReadResponse> = (case["responses"].as_array().into_iter().flatten())
            .map(|response| {
                if let Some(recorded) = response.get("message") {
                    return message(recorded, &self.header);
                }
                // Zeros, of which the recording has the number only.
                let length = response["content_length"].as_u64().unwrap();
                ReadResponse {
                    offset: response["offset"].as_i64().unwrap(),
                    content: vec![0; usize::try_from(length).unwrap()].into(),
                    ..ReadResponse::default()
                }
            })
            .collect();
        let (ours, recorded) = (joined(&ours), joined(&recorded));
        if ours != recorded {
            writeln!(self.told, "{name}:\n   {ours:?}\n   {recorded:?}").unwrap();
        }
    }
}

/// The messages of a read; content that follows other content is joined to it.
fn joined(responses: &[ReadResponse]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut content: Option<(i64, Vec<u8>)> = None;
    let flush = |content: &mut Option<(i64, Vec<u8>)>, all: &mut Vec<String>| {
        if let Some((offset, bytes)) = content.take() {
            let sum = house::sha1_hex(&bytes);
            all.push(format!("{} bytes at {offset} with sum {sum}", bytes.len()));
        }
    };
    for response in responses {
        if response.content.is_empty() {
            flush(&mut content, &mut all);
            all.push(told(response).to_string());
        } else if let Some((_, bytes)) = &mut content {
            bytes.extend_from_slice(&response.content);
        } else {
            content = Some((response.offset, response.content.to_vec()));
        }
    }
    flush(&mut content, &mut all);
    all
}

/// The messages of an append, at the pace of the recording.
#[expect(clippy::needless_collect, reason = "the stream outlives the case")]
fn appends(case: &Value, header: &Header) -> impl Stream<Item = AppendRequest> + Send + 'static {
    let requests: Vec<AppendRequest> = (case["requests"].as_array().into_iter().flatten())
        .map(|request| match request["content_length"].as_u64() {
            Some(length) => AppendRequest {
                content: vec![0; usize::try_from(length).unwrap()].into(),
                ..AppendRequest::default()
            },
            None => message(request, header),
        })
        .collect();
    let pause = Duration::from_millis(case["pause_between_messages_ms"].as_u64().unwrap_or(0));
    stream::iter(requests.into_iter().enumerate()).then(move |(at, request)| async move {
        if at > 0 {
            tokio::time::sleep(pause).await;
        }
        request
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn rpcs_end_as_with_the_reference() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("fragments/store")).unwrap();
    let house = House::start(folder.path()).await.unwrap();
    let client = house.client();
    let mut rpc = Rpc::new(in_process_channel(house.broker.service().clone()));
    let listed = rpc
        .list(ListRequest::default())
        .await
        .unwrap()
        .into_inner()
        .next()
        .await;
    let header = listed.unwrap().unwrap().header;
    let mut run = Run {
        rpc,
        header,
        told: String::new(),
    };
    let golden = house::golden_json("rpc/journal.json");
    for case in golden["cases"].as_array().unwrap() {
        if is_left_out(case) {
            continue;
        }
        let name = case["name"].as_str().unwrap();
        let request = &case["request"];
        match case["rpc"].as_str().unwrap() {
            "Apply" => {
                let request: ApplyRequest = message(request, &run.header);
                let answer = run
                    .rpc
                    .apply(request)
                    .await
                    .map(tonic::Response::into_inner);
                run.unary(case, &answer);
            }
            "Append" => {
                let requests = appends(case, &run.header);
                let append = run.rpc.append(requests);
                let answer = tokio::time::timeout(Duration::from_secs(12), append).await;
                let answer = answer.unwrap_or_else(|_| panic!("{name} does not end"));
                run.unary::<AppendResponse>(case, &answer.map(tonic::Response::into_inner));
                // As in the recording, where the pace was that of people.
                match name {
                    "append_check_registers_empty" => stored_first(&client, "rpc/one").await,
                    "forty_chunks" => stored_first(&client, "rpc/two").await,
                    _ => {}
                }
            }
            "Read" => run.read(case).await,
            "ListFragments" => {
                let request: FragmentsRequest = message(request, &run.header);
                let answer = run.rpc.list_fragments(request).await;
                run.unary::<FragmentsResponse>(case, &answer.map(tonic::Response::into_inner));
            }
            "FragmentStoreHealth" => {
                let request: FragmentStoreHealthRequest = message(request, &run.header);
                let answer = run.rpc.fragment_store_health(request).await;
                let answer = answer.map(tonic::Response::into_inner);
                run.unary::<FragmentStoreHealthResponse>(case, &answer);
            }
            "List" if request["watch"] != json!(true) => {
                let request: ListRequest = message(request, &run.header);
                let stream = run.rpc.list(request).await;
                let (ours, end) = run.stream(stream, Duration::from_secs(5)).await;
                assert_eq!(end, Value::Null, "{name}");
                let recorded = case["responses"].as_array().unwrap();
                let names = |responses: Vec<ListResponse>| -> Vec<Value> {
                    responses.iter().map(told).collect()
                };
                let ours = names(ours);
                let recorded = recorded.iter().map(|r| message(&r["message"], &run.header));
                let recorded = names(recorded.collect());
                if ours != recorded {
                    writeln!(run.told, "{name}:\n   {ours:?}\n   {recorded:?}").unwrap();
                }
            }
            // See the test of a watch.
            "List" => {}
            "Replicate" => {
                let requests: Vec<ReplicateRequest> = case["requests"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|request| message(request, &run.header))
                    .collect();
                let stream = run.rpc.replicate(stream::iter(requests)).await;
                let (ours, end) = run.stream(stream, Duration::from_secs(5)).await;
                let ours: Vec<Value> = ours.iter().map(told).collect();
                let recorded: Vec<Value> = (case["responses"].as_array().into_iter().flatten())
                    .map(|recorded| told(&message::<ReplicateResponse>(recorded, &run.header)))
                    .collect();
                if (&end, &ours) != (&expected_end(case), &recorded) {
                    writeln!(run.told, "{name}: {end}\n   {ours:?}\n   {recorded:?}").unwrap();
                }
            }
            other => panic!("{other}"),
        }
    }
    let told = run.told;
    house.stop().await;
    assert!(told.is_empty(), "\n{told}");
}

/// Waits until the first fragment is in its store, if the append closed it.
async fn stored_first(client: &gazette_client::Client, journal: &str) {
    house::append(client, journal, bytes::Bytes::new()).await;
    house::stored(client, journal).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_tells_whole_snapshots_with_an_empty_message_after_each() {
    let folder = tempfile::tempdir().unwrap();
    let house = House::start(folder.path()).await.unwrap();
    let client = house.client();
    for number in 0..30 {
        house::create(&client, house::spec(&format!("many/j{number:02}"))).await;
    }
    let mut rpc = Rpc::new(in_process_channel(house.broker.service().clone()));
    let request = ListRequest {
        watch: true,
        ..ListRequest::default()
    };
    let mut watch = rpc.list(request).await.unwrap().into_inner();
    let first = next(&mut watch).await.unwrap();
    assert_eq!((first.status(), first.journals.len()), (Status::Ok, 25));
    let second = next(&mut watch).await.unwrap();
    assert_eq!(
        (second.header, second.journals.len()),
        (Header::default(), 5)
    );
    assert_eq!(next(&mut watch).await, Some(ListResponse::default()));
    // A change of content is none of a spec.
    house::append(&client, "many/j00", "content").await;
    assert_eq!(next(&mut watch).await, None);
    house::create(&client, house::spec("more/one")).await;
    let again = next(&mut watch).await.unwrap();
    assert_eq!(again.journals.len(), 25);
    assert!(again.header.etcd.revision > first.header.etcd.revision);
    assert_eq!(next(&mut watch).await.unwrap().journals.len(), 6);
    assert_eq!(next(&mut watch).await, Some(ListResponse::default()));
    // What resumes here hears of the next change only.
    let resumed = ListRequest {
        watch: true,
        watch_resume: Some(again.header.clone()),
        ..ListRequest::default()
    };
    let resumed = tokio::time::timeout(Duration::from_secs(5), rpc.list(resumed)).await;
    let mut resumed = resumed.unwrap().unwrap().into_inner();
    drop(next(&mut resumed).await);
    while next(&mut resumed).await.is_some() {}
    house::create(&client, house::spec("more/two")).await;
    assert!(next(&mut resumed).await.unwrap().header.etcd.revision > again.header.etcd.revision);
    house.stop().await;
}

async fn next(watch: &mut tonic::Streaming<ListResponse>) -> Option<ListResponse> {
    let next = tokio::time::timeout(Duration::from_millis(500), watch.next()).await;
    next.ok().map(|message| message.unwrap().unwrap())
}
