use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};
use gazette_client::Client;
use gazette_protocol::{
    CompressionCodec, FragmentsRequest, FragmentsResponse, duration, fragments_response, json,
    prototext,
};

use super::is_fully_suspended;
use crate::{
    output,
    selector::{RequiredSelector, SELECTOR_HELP},
    units::parse_duration,
};

/// Lists the fragments that journals consist of
///
/// A fragment that is persisted is a file of a store. One that is not is still being written, and is
/// on the disks of brokers only. Offsets and lengths are those of the content, before compression.
///
/// JSON gives one fragment a line; proto gives the broker's answers. A journal that is fully
/// suspended has no broker that could tell its fragments, and is left out.
#[derive(Debug, Args)]
#[command(after_help = format!("Examples:
  gazctl journals fragments -l name=app/log
  gazctl journals fragments -l prefix=app/ --from $(date -d yesterday +%s)
  gazctl journals fragments -l name=app/log --url-ttl 1h -o json | jq -r .signed_url

{SELECTOR_HELP}"))]
pub(crate) struct Fragments {
    #[command(flatten)]
    selector: RequiredSelector,

    /// Form of the output
    #[arg(short = 'o', long, value_enum, default_value = "table")]
    format: Format,

    /// Take fragments that were persisted at this Unix second or later
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    from: i64,

    /// Take fragments that were persisted at this Unix second or before; 0 does not bound it, and
    /// takes also what is not persisted yet
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    to: i64,

    /// Add a URL to each persisted fragment by which anybody can read it for this long
    #[arg(long, value_name = "DURATION", default_value = "0s",
          value_parser = parse_duration)]
    url_ttl: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table for people
    Table,
    /// One JSON object for each fragment
    Json,
    /// Text form of the protocol's messages
    Proto,
}

impl Fragments {
    pub(crate) async fn run(self, client: &Client) -> anyhow::Result<()> {
        let listing = self.selector.list(client).await?;
        let mut responses = Vec::new();
        for journal in listing.journals {
            if is_fully_suspended(&journal.spec) {
                tracing::info!(journal = journal.spec.name, "fully suspended; left out");
                continue;
            }
            let mut request = FragmentsRequest {
                journal: journal.spec.name,
                begin_mod_time: self.from,
                end_mod_time: self.to,
                signature_ttl: (!self.url_ttl.is_zero()).then(|| duration::from_std(self.url_ttl)),
                ..FragmentsRequest::default()
            };
            loop {
                let response = client.list_fragments(request.clone()).await?;
                let next = response.next_page_token;
                responses.push(response);
                // A token that does not advance would page for ever.
                if next <= request.next_page_token {
                    break;
                }
                request.next_page_token = next;
            }
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        output::print(&self.render(&responses, now))?;
        Ok(())
    }

    fn render(&self, responses: &[FragmentsResponse], now: u64) -> String {
        let fragments = responses.iter().flat_map(|response| &response.fragments);
        match self.format {
            Format::Table => self.table(fragments, now),
            Format::Json => fragments.fold(String::new(), |text, fragment| {
                text + &json::to_json(fragment, json::JsonForm::Go).to_string() + "\n"
            }),
            Format::Proto => responses.iter().map(prototext::format).collect(),
        }
    }

    fn table<'a>(
        &self,
        fragments: impl Iterator<Item = &'a fragments_response::Fragment>,
        now: u64,
    ) -> String {
        let mut header: Vec<String> = [
            "JOURNAL",
            "OFFSET",
            "LENGTH",
            "PERSISTED",
            "SHA 1",
            "COMPRESSION",
        ]
        .map(str::to_owned)
        .into();
        if !self.url_ttl.is_zero() {
            header.push("URL".to_owned());
        }
        let rows: Vec<_> = fragments
            .map(|fragment| {
                let mut row = row(fragment, now);
                if !self.url_ttl.is_zero() {
                    row.push(fragment.signed_url.clone());
                }
                row
            })
            .collect();
        output::table(&header, &rows)
    }
}

fn row(fragment: &fragments_response::Fragment, now: u64) -> Vec<String> {
    let spec = &fragment.spec;
    let length = u64::try_from(spec.end.saturating_sub(spec.begin)).unwrap_or_default();
    let persisted = match u64::try_from(spec.mod_time) {
        Ok(0) | Err(_) => String::new(),
        Ok(at) => output::ago(now.saturating_sub(at)),
    };
    let sum = spec.sum.to_hex();
    let codec = CompressionCodec::try_from(spec.compression_codec)
        .map_or("<unknown>", |codec| codec.as_str_name());
    vec![
        spec.journal.clone(),
        spec.begin.to_string(),
        output::bytes(length),
        persisted,
        format!("{}...", &sum[..12]),
        codec.to_owned(),
    ]
}

#[cfg(test)]
mod tests;
