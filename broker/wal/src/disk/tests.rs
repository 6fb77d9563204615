//! One suite for all disks.

use std::io::ErrorKind;

use super::*;

fn conforms(disk: &dyn Disk, root: &Path) {
    let dir = root.join("some/folder");
    disk.create_dir(&dir).unwrap();
    disk.create_dir(&dir).unwrap();
    assert!(disk.list(&dir).unwrap().is_empty());

    let path = dir.join("b");
    let missing = disk.open(&path, OpenMode::Existing).err().unwrap();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert_eq!(disk.unlink(&path).unwrap_err().kind(), ErrorKind::NotFound);

    let file = disk.open(&path, OpenMode::Create).unwrap();
    let slices: Vec<Vec<u8>> = (0..3000_u32)
        .map(|number| vec![number.to_le_bytes()[0]; 3])
        .collect();
    let slices: Vec<IoSlice<'_>> = slices.iter().map(|slice| IoSlice::new(slice)).collect();
    file.write_at(5, &slices).unwrap();
    file.write_at(
        1,
        &[IoSlice::new(b""), IoSlice::new(b"xy"), IoSlice::new(b"")],
    )
    .unwrap();
    file.write_at(0, &[]).unwrap();
    assert_eq!(file.len().unwrap(), 9005);
    let mut head = [9; 12];
    assert_eq!(file.read_at(0, &mut head).unwrap(), 12);
    assert_eq!(head, [0, b'x', b'y', 0, 0, 0, 0, 0, 1, 1, 1, 2]);
    assert_eq!(file.read_at(9000, &mut head).unwrap(), 5);
    assert_eq!(file.read_at(10_000, &mut head).unwrap(), 0);

    file.set_len(2).unwrap();
    file.set_len(4).unwrap();
    assert_eq!(file.read_at(0, &mut head).unwrap(), 4);
    assert_eq!(head[..4], [0, b'x', 0, 0]);
    disk.sync_files(&[Arc::clone(&file), Arc::clone(&file)])
        .unwrap();
    file.sync_data().unwrap();

    let zeroed = dir.join("a");
    disk.create_zeroed(&zeroed, 300_000).unwrap();
    disk.sync_dir(&dir).unwrap();
    assert_eq!(disk.list(&dir).unwrap(), ["a", "b"]);
    let file = disk.open(&zeroed, OpenMode::Existing).unwrap();
    let mut bytes = vec![1; 300_001];
    assert_eq!(file.read_at(0, &mut bytes).unwrap(), 300_000);
    assert!(bytes[..300_000].iter().all(|byte| *byte == 0));

    file.write_at(0, &[IoSlice::new(b"kept")]).unwrap();
    disk.unlink(&zeroed).unwrap();
    assert_eq!(disk.list(&dir).unwrap(), ["b"]);
    assert_eq!(file.read_at(0, &mut head[..4]).unwrap(), 4);
    assert_eq!(&head[..4], b"kept");

    let file = disk.open(&path, OpenMode::Create).unwrap();
    assert_eq!(file.len().unwrap(), 0, "it is emptied");
}

#[test]
fn the_disk_of_the_machine_conforms() {
    let folder = tempfile::tempdir().unwrap();
    conforms(&RealDisk, folder.path());
}

#[test]
fn the_simulated_disk_conforms() {
    conforms(&SimDisk::new(), Path::new("/"));
}

#[test]
fn a_file_that_cannot_be_filled_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("missing/file");
    RealDisk.create_zeroed(&path, 10).unwrap_err();
    let disk = SimDisk::new();
    disk.create_dir(Path::new("/dir")).unwrap();
    disk.set_free_bytes(Some(9));
    let err = disk.create_zeroed(Path::new("/dir/file"), 10).unwrap_err();
    assert_eq!(err.kind(), ErrorKind::StorageFull);
    assert!(disk.list(Path::new("/dir")).unwrap().is_empty());
}
