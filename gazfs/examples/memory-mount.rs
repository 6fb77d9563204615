//! Mounts a recorded directory whose log is kept in memory and forgets content, to run test suites
//! of file systems on: `memory-mount MOUNTPOINT WORK`. It ends when it is unmounted.

use std::{env, fs, path::PathBuf, sync::Arc};

use gazfs::{
    mount::{Access, mount_recorded},
    recorded::{RecordedFs, memory::MemoryLog},
};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = env::args_os().skip(1).map(PathBuf::from);
    let (Some(point), Some(work)) = (arguments.next(), arguments.next()) else {
        anyhow::bail!("usage: memory-mount MOUNTPOINT WORK");
    };
    let tree = work.join("tree");
    fs::create_dir_all(&tree)?;
    let fs = RecordedFs::start(Arc::new(MemoryLog::forgetful()), &tree)?;
    let mounted = mount_recorded(&fs, &point, &work, Access::All)?;
    mounted.ended().await;
    Ok(())
}
