//! The journals of a log: the log itself, and the one beside it that holds its hints.

use gazette_client::{Cause, Client, ClientError};
use gazette_protocol::{
    ApplyRequest, JournalSpec, Status, ValidationError, apply_request, journal_name, labels,
};
use gazette_recoverylog_fsm::Mode;

/// Content type of logs of mode [`Mode::Native`]. Gazette refuses to play them.
pub const CONTENT_TYPE_NATIVE: &str = "application/x-gazfs-recoverylog";
/// Content type of the journals that hold hints of logs.
pub const CONTENT_TYPE_HINTS: &str = "application/x-gazfs-recoverylog-hints";

/// What the name of a log's hints ends in.
const HINTS_SUFFIX: &str = ".hints";

/// Why the journals of a log could not be made or used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum JournalsError {
    /// The name cannot be that of a log.
    #[error("make log {log}: {cause}; next: choose another name")]
    Name {
        /// The name.
        log: String,
        /// Why.
        cause: ValidationError,
    },
    /// There is a journal of that name, and it is no log of this mode.
    #[error(
        "make log {log}: the journal {journal} has content type {found:?}, not {wanted:?}; next: choose another name, or the mode that the log has"
    )]
    ContentType {
        /// The log.
        log: String,
        /// The journal that is in the way.
        journal: String,
        /// What it has.
        found: String,
        /// What it would have to have.
        wanted: String,
    },
    /// The brokers failed.
    #[error("make log: {0}")]
    Client(#[from] ClientError),
}

/// Returns the content type of logs of a mode.
pub const fn content_type(mode: Mode) -> &'static str {
    match mode {
        Mode::Native => CONTENT_TYPE_NATIVE,
        Mode::Compat => labels::CONTENT_TYPE_RECOVERY_LOG,
    }
}

/// Returns the mode of logs with a content type, `None` if it is not one of logs.
pub fn mode_of_content_type(value: &str) -> Option<Mode> {
    [Mode::Native, Mode::Compat]
        .into_iter()
        .find(|mode| content_type(*mode) == value)
}

/// Returns the name of the journal that holds the hints of a log.
pub fn hints_journal(log: &str) -> String {
    format!("{log}{HINTS_SUFFIX}")
}

/// Looks up a log. Returns its mode, or `None` if there is no such journal.
pub async fn find_log(client: &Client, log: &str) -> Result<Option<Mode>, JournalsError> {
    let Some(found) = client.get_journal(log).await? else {
        return Ok(None);
    };
    let found = found.spec.labels.value_of(labels::CONTENT_TYPE);
    let found = found.unwrap_or_default();
    match mode_of_content_type(found) {
        Some(mode) => Ok(Some(mode)),
        None => Err(JournalsError::ContentType {
            log: log.to_owned(),
            journal: log.to_owned(),
            found: found.to_owned(),
            wanted: CONTENT_TYPE_NATIVE.to_owned(),
        }),
    }
}

/// Makes the journals of a log, as far as they are not there, with the content type of `mode` and
/// whatever else `template` says. Those that are there stay as they are.
pub async fn make_log(
    client: &Client,
    log: &str,
    mode: Mode,
    template: &JournalSpec,
) -> Result<(), JournalsError> {
    let hints = hints_journal(log);
    for name in [log, &hints] {
        journal_name::validate(name).map_err(|cause| JournalsError::Name {
            log: log.to_owned(),
            cause,
        })?;
    }
    let wanted = [
        (log.to_owned(), content_type(mode)),
        (hints, CONTENT_TYPE_HINTS),
    ];
    for attempt in 0.. {
        let mut changes = Vec::new();
        for (name, content_type) in &wanted {
            let Some(found) = client.get_journal(name).await? else {
                changes.push(creation(template, name, content_type));
                continue;
            };
            let found = found.spec.labels.value_of(labels::CONTENT_TYPE);
            let found = found.unwrap_or_default();
            if found != *content_type {
                return Err(JournalsError::ContentType {
                    log: log.to_owned(),
                    journal: name.clone(),
                    found: found.to_owned(),
                    wanted: (*content_type).to_owned(),
                });
            }
        }
        if changes.is_empty() {
            return Ok(());
        }
        match client.apply(ApplyRequest { changes }).await {
            Ok(_) => return Ok(()),
            // Somebody else was making it.
            Err(error) if is_raced(&error) && attempt < RACES_MAX => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// How often somebody else may be quicker.
const RACES_MAX: u32 = 4;

fn is_raced(error: &ClientError) -> bool {
    matches!(
        error.cause(),
        Cause::Status {
            status: Status::EtcdTransactionFailed,
            ..
        }
    )
}

fn creation(template: &JournalSpec, name: &str, content_type: &str) -> apply_request::Change {
    let mut spec = template.clone();
    name.clone_into(&mut spec.name);
    spec.suspend = None;
    spec.labels.set_value(labels::CONTENT_TYPE, content_type);
    apply_request::Change {
        expect_mod_revision: 0,
        upsert: Some(spec),
        ..apply_request::Change::default()
    }
}

#[cfg(test)]
mod tests {
    use gazette_client::fake::FakeBroker;

    use super::*;

    #[tokio::test]
    async fn a_log_is_made_once_with_the_journal_of_its_hints() {
        let broker = FakeBroker::new();
        let client = broker.client();
        let template = FakeBroker::spec("template/name");
        assert_eq!(find_log(&client, "app/log").await.unwrap(), None);
        for _ in 0..2 {
            make_log(&client, "app/log", Mode::Native, &template)
                .await
                .unwrap();
        }
        let mode = find_log(&client, "app/log").await.unwrap();
        assert_eq!(mode, Some(Mode::Native));
        let hints = client.get_journal("app/log.hints").await.unwrap().unwrap();
        let content_type = hints.spec.labels.value_of(labels::CONTENT_TYPE);
        assert_eq!(content_type, Some(CONTENT_TYPE_HINTS));
        assert_eq!(hints.spec.replication, 1);
    }

    #[tokio::test]
    async fn what_is_no_such_log_is_not_taken_for_one() {
        let broker = FakeBroker::new();
        let client = broker.client();
        broker.create("app/other");
        find_log(&client, "app/other").await.unwrap_err();
        let template = FakeBroker::spec("template/name");
        let error = make_log(&client, "app/other", Mode::Native, &template).await;
        let text = error.unwrap_err().to_string();
        assert!(text.contains("next: choose another name"), "{text}");
        make_log(&client, "app/compat", Mode::Compat, &template)
            .await
            .unwrap();
        make_log(&client, "app/compat", Mode::Native, &template)
            .await
            .unwrap_err();
        make_log(&client, "no name", Mode::Native, &template)
            .await
            .unwrap_err();
    }
}
