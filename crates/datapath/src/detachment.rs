//! What other programs have detached.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How often other programs have detached a datapath's program from one device, and whether it is attached again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detachment {
    /// The name of the device.
    pub device: String,
    /// At least one.
    pub count: u64,
    /// Why the program could not be attached again; `None`: it is attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl fmt::Display for Detachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "detached from {} by another program", self.device)?;
        if self.count > 1 {
            write!(f, " {} times", self.count)?;
        }
        match &self.error {
            None => f.write_str("; attached again"),
            Some(error) => write!(f, ": {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Detachment;

    #[test]
    fn a_detachment_says_whether_the_program_is_attached() {
        let mut detachment = Detachment {
            device: "eth0".to_owned(),
            count: 1,
            error: None,
        };
        let text = "detached from eth0 by another program; attached again";
        assert_eq!(detachment.to_string(), text);
        detachment.count = 3;
        detachment.error = Some("the device is busy".to_owned());
        let text = "detached from eth0 by another program 3 times: the device is busy";
        assert_eq!(detachment.to_string(), text);
    }
}
