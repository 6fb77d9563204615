use gazette_protocol::{StoredFragment, header, journal_spec, process_spec};

use super::*;

const NOW: i64 = 1_700_000_000;

fn header() -> Header {
    let etcd = header::Etcd {
        cluster_id: 7,
        member_id: 8,
        revision: 9,
        raft_term: 10,
    };
    Header::unrouted(process_spec::Id::new("zone", "self"), etcd)
}

fn fragment(begin: i64, end: i64, mod_time: i64) -> Fragment {
    let journal = "a/journal".to_owned();
    Fragment {
        journal,
        begin,
        end,
        mod_time,
        compression_codec: 1,
        ..Fragment::default()
    }
}

/// Stored fragments [0, 10) and [10, 20), and a local one at [20, 25).
fn index() -> Index<&'static str> {
    let mut index = Index::new();
    index.replace_stored(
        [fragment(0, 10, 100), fragment(10, 20, 200)].map(|fragment| StoredFragment {
            relative_path: fragment.content_name(),
            fragment,
        }),
    );
    index.commit_local(fragment(20, 25, 0), "spool");
    index
}

fn spec(flags: journal_spec::Flag) -> JournalSpec {
    JournalSpec {
        flags: flags as u32,
        ..JournalSpec::default()
    }
}

fn read(request: ReadRequest) -> Read {
    Read::new(request, header(), &spec(journal_spec::Flag::ORdwr))
}

/// What a read does, one line for each step, until it waits or ends.
fn transcript(read: &mut Read, index: &Index<&'static str>) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        match read.next(index, NOW) {
            Next::Respond { response, then } => {
                let ReadResponse {
                    offset,
                    write_head,
                    fragment,
                    header,
                    ..
                } = &*response;
                let span = fragment.as_ref().map_or_else(String::new, |fragment| {
                    format!(" of [{}, {})", fragment.begin, fragment.end)
                });
                let header = if header.is_some() { "header " } else { "" };
                let status = response.status().as_str_name();
                lines.push(format!(
                    "{header}{status} at {offset}{span}, head {write_head}"
                ));
                match then {
                    Then::Content(Content {
                        begin, end, source, ..
                    }) => {
                        let source = match source {
                            Source::Local(name) => name,
                            Source::Stored { .. } => "store",
                        };
                        lines.push(format!("content [{begin}, {end}) from {source}"));
                    }
                    Then::End => lines.push("then end".into()),
                }
            }
            Next::Await { until, for_refresh } => {
                let what = if for_refresh { "refresh" } else { "change" };
                lines.push(format!("await {what}, until {until:?}"));
                return lines;
            }
            Next::End => {
                lines.push("end".into());
                return lines;
            }
        }
    }
}

#[test]
fn a_read_goes_through_the_fragments_and_ends_at_the_head() {
    let mut read = read(ReadRequest {
        offset: 4,
        ..ReadRequest::default()
    });
    assert_eq!(
        transcript(&mut read, &index()),
        [
            "header OK at 4 of [0, 10), head 25",
            "content [4, 10) from store",
            "OK at 10 of [10, 20), head 25",
            "content [10, 20) from store",
            "OK at 20 of [20, 25), head 25",
            "content [20, 25) from spool",
            "OFFSET_NOT_YET_AVAILABLE at 25, head 25",
            "then end",
            "end",
        ]
    );
}

#[test]
fn a_blocking_read_goes_on_when_the_spool_grows() {
    let mut index = index();
    let mut read = read(ReadRequest {
        offset: -1,
        block: true,
        ..ReadRequest::default()
    });
    assert_eq!(transcript(&mut read, &index), ["await change, until None"]);
    assert_eq!(read.offset(), 25, "the head is found once");
    index.commit_local(fragment(20, 31, 0), "grown");
    assert_eq!(
        transcript(&mut read, &index),
        [
            "header OK at 25 of [20, 31), head 31",
            "content [25, 31) from grown",
            "await change, until None",
        ]
    );
}

#[test]
fn an_end_offset_cuts_the_content_and_ends_the_read() {
    let mut read = read(ReadRequest {
        offset: 4,
        end_offset: 13,
        ..ReadRequest::default()
    });
    assert_eq!(
        transcript(&mut read, &index()),
        [
            "header OK at 4 of [0, 10), head 25",
            "content [4, 10) from store",
            "OK at 10 of [10, 20), head 25",
            "content [10, 13) from store",
            "end",
        ]
    );
}

#[test]
fn an_end_offset_before_the_first_content_leaves_its_metadata() {
    let mut index = Index::new();
    let fragment = fragment(10, 20, 100);
    index.replace_stored([StoredFragment {
        relative_path: fragment.content_name(),
        fragment,
    }]);
    let mut read = read(ReadRequest {
        offset: 0,
        end_offset: 5,
        ..ReadRequest::default()
    });
    let expected = ["header OK at 10 of [10, 20), head 20", "then end", "end"];
    assert_eq!(transcript(&mut read, &index), expected);
}

#[test]
fn metadata_is_all_that_some_reads_get() {
    let metadata_only = ReadRequest {
        metadata_only: true,
        ..ReadRequest::default()
    };
    let expected = ["header OK at 0 of [0, 10), head 25", "then end", "end"];
    assert_eq!(transcript(&mut read(metadata_only), &index()), expected);

    // The client fetches stored fragments itself.
    let do_not_proxy = ReadRequest {
        do_not_proxy: true,
        ..ReadRequest::default()
    };
    assert_eq!(transcript(&mut read(do_not_proxy), &index()), expected);
    let local = ReadRequest {
        offset: 21,
        do_not_proxy: true,
        ..ReadRequest::default()
    };
    assert_eq!(
        transcript(&mut read(local), &index())[1],
        "content [21, 25) from spool"
    );
}

#[test]
fn fragments_that_are_too_old_are_skipped() {
    let mut read = read(ReadRequest {
        begin_mod_time: 150,
        ..ReadRequest::default()
    });
    assert_eq!(
        transcript(&mut read, &index())[0],
        "header OK at 10 of [10, 20), head 25"
    );
}

#[test]
fn a_write_only_journal_cannot_be_read() {
    let spec = spec(journal_spec::Flag::OWronly);
    let mut read = Read::new(ReadRequest::default(), header(), &spec);
    let expected = ["header NOT_ALLOWED at 0, head 0", "then end", "end"];
    assert_eq!(transcript(&mut read, &index()), expected);
}

#[test]
fn before_the_stores_were_listed_only_what_is_here_is_certain() {
    let mut index = Index::new();
    index.commit_local(fragment(20, 25, 0), "spool");
    let mut early = read(ReadRequest {
        offset: 22,
        ..ReadRequest::default()
    });
    assert_eq!(
        transcript(&mut early, &index),
        [
            "header OK at 22 of [20, 25), head 25",
            "content [22, 25) from spool",
            "await refresh, until None",
        ]
    );
    early.settle_for_unrefreshed();
    let expected = ["OFFSET_NOT_YET_AVAILABLE at 25, head 25", "then end", "end"];
    assert_eq!(transcript(&mut early, &index), expected);
}

#[test]
fn a_hole_is_awaited_until_it_may_be_skipped() {
    let mut index = Index::new();
    let listing = [fragment(0, 10, NOW - 60), fragment(50, 60, NOW - 60)];
    index.replace_stored(listing.map(|fragment| StoredFragment {
        relative_path: fragment.content_name(),
        fragment,
    }));
    let mut read = read(ReadRequest {
        offset: 10,
        block: true,
        ..ReadRequest::default()
    });
    let at = NOW - 60 + 6 * 3600 + 1;
    assert_eq!(
        transcript(&mut read, &index),
        [format!("await change, until Some({at})")]
    );
    assert!(matches!(
        read.next(&index, at),
        Next::Respond {
            then: Then::Content(_),
            ..
        }
    ));
    assert_eq!(read.offset(), 60);
}

#[test]
fn a_message_that_was_not_sent_is_answered_anew() {
    let mut index = index();
    let mut read = read(ReadRequest {
        offset: 21,
        ..ReadRequest::default()
    });
    let Next::Respond {
        response,
        then: Then::Content(_),
    } = read.next(&index, NOW)
    else {
        panic!("there is content");
    };
    let fragment = fragment(20, 25, 300);
    index.replace_stored([StoredFragment {
        relative_path: fragment.content_name(),
        fragment,
    }]);
    read.take_back(*response);
    let expected = [
        "header OK at 21 of [20, 25), head 25",
        "content [21, 25) from store",
    ];
    assert_eq!(transcript(&mut read, &index)[..2], expected);
}

#[test]
fn content_is_sent_in_chunks() {
    let content = Content {
        fragment: fragment(0, 300_000, 0),
        source: Source::Local(()),
        begin: 10,
        end: 262_098,
    };
    let mut offset = content.begin;
    let mut chunks = Vec::new();
    while content.next_chunk(offset) > 0 {
        chunks.push(content.next_chunk(offset));
        offset += i64::try_from(content.next_chunk(offset)).unwrap();
    }
    assert_eq!(chunks, [131_040, 131_040, 8]);
}
