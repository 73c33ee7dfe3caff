//! What is printed of the messages.

/// What is printed. The names are those of the parameters of `sink.text.details`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a parameter of its own of Babeltrace"
)]
pub struct DetailsOptions {
    /// One line for each message, without its properties and fields.
    pub compact: bool,
    /// Messages.
    pub with_data: bool,
    /// The classes of each trace, before its first message.
    pub with_metadata: bool,
    /// The name of a stream class.
    pub with_stream_class_name: bool,
    /// The name of a stream: the path of its first file.
    pub with_stream_name: bool,
    /// Times.
    pub with_time: bool,
    /// The name of a trace.
    pub with_trace_name: bool,
    /// UUIDs of traces and clocks.
    pub with_uuid: bool,
}

impl Default for DetailsOptions {
    fn default() -> Self {
        Self {
            compact: false,
            with_data: true,
            with_metadata: true,
            with_stream_class_name: true,
            with_stream_name: true,
            with_time: true,
            with_trace_name: true,
            with_uuid: true,
        }
    }
}

impl DetailsOptions {
    /// Sets the parameter `name`; false if there is none of this name.
    #[must_use]
    pub fn set(&mut self, name: &str, value: bool) -> bool {
        let parameter = match name {
            "compact" => &mut self.compact,
            "with-data" => &mut self.with_data,
            "with-metadata" => &mut self.with_metadata,
            "with-stream-class-name" => &mut self.with_stream_class_name,
            "with-stream-name" => &mut self.with_stream_name,
            "with-time" => &mut self.with_time,
            "with-trace-name" => &mut self.with_trace_name,
            "with-uuid" => &mut self.with_uuid,
            _ => return false,
        };
        *parameter = value;
        true
    }
}
