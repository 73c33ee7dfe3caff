//! Conversion of the settings to the configuration of the engine and the recorder.

use std::time::Duration;

use recording::{RecorderConfig, StandingConfig};
use storage_core::{DiskLow, EngineConfig, IoChoice};

use super::settings::{Config, Io};

impl Config {
    /// The settings of the recorder.
    pub(crate) fn recorder(&self) -> RecorderConfig {
        let recording = &self.recording;
        RecorderConfig {
            buffer_bytes_max: size(recording.buffer_bytes_max),
            recordings_max: size(u64::from(recording.recordings_max)),
            waiting_bytes_max: size(recording.waiting_bytes_max),
            quiet_ns: i64::from(recording.waiting_milliseconds) * 1_000_000,
            standing: recording.standing.then_some(StandingConfig {
                period_seconds: recording.standing_period_seconds,
                bytes_max: recording.standing_bytes_max,
                age_seconds_max: recording.standing_age_seconds_max,
            }),
        }
    }

    /// The settings of the engine.
    pub(crate) fn engine(&self) -> EngineConfig {
        let storage = &self.storage;
        let mut engine = EngineConfig::new(&storage.data_dir);
        engine.io = match storage.io {
            Io::Auto => IoChoice::Auto,
            Io::Uring => IoChoice::Uring,
            Io::Blocking => IoChoice::Blocking,
        };
        if let Ok(count @ 1..) = usize::try_from(storage.serializers) {
            engine.serializer_count = count;
        }
        if let Ok(count @ 1..) = usize::try_from(storage.recovery_threads) {
            engine.recovery_thread_count = count;
        }
        engine.server_version = env!("CARGO_PKG_VERSION").to_owned();
        engine.zstd_level = storage.zstd_level;
        engine.commit_window = Duration::from_micros(storage.commit_window_microseconds);
        engine.open_channel_count_max = size(u64::from(storage.open_files_max));
        engine.preallocation_bytes_max = storage.preallocation_bytes_max;
        engine.data_file_bytes_max = storage.data_file_bytes_max;
        engine.arranging_bytes_per_second_max = storage.arranging_bytes_per_second_max;
        engine.full_file_arranging_bytes_per_second_max =
            storage.full_file_arranging_bytes_per_second_max;
        engine.quotas = self.quota.defaults();
        engine.usage_interval = Duration::from_secs(self.quota.check_seconds);
        engine.disk_probe_interval = Duration::from_secs(storage.disk_probe_seconds);
        engine.scrub_bytes_per_second = storage.scrub_bytes_per_second;
        engine.scrub_pass_interval = Duration::from_secs(storage.scrub_pass_seconds_min);
        engine.tree_packet_count_max = size(storage.live_index_packets_max);
        engine.live_index_bytes_max = storage.live_index_bytes_max;
        engine.live_index_age_max = Duration::from_secs(storage.live_index_seconds_max);
        engine.uncovered_bytes_max = storage.uncovered_bytes_max;
        engine.time_bucket = Duration::from_secs(storage.time_bucket_seconds);
        engine.index_cache_bytes_max = storage.index_cache_bytes_max;
        engine.storage_count_max = size(storage.storages_max);
        engine.in_flight_bytes_max = self.ingest.in_flight_bytes_max;
        engine.agent_in_flight_bytes_max = self.ingest.agent_bytes_max();
        engine.packet_bytes_max = u32::try_from(self.ingest.packet_bytes_max).unwrap_or(u32::MAX);
        engine.disk_low = DiskLow {
            stop_free_bytes: storage.disk_stop_free_bytes,
            stop_free_ratio: f64::from(storage.disk_stop_free_percent) / 100.0,
            resume_free_ratio: f64::from(storage.disk_resume_free_percent) / 100.0,
            ..engine.disk_low
        };
        engine
    }
}

fn size(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::Config;

    /// The defaults exist twice: in the engine, for programs that embed it, and in the settings,
    /// for operators.
    #[test]
    fn default_settings_are_the_defaults_of_the_engine() {
        let settings = Config::default();
        let engine = storage_core::EngineConfig {
            // A program that embeds the engine asks for them: they use the disk unasked.
            usage_interval: std::time::Duration::from_secs(settings.quota.check_seconds),
            disk_probe_interval: std::time::Duration::from_secs(
                settings.storage.disk_probe_seconds,
            ),
            ..storage_core::EngineConfig::new(&settings.storage.data_dir)
        };
        assert!(!engine.usage_interval.is_zero() && !engine.disk_probe_interval.is_zero());
        assert_eq!(settings.engine(), engine);
        assert_eq!(settings.recorder(), recording::RecorderConfig::default());
    }
}
