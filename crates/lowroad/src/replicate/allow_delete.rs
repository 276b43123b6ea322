//! `lowroad replicate allow-delete`: lets a replica of a `run` remove most of its files, once.

use std::path::PathBuf;

use clap::Args;
use control::Client;
use replicate::service::config::CONTROL;
use serde_json::json;

use crate::exit::{self, Failure};

#[derive(Debug, Args)]
pub(super) struct AllowDelete {
    /// Part of the `run`, as `status` names it [default: all parts that are halted]
    #[arg(value_name = "PART")]
    part: Option<String>,
    /// Control socket of the `run`
    #[arg(long, value_name = "PATH", default_value = CONTROL)]
    control: PathBuf,
}

impl AllowDelete {
    pub(super) fn run(self, json: bool) -> Result<(), Failure> {
        let mut client = Client::connect(self.control)?;
        let answer = client.call("allow-delete", json!({ "part": self.part }))?;
        if json {
            return exit::print(&format!("{answer}\n"));
        }
        let parts = answer["allowed"].as_array().into_iter().flatten();
        let lines = parts.filter_map(|part| part.as_str().map(|part| format!("allowed  {part}\n")));
        exit::print(&lines.collect::<String>())
    }
}
