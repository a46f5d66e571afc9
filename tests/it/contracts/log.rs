//! Logs in memory and in segment files.

use std::sync::Arc;

use testkit::log_contract;
use tidewire::storage::files::disk::DiskFiles;
use tidewire::storage::log::SharedLog;
use tidewire::storage::log::files::FilesLog;
use tidewire::storage::log::memory::MemoryLog;

fn in_memory(case: &dyn Fn(&dyn SharedLog)) {
    case(&MemoryLog::default());
}

fn in_files(case: &dyn Fn(&dyn SharedLog)) {
    let directory = tempfile::tempdir().unwrap();
    case(&FilesLog::create(Arc::new(DiskFiles::open(directory.path()).unwrap()), 16 << 10));
}

mod memory {
    super::log_contract! { super::in_memory }
}

mod files {
    super::log_contract! { super::in_files }
}
