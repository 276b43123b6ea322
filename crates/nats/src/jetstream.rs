//! JetStream's API: a stream's state, one of its messages, and its messages in order.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Error;
use crate::client::Client;
use crate::wire::{self, Message};

/// A cluster that elects a leader may need some seconds.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// A consumer that is silent for three heartbeats is lost.
const HEARTBEAT: Duration = Duration::from_secs(2);
const NO_STREAM: u64 = 10059;
const NO_MESSAGE: u64 = 10037;
const NO_CONSUMER: u64 = 10014;

/// The API of a JetStream domain: the server's own, or another one beyond a leaf node.
#[derive(Clone, Debug)]
pub struct Api(String);

/// The configuration and state of a stream.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Verbatim from the server.
    pub config: Value,
    pub messages: u64,
    pub first: u64,
    pub last: u64,
    /// Whether it has a leader; always true without a cluster.
    pub has_leader: bool,
}

/// A message of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMessage {
    pub sequence: u64,
    pub headers: String,
    pub body: Vec<u8>,
}

/// An ordered consumer: it delivers a stream's messages from a sequence number on, in order.
#[derive(Debug)]
pub struct OrderedConsumer {
    subscription: u32,
    stream: String,
    name: String,
    /// The number of messages so far.
    delivered: u64,
    last_activity: Instant,
}

/// The meaning of a message from the server for an [`OrderedConsumer`].
#[derive(Debug)]
pub enum Delivery {
    Message {
        message: StoredMessage,
        /// How many messages of the stream follow it.
        pending: u64,
    },
    /// A message of the consumer's protocol, or of another subscription.
    Other,
    /// Neither from the stream nor from the server: somebody else sent it to the consumer's subject.
    Foreign,
    /// Messages are missing: create another consumer.
    Gap,
}

impl StoredMessage {
    /// The first value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        wire::header(&self.headers, name)
    }
}

impl Api {
    pub fn new(domain: Option<&str>) -> Self {
        Self(match domain {
            Some(domain) => format!("$JS.{domain}.API"),
            None => "$JS.API".to_owned(),
        })
    }

    /// Calls a method such as `STREAM.INFO.NAME`.
    ///
    /// # Errors
    /// [`Error`]
    pub fn request(
        &self,
        client: &mut Client,
        method: &str,
        request: &Value,
    ) -> Result<Value, Error> {
        let subject = format!("{}.{method}", self.0);
        let response =
            client.request(&subject, request.to_string().as_bytes(), RESPONSE_TIMEOUT)?;
        let response = parse_response(&response.body);
        response.map_err(|error| error.unwrap_or(Error::InvalidResponse(subject)))
    }

    /// A stream's configuration and state; none if it does not exist.
    ///
    /// # Errors
    /// [`Error`]
    pub fn stream(&self, client: &mut Client, name: &str) -> Result<Option<Stream>, Error> {
        let method = format!("STREAM.INFO.{name}");
        let response = match self.request(client, &method, &json!({})) {
            Err(Error::JetStream { code, .. }) if code == NO_STREAM => return Ok(None),
            response => response?,
        };
        let count = |name: &str| response["state"][name].as_u64();
        let (Some(messages), Some(first), Some(last)) =
            (count("messages"), count("first_seq"), count("last_seq"))
        else {
            return Err(Error::InvalidResponse(method));
        };
        let cluster = response.get("cluster");
        Ok(Some(Stream {
            messages,
            first,
            last,
            has_leader: cluster.is_none_or(|cluster| cluster["leader"].is_string()),
            config: response["config"].clone(),
        }))
    }

    /// The first message at or after a sequence number, if any.
    ///
    /// # Errors
    /// [`Error`]
    pub fn message(
        &self,
        client: &mut Client,
        stream: &str,
        sequence: u64,
    ) -> Result<Option<StoredMessage>, Error> {
        #[derive(Deserialize)]
        struct Message {
            seq: u64,
            #[serde(default)]
            hdrs: String,
            #[serde(default)]
            data: String,
        }
        let method = format!("STREAM.MSG.GET.{stream}");
        let request = json!({ "seq": sequence, "next_by_subj": ">" });
        let mut response = match self.request(client, &method, &request) {
            Err(Error::JetStream { code, .. }) if code == NO_MESSAGE => return Ok(None),
            response => response?,
        };
        let invalid = || Error::InvalidResponse(method.clone());
        let message = response["message"].take();
        let message: Message = serde_json::from_value(message).map_err(|_| invalid())?;
        let decode = |text: &str| STANDARD.decode(text).map_err(|_| invalid());
        Ok(Some(StoredMessage {
            sequence: message.seq,
            headers: String::from_utf8_lossy(&decode(&message.hdrs)?).into_owned(),
            body: decode(&message.data)?,
        }))
    }

    /// Creates a consumer that delivers the messages from a sequence number on, through [`Client::next`].
    ///
    /// # Errors
    /// [`Error`]
    pub fn consume(
        &self,
        client: &mut Client,
        stream: &str,
        from: u64,
    ) -> Result<OrderedConsumer, Error> {
        // The server checks for a subscriber of this very subject; a wildcard subscription does not count.
        let inbox = client.new_inbox();
        let subscription = client.subscribe(&inbox)?;
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let config = json!({
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": from.max(1),
            "deliver_subject": inbox,
            "ack_policy": "none",
            "max_deliver": 1,
            "replay_policy": "instant",
            "flow_control": true,
            "idle_heartbeat": nanoseconds(HEARTBEAT),
            "inactive_threshold": nanoseconds(30 * HEARTBEAT),
            "mem_storage": true,
            "num_replicas": 1,
        });
        let method = format!("CONSUMER.CREATE.{stream}");
        let request = json!({ "stream_name": stream, "config": config });
        let response = self.request(client, &method, &request)?;
        let name = response["name"].as_str();
        Ok(OrderedConsumer {
            subscription,
            stream: stream.to_owned(),
            name: name.ok_or(Error::InvalidResponse(method))?.to_owned(),
            delivered: 0,
            last_activity: Instant::now(),
        })
    }

    /// Deletes a consumer, which may be gone already.
    ///
    /// # Errors
    /// [`Error`]
    pub fn delete(&self, client: &mut Client, consumer: &OrderedConsumer) -> Result<(), Error> {
        client.unsubscribe(consumer.subscription);
        let method = format!("CONSUMER.DELETE.{}.{}", consumer.stream, consumer.name);
        match self.request(client, &method, &json!({})) {
            Err(Error::JetStream { code, .. }) if code == NO_CONSUMER => Ok(()),
            response => response.map(drop),
        }
    }
}

impl OrderedConsumer {
    /// Handles a message; those of other subscriptions are [`Delivery::Other`].
    pub fn handle(&mut self, client: &mut Client, message: Message) -> Delivery {
        if message.subscription != self.subscription {
            return Delivery::Other;
        }
        let reply = message.reply.as_deref().unwrap_or_default();
        // Only the reply subject tells: the headers of what is stored are whatever its publisher wrote.
        let Some(metadata) = Metadata::parse(reply) else {
            return match message.status() {
                Some(status) => self.handle_status(client, status, &message),
                None => Delivery::Foreign,
            };
        };
        if metadata.stream != self.stream || metadata.consumer != self.name {
            return Delivery::Foreign;
        }
        self.last_activity = Instant::now();
        let Metadata {
            sequence,
            delivered,
            pending,
            ..
        } = metadata;
        if delivered != self.delivered + 1 {
            return Delivery::Gap;
        }
        self.delivered = delivered;
        let message = StoredMessage {
            sequence,
            headers: message.headers,
            body: message.body,
        };
        Delivery::Message { message, pending }
    }

    fn is_flow_control(&self, subject: &str) -> bool {
        let own = format!("$JS.FC.{}.{}.", self.stream, self.name);
        let token = subject.strip_prefix(&own).unwrap_or_default();
        !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_alphanumeric())
    }

    /// Whether the consumer missed three heartbeats.
    pub fn is_lost(&self) -> bool {
        self.last_activity.elapsed() > 3 * HEARTBEAT
    }

    /// Answers flow control, and compares a heartbeat's number of messages.
    fn handle_status(&mut self, client: &mut Client, status: u16, message: &Message) -> Delivery {
        self.last_activity = Instant::now();
        if status != 100 {
            return Delivery::Gap;
        }
        let flow_control = message.reply.as_deref();
        let subjects = flow_control.into_iter();
        for subject in subjects.chain(message.header("Nats-Consumer-Stalled")) {
            // Whatever else has this permission may not be asked for with it.
            match self.is_flow_control(subject) {
                true => client.publish(subject, "", &[], &[]),
                false => return Delivery::Foreign,
            }
        }
        let last = message.header("Nats-Last-Consumer");
        match last.and_then(|last| last.parse::<u64>().ok()) {
            Some(last) if last != self.delivered => Delivery::Gap,
            _ => Delivery::Other,
        }
    }
}

/// Parses JetStream's response to a request, or to a message that was published.
///
/// # Errors
/// [`Error::JetStream`], or none if the body is not a response of JetStream.
pub fn parse_response(body: &[u8]) -> Result<Value, Option<Error>> {
    #[derive(Deserialize)]
    struct ApiError {
        #[serde(default)]
        code: u64,
        #[serde(default)]
        err_code: u64,
        #[serde(default)]
        description: String,
    }
    let response: Value = serde_json::from_slice(body).map_err(|_| None)?;
    match response.get("error") {
        None => Ok(response),
        Some(error) => {
            let error = ApiError::deserialize(error).map_err(|_| None)?;
            Err(Some(Error::JetStream {
                code: error.err_code,
                status: error.code,
                description: error.description,
            }))
        }
    }
}

/// What a reply subject says of a message that a consumer delivers:
/// `$JS.ACK.[DOMAIN.ACCOUNT.]STREAM.CONSUMER.TIMES.STREAM#.CONSUMER#.TIME.PENDING[.RANDOM]`.
#[derive(Debug, PartialEq, Eq)]
struct Metadata<'a> {
    stream: &'a str,
    consumer: &'a str,
    /// In the stream.
    sequence: u64,
    /// How many the consumer has delivered with it.
    delivered: u64,
    pending: u64,
}

impl<'a> Metadata<'a> {
    fn parse(reply: &'a str) -> Option<Self> {
        let tokens: Vec<&str> = reply.strip_prefix("$JS.ACK.")?.split('.').collect();
        let tokens = match tokens.len() {
            7 => tokens.as_slice(),
            9.. => tokens.get(2..)?,
            _ => return None,
        };
        let number = |at: usize| tokens.get(at)?.parse().ok();
        Some(Self {
            stream: tokens.first()?,
            consumer: tokens.get(1)?,
            sequence: number(3)?,
            delivered: number(4)?,
            pending: number(6)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_reply_subject_are_read() {
        let read = |reply| {
            let read = Metadata::parse(reply)?;
            assert_eq!((read.stream, read.consumer), ("S", "c"));
            Some((read.sequence, read.delivered, read.pending))
        };
        assert_eq!(read("$JS.ACK.S.c.1.20.3.99.7"), Some((20, 3, 7)));
        assert_eq!(read("$JS.ACK._.x.S.c.1.20.3.99.7.r"), Some((20, 3, 7)));
        assert_eq!(read("$JS.ACK.S.c.1.20.3"), None);
        assert_eq!(read("$JS.ACK.S.c.1.many.3.99.7"), None);
        assert_eq!(read("$JS.FC.S.c.1.20.3.99.7"), None);
    }

    #[test]
    fn flow_control_is_answered_to_its_own_consumer_alone() {
        let consumer = OrderedConsumer {
            subscription: 2,
            stream: "S".to_owned(),
            name: "c".to_owned(),
            delivered: 0,
            last_activity: Instant::now(),
        };
        assert!(consumer.is_flow_control("$JS.FC.S.c.Ab12"));
        for other in [
            "$JS.API.STREAM.DELETE.S",
            "$JS.FC.S.c.",
            "$JS.FC.S.d.Ab12",
            "$JS.FC.S.c.a.b",
            "$JS.FC.S.c.a 0\r\n\r\nPUB x 0",
            "victim",
            "",
        ] {
            assert!(!consumer.is_flow_control(other), "{other}");
        }
    }
}
