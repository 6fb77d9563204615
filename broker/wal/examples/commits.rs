//! Commits per second of some appenders through the log, and of a plain file with one sync per
//! group of them. Usage: `commits [FOLDER [SECONDS]]`; the folder must be on the disk to measure.

#![expect(clippy::print_stdout, reason = "it prints what it measures")]
#![expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]

use std::{
    error::Error,
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use gazette_protocol::{Fragment, LabelSet};
use gazette_wal::{
    Commit, Content, Durability, INLINE_MAX_BYTES, JournalLog, Log, LogError, Options, RealDisk,
    Roll,
};

/// A spool is rolled and dropped at this length.
const SPOOL_MAX_BYTES: i64 = 64 << 20;

/// Length of the plain file, written again and again.
const PLAIN_BYTES: usize = 16 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let temporary = tempfile::tempdir()?;
    let folder = args
        .next()
        .map_or_else(|| temporary.path().to_path_buf(), PathBuf::from);
    let seconds = args
        .next()
        .and_then(|arg| arg.to_str()?.parse().ok())
        .unwrap_or(2);
    let time = Duration::from_secs(seconds);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;

    println!(
        "{:>9} {:>9} {:>14} {:>14} {:>14} {:>7} {:>9} {:>9}",
        "appenders", "bytes", "file grows/s", "zeroed file/s", "log/s", "ratio", "p50 us", "p99 us"
    );
    for bytes in [128, 1 << 10, 64 << 10, 1 << 20] {
        for appenders in [1, 8, 64] {
            if bytes * appenders > 16 << 20 {
                continue;
            }
            let grows = plain(&folder, appenders * bytes, time, false)? * appenders as f64;
            let zeroed = plain(&folder, appenders * bytes, time, true)? * appenders as f64;
            let (log, p50, p99) = runtime.block_on(through_log(&folder, appenders, bytes, time))?;
            println!(
                "{appenders:>9} {bytes:>9} {grows:>14.0} {zeroed:>14.0} {log:>14.0} {:>7.2} {p50:>9} {p99:>9}",
                log / zeroed
            );
        }
    }
    Ok(())
}

/// Groups per second: writes and syncs.
fn plain(folder: &Path, group: usize, time: Duration, zeroed: bool) -> std::io::Result<f64> {
    let path = folder.join("plain");
    let file = File::create(&path)?;
    if zeroed {
        file.write_all_at(&vec![0; PLAIN_BYTES], 0)?;
    }
    file.sync_all()?;
    let content = vec![7; group];
    let (mut groups, mut at) = (0, 0);
    let started = Instant::now();
    while started.elapsed() < time {
        if at + group > PLAIN_BYTES {
            at = 0;
            if !zeroed {
                file.set_len(0)?;
            }
        }
        file.write_all_at(&content, at as u64)?;
        file.sync_data()?;
        at += group;
        groups += 1;
    }
    let rate = f64::from(groups) / started.elapsed().as_secs_f64();
    std::fs::remove_file(&path)?;
    Ok(rate)
}

/// Commits per second through the log, and two quantiles of their latency in microseconds.
async fn through_log(
    folder: &Path,
    appenders: usize,
    bytes: usize,
    time: Duration,
) -> Result<(f64, u128, u128), Box<dyn Error>> {
    let mut options = Options::new(folder.join("wal"), folder.join("spools"));
    if std::env::var_os("REPLICATED").is_some() {
        options.durability = Durability::Replicated;
    }
    let (log, recovered) = Log::open(options, Arc::new(RealDisk))?;
    for journal in recovered {
        journal.journal.forget().await?;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let count = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for number in 0..appenders {
        let journal = log.open_journal(&format!("bench/{number}"), 1);
        let (stop, count) = (Arc::clone(&stop), Arc::clone(&count));
        tasks.push(tokio::spawn(append(journal, bytes, stop, count)));
    }
    let started = Instant::now();
    tokio::time::sleep(time).await;
    stop.store(true, Ordering::Relaxed);
    let rate = count.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64();
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(task.await??);
    }
    log.close();
    latencies.sort_unstable();
    let quantile = |share: usize| latencies.get(latencies.len() * share / 100).copied();
    Ok((
        rate,
        quantile(50).unwrap_or_default(),
        quantile(99).unwrap_or_default(),
    ))
}

async fn append(
    journal: JournalLog,
    bytes: usize,
    stop: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
) -> Result<Vec<u128>, LogError> {
    let registers = Arc::new(LabelSet::default());
    let content = Bytes::from(vec![7; bytes]);
    let mut spool = journal.create_spool(0);
    let mut end = 0_i64;
    let mut latencies = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let started = Instant::now();
        if end - spool.begin() > SPOOL_MAX_BYTES {
            let (completed, registers) = (Some(spool.clone()), Arc::clone(&registers));
            let roll = Roll {
                completed,
                next_begin: end,
                registers,
            };
            let (rolled, dropped) = (journal.roll(roll), journal.drop_spool(&spool));
            rolled.await?;
            dropped.await?;
            spool = journal.create_spool(end);
        }
        let at = end.abs_diff(spool.begin());
        if let Err(err) = spool.write_at(at, &content) {
            println!("write spool: {err}");
            break;
        }
        let append_begin = end;
        end += i64::try_from(bytes).unwrap_or(0);
        let fragment = Fragment {
            begin: spool.begin(),
            end,
            ..Fragment::default()
        };
        let content = if bytes <= INLINE_MAX_BYTES {
            Content::Inline(vec![content.clone()])
        } else {
            Content::InSpool
        };
        let (spool, registers) = (spool.clone(), Arc::clone(&registers));
        let commit = Commit {
            spool,
            fragment,
            append_begin,
            registers,
            first_append: None,
            content,
        };
        journal.commit(commit).await?;
        count.fetch_add(1, Ordering::Relaxed);
        latencies.push(started.elapsed().as_micros());
    }
    journal.forget().await?;
    Ok(latencies)
}
