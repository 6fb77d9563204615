//! The same for each of several journals.

use std::fmt::Display;

use anyhow::anyhow;
use futures_util::{StreamExt, stream};
use gazette_client::ErrorKind;
use gazette_protocol::list_response;
use serde_json::{Value, json};

use crate::{
    error,
    output::{self, ResultFormat},
};

/// Does `work` for each of `journals`, several at a time, and prints how each ended, in order.
///
/// `work` returns what is to be said about a success. One failure does not stop the others; the
/// last one is returned as the error of the whole.
pub(super) async fn for_each<F, T>(
    operation: &str,
    journals: Vec<list_response::Journal>,
    format: ResultFormat,
    work: impl Fn(list_response::Journal) -> F,
) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<T>>,
    T: Display,
{
    let total = journals.len();
    let mut results = stream::iter(journals)
        .map(|journal| {
            let name = journal.spec.name.clone();
            let work = work(journal);
            async move { (name, work.await) }
        })
        .buffered(CONCURRENT_MAX);
    let mut failures = Vec::new();
    while let Some((name, result)) = results.next().await {
        let result = match result {
            Ok(said) => {
                report(&name, &Ok(said.to_string()), format)?;
                continue;
            }
            Err(failure) => failure,
        };
        report(&name, &Err(format!("{result:#}")), format)?;
        failures.push(result);
    }
    match failures.len() {
        0 => Ok(()),
        1 if total == 1 => failures.pop().map_or(Ok(()), Err),
        count => {
            // Worth trying again only if all of them are.
            let passing = failures.iter().all(|failure| {
                matches!(
                    error::kind(failure),
                    Some(ErrorKind::Retry | ErrorKind::NoSpace)
                )
            });
            let summary = format!("{operation}: {count} of {total} journals failed, see above");
            match failures.pop() {
                Some(last) if passing => Err(last.context(summary)),
                Some(_) | None => Err(anyhow!(summary)),
            }
        }
    }
}

fn report(name: &str, result: &Result<String, String>, format: ResultFormat) -> anyhow::Result<()> {
    match (format, result) {
        (ResultFormat::Text, Ok(said)) => output::print(&format!("{name}: {said}\n"))?,
        (ResultFormat::Text, Err(failure)) => output::complain(&format!("{name}: {failure}")),
        (ResultFormat::Json, result) => {
            let error = result
                .as_ref()
                .err()
                .map_or(Value::Null, |failure| json!(failure));
            let result = result.as_ref().ok();
            output::print_json(&json!({"journal": name, "result": result, "error": error}))?;
        }
    }
    Ok(())
}

/// Journals that are worked on at a time.
const CONCURRENT_MAX: usize = 32;
