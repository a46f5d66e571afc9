//! Objects of a store by name.

use std::fs::DirBuilder;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt as _, PutPayload, RetryConfig};
use tokio::runtime::{Builder, Runtime};

use crate::backup::BackupError;
use crate::backup::s3::UreqConnector;
use crate::backup::url::BackupUrl;
use tidewire::clock::UnixMicros;

/// Maximum number of retries of a request to S3.
const RETRIES_MAX: usize = 5;

/// Maximum time since the first attempt of a request within which it is retried.
const RETRY_TIMEOUT: Duration = Duration::from_secs(60);

/// A place in an object store. Its operations block, so no async code may call them.
pub struct Store {
    /// None only while this is dropped.
    runtime: Option<Runtime>,
    objects: Arc<dyn ObjectStore>,
    prefix: String,
    place: String,
}

/// An object of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// The name below the listed folder.
    pub name: String,
    /// The size in bytes.
    pub bytes: u64,
    /// The time at which it was written.
    pub modified: UnixMicros,
}

impl Store {
    /// Opens the store of `url`. If `create` is set, creates a missing directory, accessible only for its owner. Its parent must exist: if
    /// a disk is not mounted, backups must not go to another one.
    ///
    /// # Errors
    /// Fails if the directory or the settings of S3 in the environment cannot be used.
    pub fn open(url: &BackupUrl, create: bool) -> Result<Self, BackupError> {
        let place = url.to_string();
        let unusable = |cause: &dyn ToString| BackupError::Unusable { place: place.clone(), cause: cause.to_string() };
        let runtime = Builder::new_current_thread().enable_all().build().map_err(|cause| unusable(&cause))?;
        let (objects, prefix): (Arc<dyn ObjectStore>, _) = match url {
            BackupUrl::Directory(path) => {
                if create {
                    let mut builder = DirBuilder::new();
                    #[cfg(unix)]
                    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
                    match builder.create(path) {
                        Err(cause) if !path.is_dir() => return Err(unusable(&cause)),
                        _ => {}
                    }
                }
                if !path.exists() {
                    return Err(unusable(&"the directory does not exist"));
                }
                let files = LocalFileSystem::new_with_prefix(path).map_err(|cause| unusable(&cause))?;
                (Arc::new(files.with_fsync(true)), String::new())
            }
            BackupUrl::S3 { bucket, prefix } => {
                let retry =
                    RetryConfig { max_retries: RETRIES_MAX, retry_timeout: RETRY_TIMEOUT, ..Default::default() };
                let builder = AmazonS3Builder::from_env().with_bucket_name(bucket).with_retry(retry);
                let bucket = builder.with_http_connector(UreqConnector).build().map_err(|cause| unusable(&cause))?;
                (Arc::new(bucket), prefix.clone())
            }
        };
        Ok(Self { runtime: Some(runtime), objects, prefix, place })
    }

    /// Returns the place of an object, for messages.
    pub fn place(&self, name: &str) -> String {
        if name.is_empty() { self.place.clone() } else { format!("{}/{name}", self.place) }
    }

    fn path(&self, name: &str) -> Path {
        Path::from(format!("{}/{name}", self.prefix))
    }

    fn block_on<T>(&self, operation: impl Future<Output = T>) -> T {
        self.runtime.as_ref().expect("it is there until the store is dropped").block_on(operation)
    }

    fn failed(&self, action: &'static str, name: &str) -> impl FnOnce(Error) -> BackupError {
        let place = self.place(name);
        move |source| BackupError::Store { action, place, source }
    }

    /// Writes an object. It is visible once it is complete, and replaces one of the same name.
    ///
    /// # Errors
    /// Fails if the store does not confirm the write.
    pub fn put(&self, name: &str, bytes: Vec<u8>) -> Result<(), BackupError> {
        let put = async { self.objects.put(&self.path(name), PutPayload::from(bytes)).await };
        self.block_on(put).map(drop).map_err(self.failed("write", name))
    }

    /// Returns the content of an object, or none if it does not exist.
    ///
    /// # Errors
    /// Fails if the object cannot be read, or has more than `bytes_max` bytes.
    pub fn get(&self, name: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, BackupError> {
        let get = async {
            let found = self.objects.get(&self.path(name)).await?;
            if found.meta.size > bytes_max {
                return Ok(Err(found.meta.size));
            }
            found.bytes().await.map(|bytes| Ok(bytes.to_vec()))
        };
        match self.block_on(get) {
            Ok(Ok(bytes)) => Ok(Some(bytes)),
            Ok(Err(size)) => {
                let what = format!("it has {size} bytes, more than {bytes_max}");
                Err(BackupError::Damaged { place: self.place(name), what })
            }
            Err(Error::NotFound { .. }) => Ok(None),
            Err(source) => Err(self.failed("read", name)(source)),
        }
    }

    /// Returns the objects of a folder.
    ///
    /// # Errors
    /// Fails if the store cannot be listed.
    pub fn list(&self, folder: &str) -> Result<Vec<Listed>, BackupError> {
        let prefix = self.path(folder);
        let all = self.objects.list(Some(&prefix)).try_collect::<Vec<_>>();
        let found = self.block_on(all).map_err(self.failed("list", folder))?;
        let listed = found
            .into_iter()
            // Leave out objects in subfolders.
            .filter(|meta| meta.location.parts().count() == prefix.parts().count() + 1)
            .filter_map(|meta| {
                let modified = UnixMicros(meta.last_modified.timestamp_micros());
                Some(Listed { name: meta.location.filename()?.to_owned(), bytes: meta.size, modified })
            });
        Ok(listed.collect())
    }

    /// Removes an object. Succeeds if it does not exist.
    ///
    /// # Errors
    /// Fails if the object may still exist.
    pub fn remove(&self, name: &str) -> Result<(), BackupError> {
        match self.block_on(self.objects.delete(&self.path(name))) {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(source) => Err(self.failed("remove", name)(source)),
        }
    }
}

impl Drop for Store {
    /// Does not wait for abandoned requests.
    fn drop(&mut self) {
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}
