//! Answers of Gazette's brokers, as recorded.

use std::path::PathBuf;

use gazette_protocol::json::{WireMessage, from_json};
use serde_json::Value;

/// Folder of the recorded data.
pub(crate) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/broker")
}

/// A recorded RPC.
pub(crate) struct Case {
    pub(crate) name: String,
    value: Value,
}

/// The recorded RPCs called `rpc`.
pub(crate) fn cases(rpc: &str) -> Vec<Case> {
    let text = std::fs::read_to_string(folder().join("rpc/journal.json")).unwrap();
    let Value::Array(cases) = serde_json::from_str::<Value>(&text).unwrap()["cases"].take() else {
        panic!("no cases");
    };
    let cases: Vec<Case> = cases
        .into_iter()
        .filter(|case| case["rpc"] == rpc)
        .map(|value| Case {
            name: value["name"].as_str().unwrap().to_owned(),
            value,
        })
        .collect();
    assert!(!cases.is_empty());
    cases
}

impl Case {
    pub(crate) fn request<M: WireMessage>(&self) -> M {
        let request = self
            .value
            .get("request")
            .unwrap_or_else(|| &self.value["requests"][0]);
        from_json(request).unwrap()
    }

    pub(crate) fn response<M: WireMessage>(&self) -> Option<M> {
        self.value
            .get("response")
            .map(|response| from_json(response).unwrap())
    }

    /// The messages of a stream, up to the first of which only the size was recorded.
    pub(crate) fn responses<M: WireMessage>(&self) -> Vec<M> {
        let responses = self.value["responses"]
            .as_array()
            .map_or(&[][..], Vec::as_slice);
        let messages = responses
            .iter()
            .map_while(|response| response.get("message"));
        messages
            .map(|message| from_json(message).unwrap())
            .collect()
    }

    /// Whether the stream ended well.
    pub(crate) fn is_clean(&self) -> bool {
        self.value["end"]
            .as_str()
            .is_some_and(|end| end.starts_with("EOF"))
    }
}
