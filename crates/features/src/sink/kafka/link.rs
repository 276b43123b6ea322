//! A connection to the leaders of a topic's partitions. The caller blocks until each answer.

use std::fmt;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chrono::DateTime;
use futures_util::future::join_all;
use rskafka::BackoffConfig;
use rskafka::client::ClientBuilder;
use rskafka::client::error::{Error as KafkaError, ProtocolError};
use rskafka::client::partition::{Compression, PartitionClient, UnknownTopicHandling};
use rskafka::record::Record;
use tokio::runtime::{Builder, Runtime};

use super::partition::partition;
use crate::sink::dial::dial;
use crate::sink::message::Message;

/// The timeout for connecting and for each answer.
const ANSWER: Duration = Duration::from_secs(5);
/// The default batch limit of a broker is 1 MiB.
const MAX_BATCH_BYTES: usize = 900_000;

pub(super) struct Link {
    runtime: Runtime,
    partitions: Vec<PartitionClient>,
}

/// The reason that messages were not stored.
#[derive(Debug)]
pub(super) enum Fault {
    /// A broker is unreachable or not ready. Another attempt may succeed.
    Passing(io::Error),
    /// The broker's answer is permanent.
    Lasting(io::Error),
}

/// The result of sending messages.
#[derive(Debug)]
pub(super) struct DeliveryReport {
    /// Whether each message, in order, is known to be stored.
    pub(super) confirmed: Vec<bool>,
    pub(super) fault: Option<Fault>,
}

impl Link {
    pub(super) fn connect(broker: &str, topic: &str) -> Result<Self, Fault> {
        // The client's own message for an unreachable broker is long, so check the connection first.
        drop(dial(broker).map_err(Fault::Passing)?);
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(Fault::Passing)?;
        let partitions = runtime.block_on(in_time(partitions(broker, topic)))?;
        Ok(Self {
            runtime,
            partitions,
        })
    }

    /// Sends messages, each to its key's partition, and waits until all replicas in sync have them.
    pub(super) fn send(&mut self, messages: &[&Message]) -> DeliveryReport {
        let mut by_partition: Vec<Vec<usize>> = vec![Vec::new(); self.partitions.len()];
        for (index, message) in messages.iter().enumerate() {
            let key = message.key.as_deref().unwrap_or_default();
            by_partition[partition(key.as_bytes(), self.partitions.len())].push(index);
        }
        let time = now();
        let sending = self
            .partitions
            .iter()
            .zip(by_partition)
            .map(|(to, indices)| send_to(to, messages, indices, time));
        let outcomes = self.runtime.block_on(join_all(sending));
        let mut stored = DeliveryReport {
            confirmed: vec![false; messages.len()],
            fault: None,
        };
        for (confirmed, outcome) in outcomes {
            for index in confirmed {
                stored.confirmed[index] = true;
            }
            stored.fault = stored.fault.or_else(|| outcome.err());
        }
        stored
    }
}

async fn partitions(broker: &str, topic: &str) -> Result<Vec<PartitionClient>, Fault> {
    let client = ClientBuilder::new(vec![broker.to_owned()])
        .client_id("lowroad")
        .backoff_config(backoff())
        .build()
        .await
        .map_err(fault)?;
    let topics = client.list_topics().await.map_err(fault)?;
    let Some(found) = topics.into_iter().find(|found| found.name == topic) else {
        // A broker that has just started may not know its topics yet.
        let what = "the broker has no such topic; create it first";
        return Err(Fault::Passing(io::Error::new(
            io::ErrorKind::NotFound,
            what,
        )));
    };
    let clients = found
        .partitions
        .iter()
        .map(|partition| client.partition_client(topic, *partition, UnknownTopicHandling::Error));
    let clients = join_all(clients).await.into_iter();
    clients.map(|client| client.map_err(fault)).collect()
}

/// Sends some of the messages, in order, in batches that a broker takes. Those that are stored, and why
/// not all are.
async fn send_to(
    to: &PartitionClient,
    messages: &[&Message],
    indices: Vec<usize>,
    time: DateTime<chrono::Utc>,
) -> (Vec<usize>, Result<(), Fault>) {
    let mut confirmed = Vec::new();
    let mut rest = indices.as_slice();
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = rest.iter().take_while(|index| {
            bytes += messages[**index].body.len() + 64;
            bytes <= MAX_BATCH_BYTES
        });
        let (batch, later) = rest.split_at(fits.count().max(1));
        let records = batch.iter().map(|index| record(messages[*index], time));
        let produced = to.produce(records.collect(), Compression::Zstd);
        if let Err(fault) = in_time(async { produced.await.map_err(fault) }).await {
            return (confirmed, Err(fault));
        }
        confirmed.extend(batch);
        rest = later;
    }
    (confirmed, Ok(()))
}

fn record(message: &Message, timestamp: DateTime<chrono::Utc>) -> Record {
    Record {
        key: message.key.clone().map(String::into_bytes),
        value: Some(message.body.clone()),
        headers: std::collections::BTreeMap::new(),
        timestamp,
    }
}

fn now() -> DateTime<chrono::Utc> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let milliseconds = since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(0));
    DateTime::from_timestamp_millis(milliseconds).unwrap_or_default()
}

async fn in_time<T>(what: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    match tokio::time::timeout(ANSWER, what).await {
        Ok(result) => result,
        Err(_) => Err(Fault::Passing(io::ErrorKind::TimedOut.into())),
    }
}

/// A short backoff: retries happen in the caller, which also handles a stop and the counters.
fn backoff() -> BackoffConfig {
    BackoffConfig {
        init_backoff: Duration::from_millis(20),
        max_backoff: Duration::from_millis(200),
        base: 2.0,
        deadline: Some(Duration::from_millis(500)),
    }
}

fn fault(error: KafkaError) -> Fault {
    let lasting = matches!(
        error,
        KafkaError::ServerError {
            protocol_error: ProtocolError::MessageTooLarge
                | ProtocolError::RecordListTooLarge
                | ProtocolError::TopicAuthorizationFailed
                | ProtocolError::ClusterAuthorizationFailed
                | ProtocolError::InvalidTopicException
                | ProtocolError::InvalidRecord
                | ProtocolError::PolicyViolation
                | ProtocolError::UnsupportedCompressionType,
            ..
        }
    );
    let error = match error {
        KafkaError::ServerError {
            protocol_error,
            error_message,
            ..
        } => match error_message {
            Some(message) => io::Error::other(format!("{protocol_error}: {message}")),
            None => io::Error::other(protocol_error.to_string()),
        },
        other => io::Error::other(other.to_string()),
    };
    if lasting {
        Fault::Lasting(error)
    } else {
        Fault::Passing(error)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Passing(error) | Self::Lasting(error)) = self;
        error.fmt(f)
    }
}
