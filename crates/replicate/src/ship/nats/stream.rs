//! What a stream must be so that it loses nothing, and how it is made where there is none.

use serde_json::{Value, json};

/// Nanoseconds in which a message that is sent again is known by its id.
const DUPLICATES: u64 = 120_000_000_000;

/// What a publisher asks of the stream.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How many servers keep it, 1 to 5.
    pub replicas: u8,
    /// When it is full, nothing more is published; none for as much as the servers have room for.
    pub max_bytes: Option<u64>,
    /// Whether a stream may be used that can lose messages.
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
    /// The configuration of a new stream. What finds no room is refused, and not dropped.
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
    /// What has to be changed of a stream that is there.
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

/// The subject that a stream takes.
pub(super) fn published(config: &Value) -> Option<&str> {
    match config["subjects"].as_array().map(Vec::as_slice) {
        Some([Value::String(subject)]) if !subject.contains(['*', '>']) => Some(subject),
        _ => None,
    }
}

/// The subject of a stream that we make.
pub(super) fn subject(stream: &str) -> String {
    format!("lowroad.log.{stream}")
}

/// Where the stream's publisher says that it is there.
pub(super) fn presence(stream: &str) -> String {
    format!("lowroad.publisher.{stream}")
}

/// What it should be instead of what it is.
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
