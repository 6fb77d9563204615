//! HTTP/1.1 over a plain socket, so that nothing is normalised on the way.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// What came back.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
    /// The server kept the connection open until we gave up.
    pub(crate) is_open: bool,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut named = self
            .headers
            .iter()
            .filter(|(n, _)| n.eq_ignore_ascii_case(name));
        named.next().map(|(_, value)| value.as_str())
    }
}

/// Sends a head and a body, and takes what comes until the server closes or `patience` ends.
pub(crate) async fn send(
    address: SocketAddr,
    head: &[String],
    body: &[u8],
    patience: Duration,
) -> Answer {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut request = head.join("\r\n").into_bytes();
    request.extend_from_slice(b"\r\n\r\n");
    request.extend_from_slice(body);
    stream.write_all(&request).await.unwrap();
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(patience, stream.read_to_end(&mut bytes)).await;
    let is_open = read.is_err();
    if let Ok(read) = read {
        read.unwrap();
    }
    if bytes.is_empty() {
        return Answer {
            is_open,
            ..Answer::default()
        };
    }
    parse(&bytes, is_open)
}

fn parse(bytes: &[u8], is_open: bool) -> Answer {
    let (head, mut rest) = split(bytes, b"\r\n\r\n").expect("a whole head");
    let head = String::from_utf8(head.to_vec()).unwrap();
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse();
    let mut answer = Answer {
        status: status.unwrap(),
        headers: lines.map(header_line).collect(),
        is_open,
        ..Answer::default()
    };
    if answer.header("transfer-encoding") != Some("chunked") {
        answer.body = rest.to_vec();
        return answer;
    }
    while let Some((size, after)) = split(rest, b"\r\n") {
        let size = std::str::from_utf8(size).unwrap();
        let size = usize::from_str_radix(size.split(';').next().unwrap(), 16).unwrap();
        if size == 0 {
            let trailers = String::from_utf8(after.to_vec()).unwrap();
            let lines = trailers.split("\r\n").filter(|line| !line.is_empty());
            answer.trailers = lines.map(header_line).collect();
            return answer;
        }
        answer.body.extend_from_slice(&after[..size]);
        rest = &after[size + 2..];
    }
    assert!(is_open, "chunks end without the last one");
    answer
}

fn header_line(line: &str) -> (String, String) {
    let (name, value) = line
        .split_once(": ")
        .unwrap_or_else(|| (line.trim_end_matches(':'), ""));
    (name.to_owned(), value.to_owned())
}

fn split<'a>(bytes: &'a [u8], by: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = bytes.windows(by.len()).position(|window| window == by)?;
    Some((&bytes[..at], &bytes[at + by.len()..]))
}
