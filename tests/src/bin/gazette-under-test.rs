//! The broker, for tests of crashes: a fault can be planted into it.
//!
//! `GAZETTE_PLANTED_FAULT` names the fault; without it this is `gazette`.

use std::{process::ExitCode, sync::Arc};

use gazette_tests::late_disk::LateDisk;
use gazette_wal::Planted;

fn main() -> ExitCode {
    let fault = std::env::var("GAZETTE_PLANTED_FAULT").unwrap_or_default();
    gazette_broker::cli::main_with(|options| match fault.as_str() {
        "" => {}
        "late-log-write" => options.disk = Arc::new(LateDisk::default()),
        "no-log-sync" => {
            options.planted = Planted {
                no_log_sync: true,
                ..Planted::default()
            }
        }
        "no-record-check" => {
            options.planted = Planted {
                no_record_check: true,
                ..Planted::default()
            };
        }
        "no-spool-sync" => {
            options.planted = Planted {
                no_spool_sync: true,
                ..Planted::default()
            }
        }
        "no-directory-sync" => {
            options.planted = Planted {
                no_dir_sync: true,
                ..Planted::default()
            };
        }
        other => panic!("there is no fault {other:?}"),
    })
}
