//! How the standing recording begins with a packet of spans.

use storage_core::{NewStorage, StorageError};
use storage_format::StorageId;

use crate::RecordingError;
use crate::config::ProcessorConfig;
use crate::packet::Packet;
use crate::recorder::{Inner, Recorder};
use crate::spec::RecordingSpec;
use crate::standing::save_storages;
use crate::standing_config::StandingConfig;

impl Recorder {
    /// Begins the standing recording, or the one of the next period, if this packet needs it.
    pub(crate) async fn ensure_standing(&self, packet: &Packet) -> Result<(), RecordingError> {
        let Inner {
            standing, registry, ..
        } = &*self.inner;
        let Some(config) = registry.config.standing.filter(|_| packet.is_spans()) else {
            return Ok(());
        };
        let now = packet.arrival;
        if !standing.needs_recording(now) {
            return Ok(());
        }
        let mut storages = standing.storages.lock().await;
        // Another packet may have begun it meanwhile.
        if !standing.needs_recording(now) {
            return Ok(());
        }
        match self.begin_standing(&config, &mut storages, now).await {
            // The sender tries again.
            Err(RecordingError::Storage(
                error @ (StorageError::DiskLow { .. }
                | StorageError::FilesLow { .. }
                | StorageError::DiskFull { .. }
                | StorageError::Stopping),
            )) => Err(error.into()),
            Err(error) => {
                standing.retry_after(now);
                tracing::error!(
                    %error,
                    "the standing recording cannot begin; spans that no other recording accepts \
                     are rejected, and it is tried again after 10 s"
                );
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    async fn begin_standing(
        &self,
        config: &StandingConfig,
        storages: &mut Vec<StorageId>,
        now: i64,
    ) -> Result<(), RecordingError> {
        let Inner {
            standing, registry, ..
        } = &*self.inner;
        let (begin, until) = config.period_of(now);
        let new = NewStorage {
            name: config.name(begin),
            description: "Spans that arrived, by the standing recording. The server deletes this \
                          storage by recording.standing_age_seconds_max and \
                          recording.standing_bytes_max, unless it has a label."
                .to_owned(),
            ..NewStorage::default()
        };
        let storage = registry.engine.storages().create(new).await?.0.id;
        storages.push(storage);
        let started = async {
            save_storages(&registry.engine, storages).await?;
            self.record(RecordingSpec {
                storage,
                agents: Vec::new(),
                processors: vec![ProcessorConfig::Saver {
                    kinds: Some(vec!["otlp".to_owned()]),
                }],
                delay_seconds: 0,
                duration_seconds: None,
                auto_finalize: true,
                trigger: None,
                standing: true,
            })
            .await
        };
        // When that fails, the storage is empty and is deleted by the next check.
        let id = started.await?.id;
        standing.follow_with(registry.find(id)?, until);
        Ok(())
    }
}
