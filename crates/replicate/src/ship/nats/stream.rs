//! The settings that a stream needs to lose nothing, and the creation of a missing stream.

use serde_json::{Value, json};

/// How long the servers recognise a repeated message by its id, in nanoseconds.
const DUPLICATES: u64 = 120_000_000_000;

/// The publisher's requirements for the stream.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The number of servers that store the stream, 1 to 5.
    pub replicas: u8,
    /// The size limit in bytes. When the stream is full, nothing more is published. `None` for the
    /// servers' limit.
    pub max_bytes: Option<u64>,
    /// Whether to accept a stream that can lose messages.
    pub allow_loss: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            replicas: 3,
            max_bytes: None,
            allow_loss: false,
        }
    }
}

impl Settings {
    /// The configuration of a new stream. A full stream refuses messages instead of dropping old
    /// ones.
    pub(super) fn configuration(&self, stream: &str) -> Value {
        json!({
            "name": stream,
            "subjects": [subject(stream)],
            "description": "lowroad replicate",
            "storage": "file",
            "retention": "limits",
            "discard": "new",
            "num_replicas": self.replicas,
            "max_bytes": self.max_bytes.map_or(-1, |bytes| i64::try_from(bytes).unwrap_or(-1)),
            "max_msgs": -1,
            "max_msgs_per_subject": -1,
            "max_msg_size": -1,
            "max_age": 0,
            "max_consumers": -1,
            "duplicate_window": DUPLICATES,
            "deny_delete": true,
        })
    }

    /// # Errors
    /// Names the settings of an existing stream that have to be changed.
    pub(super) fn check(&self, config: &Value) -> Result<(), String> {
        if config["mirror"].is_object() || config["sources"].is_array() {
            return Err("it is a copy of another stream; publish to that one".to_owned());
        }
        if config["no_ack"] == json!(true) {
            return Err("it acknowledges nothing; set no_ack to false".to_owned());
        }
        if config["sealed"] == json!(true) {
            return Err("it is sealed; use another stream".to_owned());
        }
        if published(config).is_none() {
            return Err("it must have one subject, without wildcards".to_owned());
        }
        let losses = losses(config);
        if losses.is_empty() || self.allow_loss {
            return Ok(());
        }
        let what = losses.join(", ");
        Err(format!(
            "it can lose messages: set {what}, or say --allow-loss"
        ))
    }
}

/// The subject of a stream.
pub(super) fn published(config: &Value) -> Option<&str> {
    match config["subjects"].as_array().map(Vec::as_slice) {
        Some([Value::String(subject)]) if !subject.contains(['*', '>']) => Some(subject),
        _ => None,
    }
}

/// The subject of a stream that we create.
pub(super) fn subject(stream: &str) -> String {
    format!("lowroad.log.{stream}")
}

/// The subject on which the stream's publisher answers.
pub(super) fn presence(stream: &str) -> String {
    format!("lowroad.publisher.{stream}")
}

/// The settings with which the stream can lose messages, and what they should be.
fn losses(config: &Value) -> Vec<&'static str> {
    let text = |name: &str| config[name].as_str().unwrap_or_default();
    let limited = |name: &str| config[name].as_i64().is_some_and(|limit| limit > 0);
    let mut losses = Vec::new();
    let mut add = |loses: bool, instead| {
        if loses {
            losses.push(instead);
        }
    };
    add(text("storage") == "memory", "storage to file");
    add(text("retention") != "limits", "retention to limits");
    add(limited("max_age"), "max_age to 0");
    add(
        limited("max_msgs_per_subject"),
        "max_msgs_per_subject to -1",
    );
    let full = limited("max_bytes") || limited("max_msgs");
    add(full && text("discard") != "new", "discard to new");
    losses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_we_make_is_what_we_ask_for() {
        for max_bytes in [None, Some(1 << 30)] {
            let settings = Settings {
                max_bytes,
                ..Settings::default()
            };
            assert_eq!(settings.check(&settings.configuration("S")), Ok(()));
        }
    }

    #[test]
    fn each_setting_that_loses_messages_is_named() {
        let settings = Settings::default();
        for (name, value, instead) in [
            ("storage", json!("memory"), "storage to file"),
            ("retention", json!("workqueue"), "retention to limits"),
            ("max_age", json!(1), "max_age to 0"),
            ("max_msgs_per_subject", json!(5), "max_msgs_per_subject"),
        ] {
            let mut config = settings.configuration("S");
            config[name] = value;
            let what = settings.check(&config).unwrap_err();
            assert!(what.contains(instead), "{what}");
            let allowed = Settings {
                allow_loss: true,
                ..settings
            };
            assert_eq!(allowed.check(&config), Ok(()));
        }
        let mut config = settings.configuration("S");
        config["discard"] = json!("old");
        assert_eq!(settings.check(&config), Ok(()), "it has no limit");
        config["max_bytes"] = json!(1000);
        let what = settings.check(&config).unwrap_err();
        assert!(what.contains("discard to new"), "{what}");
    }
}
