//! `gazfs handoff`

use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use clap::Args;
use gazette_process::ExitStatus;
use gazette_recoverylog::{
    notices::{Board, Notice, Noticed, Notices, Told},
    standby::Now,
};
use serde_json::json;
use tokio::time::timeout;

use super::{recording_args::BrokerArgs, say, say_error};

#[derive(Debug, Args)]
#[command(after_help = "\
In order: the owner makes sure that the log takes what is pending, stops its program (gazfs run) or
refuses further changes (gazfs record), and releases the log when that has all; the standby takes it
over, mounts, and starts its program. If the program does not end in time, or the log takes nothing,
the hand-off is called off, and the owner goes on. The time without service is the one from the word
that the program is being stopped to the word that the standby serves, as heard here.

With --force the standby does not wait for the owner: for one that does not answer. Nothing that he
acknowledged is lost, and his later changes fail.

Exit codes: 0 done, 1 failed or called off, 2 usage, 75 nobody answered in time.

Examples:
  gazfs handoff --log recovery/app
  gazfs handoff --log recovery/app --to host2")]
pub(super) struct HandoffArgs {
    /// Recovery log
    #[arg(long, value_name = "NAME")]
    log: String,

    /// Which standby, by its name or its host; the one that is furthest if not given
    #[arg(long, value_name = "ID")]
    to: Option<String>,

    /// Take the log from an owner who does not answer
    #[arg(long)]
    force: bool,

    /// How long to wait for the end of it
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = humantime::parse_duration)]
    timeout: Duration,

    /// Tell the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    broker: BrokerArgs,
}

pub(super) async fn run(args: HandoffArgs) -> anyhow::Result<ExitStatus> {
    let client = args.broker.connect()?;
    let notices = Notices::new(client, &args.log);
    let mut told = notices.hear().await.with_context(|| {
        format!(
            "hand {} over: nobody was ever standing by; next: gazfs standby",
            args.log
        )
    })?;
    let to = choose(&args, &notices, &mut told).await?;
    let handoff = format!("{:016x}", rand::random::<u64>());
    let asked = Notice::Handoff {
        handoff: handoff.clone(),
        to: Some(to.clone()),
        force: args.force,
    };
    let begun = Instant::now();
    notices.say(&asked).await?;
    let Ok(ended) = timeout(args.timeout, follow(&mut told, &handoff)).await else {
        say_error(&format!(
            "error: hand {} over to {to}: not done within {}; next: gazfs status on both hosts; if the \
             owner is dead, --force",
            args.log,
            humantime::format_duration(args.timeout)
        ));
        return Ok(ExitStatus::TryLater);
    };
    let (stopping, serving, who) = ended.map_err(|cause| {
        anyhow!(
            "hand {} over to {to}: called off, and the owner goes on: {cause}",
            args.log
        )
    })?;
    let without_service = serving.duration_since(stopping.unwrap_or(begun));
    if args.json {
        let result = json!({
            "log": args.log,
            "owner": who,
            "milliseconds_without_service": without_service.as_secs_f64() * 1000.0,
            "milliseconds": begun.elapsed().as_secs_f64() * 1000.0,
        });
        say(&format!("{result}\n"));
    } else {
        say(&format!(
            "{} was handed over to {who}\n{} ms without service\n",
            args.log,
            without_service.as_millis()
        ));
    }
    Ok(ExitStatus::Done)
}

/// Chooses the standby, of those that said of late that they are there.
async fn choose(args: &HandoffArgs, notices: &Notices, told: &mut Told) -> anyhow::Result<String> {
    let mut board = Board::default();
    for notice in notices.recent().await? {
        board.apply(Now::ZERO, &notice);
    }
    // Those of long ago may be gone. One that is here says so every some seconds.
    let chosen = board.choose(Now::ZERO, args.to.as_deref());
    let fallback = chosen.map(|seen| seen.who.id.clone());
    let present = async {
        loop {
            let Noticed { notice, is_old } = told.next().await;
            if let Notice::Standby { who, .. } = notice
                && !is_old
                && args
                    .to
                    .as_ref()
                    .is_none_or(|to| *to == who.id || *to == who.host)
            {
                return who.id;
            }
        }
    };
    match fallback {
        Ok(id) => Ok(id),
        Err(none) => match timeout(PRESENT_WITHIN, present).await {
            Ok(id) => Ok(id),
            Err(_) => bail!(
                "hand {} over: {}; next: start one (gazfs standby --log {})",
                args.log,
                none.cause(),
                args.log
            ),
        },
    }
}

/// Waits for the end of a hand-off. Returns when the owner stopped, if he did, when the standby served, and who that
/// is; or why it was called off.
async fn follow(told: &mut Told, ours: &str) -> Result<(Option<Instant>, Instant, String), String> {
    let mut stopping = None;
    loop {
        let Noticed { notice, is_old } = told.next().await;
        if is_old {
            continue;
        }
        match notice {
            Notice::Stopping { handoff, .. } if handoff == ours => stopping = Some(Instant::now()),
            Notice::CalledOff { handoff, cause } if handoff == ours => return Err(cause),
            Notice::Serving {
                handoff: Some(handoff),
                who,
                ..
            } if handoff == ours => return Ok((stopping, Instant::now(), who.to_string())),
            Notice::Owner { .. }
            | Notice::Ended { .. }
            | Notice::Standby { .. }
            | Notice::Gone { .. }
            | Notice::Ask { .. }
            | Notice::Handoff { .. }
            | Notice::Stopping { .. }
            | Notice::CalledOff { .. }
            | Notice::Serving { .. } => {}
        }
    }
}

/// How long a standby is waited for that says that it is there.
const PRESENT_WITHIN: Duration = Duration::from_secs(7);
