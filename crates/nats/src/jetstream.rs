//! JetStream's questions: what a stream is, one of its messages, and all of them in their order.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Error;
use crate::client::Client;
use crate::wire::{self, Message};

/// A cluster that elects a leader may need some seconds.
const ANSWER: Duration = Duration::from_secs(5);
/// A subscription on which nothing was heard for three of them is lost.
const HEARTBEAT: Duration = Duration::from_secs(2);
const NO_STREAM: u64 = 10059;
const NO_MESSAGE: u64 = 10037;
const NO_CONSUMER: u64 = 10014;

/// Where JetStream is asked: here, or in another domain beyond a leaf node.
#[derive(Clone, Debug)]
pub struct Api(String);

/// What a stream is and has.
#[derive(Clone, Debug)]
pub struct Stream {
    /// As the server says it.
    pub config: Value,
    pub messages: u64,
    pub first: u64,
    pub last: u64,
    /// Whether it has a leader; always so without a cluster.
    pub led: bool,
}

/// A message as a stream has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub sequence: u64,
    pub headers: String,
    pub body: Vec<u8>,
}

/// A stream's messages from one on, in their order, as an ordered consumer has them delivered.
#[derive(Debug)]
pub struct Subscription {
    id: u32,
    stream: String,
    consumer: String,
    /// Of the messages that were delivered.
    delivered: u64,
    heard: Instant,
}

/// What a message from the server means for a [`Subscription`].
#[derive(Debug)]
pub enum Delivery {
    Stored {
        stored: Stored,
        /// How many messages the stream has behind it.
        pending: u64,
    },
    /// The consumer's own business, or another's message.
    Other,
    /// Something is missing: subscribe again.
    Lost,
}

impl Stored {
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

    /// # Errors
    /// [`Error`]
    pub fn ask(&self, client: &mut Client, what: &str, question: &Value) -> Result<Value, Error> {
        let subject = format!("{}.{what}", self.0);
        let answer = client.ask(&subject, question.to_string().as_bytes(), ANSWER)?;
        let answer = acknowledgement(&answer.body);
        answer.map_err(|error| error.unwrap_or(Error::Unintelligible(subject)))
    }

    /// None if there is no such stream.
    ///
    /// # Errors
    /// [`Error`]
    pub fn stream(&self, client: &mut Client, name: &str) -> Result<Option<Stream>, Error> {
        let what = format!("STREAM.INFO.{name}");
        let answer = match self.ask(client, &what, &json!({})) {
            Err(Error::JetStream { code, .. }) if code == NO_STREAM => return Ok(None),
            answer => answer?,
        };
        let count = |name: &str| answer["state"][name].as_u64();
        let (Some(messages), Some(first), Some(last)) =
            (count("messages"), count("first_seq"), count("last_seq"))
        else {
            return Err(Error::Unintelligible(what));
        };
        let cluster = answer.get("cluster");
        Ok(Some(Stream {
            messages,
            first,
            last,
            led: cluster.is_none_or(|cluster| cluster["leader"].is_string()),
            config: answer["config"].clone(),
        }))
    }

    /// The first message at or behind a sequence number; none if there is none.
    ///
    /// # Errors
    /// [`Error`]
    pub fn message(
        &self,
        client: &mut Client,
        stream: &str,
        sequence: u64,
    ) -> Result<Option<Stored>, Error> {
        #[derive(Deserialize)]
        struct Found {
            seq: u64,
            #[serde(default)]
            hdrs: String,
            #[serde(default)]
            data: String,
        }
        let what = format!("STREAM.MSG.GET.{stream}");
        let question = json!({ "seq": sequence, "next_by_subj": ">" });
        let mut answer = match self.ask(client, &what, &question) {
            Err(Error::JetStream { code, .. }) if code == NO_MESSAGE => return Ok(None),
            answer => answer?,
        };
        let wrong = || Error::Unintelligible(what.clone());
        let found: Found = serde_json::from_value(answer["message"].take()).map_err(|_| wrong())?;
        let decode = |text: &str| STANDARD.decode(text).map_err(|_| wrong());
        Ok(Some(Stored {
            sequence: found.seq,
            headers: String::from_utf8(decode(&found.hdrs)?).map_err(|_| wrong())?,
            body: decode(&found.data)?,
        }))
    }

    /// Has messages from a sequence number on delivered; [`Client::next`] gives them.
    ///
    /// # Errors
    /// [`Error`]
    pub fn follow(
        &self,
        client: &mut Client,
        stream: &str,
        from: u64,
    ) -> Result<Subscription, Error> {
        // One that only a pattern matches is not seen to be listened to.
        let inbox = client.new_inbox();
        let id = client.subscribe(&inbox)?;
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
        let what = format!("CONSUMER.CREATE.{stream}");
        let question = json!({ "stream_name": stream, "config": config });
        let answer = self.ask(client, &what, &question)?;
        let consumer = answer["name"].as_str().ok_or(Error::Unintelligible(what))?;
        Ok(Subscription {
            id,
            stream: stream.to_owned(),
            consumer: consumer.to_owned(),
            delivered: 0,
            heard: Instant::now(),
        })
    }

    /// Has no more delivered. One that is gone already is no error.
    ///
    /// # Errors
    /// [`Error`]
    pub fn leave(&self, client: &mut Client, subscription: &Subscription) -> Result<(), Error> {
        let Subscription {
            id,
            stream,
            consumer,
            ..
        } = subscription;
        client.unsubscribe(*id);
        let what = format!("CONSUMER.DELETE.{stream}.{consumer}");
        match self.ask(client, &what, &json!({})) {
            Err(Error::JetStream { code, .. }) if code == NO_CONSUMER => Ok(()),
            answer => answer.map(drop),
        }
    }
}

impl Subscription {
    /// What the message means. Those of other subscriptions are none of ours.
    pub fn take(&mut self, client: &mut Client, message: Message) -> Delivery {
        if message.subscription != self.id {
            return Delivery::Other;
        }
        self.heard = Instant::now();
        match message.status() {
            Some(100) => return self.control(client, &message),
            Some(_) => return Delivery::Lost,
            None => {}
        }
        let Some((sequence, delivered, pending)) = message.reply.as_deref().and_then(place) else {
            return Delivery::Lost;
        };
        if delivered != self.delivered + 1 {
            return Delivery::Lost;
        }
        self.delivered = delivered;
        let stored = Stored {
            sequence,
            headers: message.headers,
            body: message.body,
        };
        Delivery::Stored { stored, pending }
    }

    /// Whether nothing was heard of the consumer for too long.
    pub fn silent(&self) -> bool {
        self.heard.elapsed() > 3 * HEARTBEAT
    }

    /// A heartbeat, or the question whether we keep up.
    fn control(&self, client: &mut Client, message: &Message) -> Delivery {
        let asks = message.reply.as_deref();
        for subject in asks
            .into_iter()
            .chain(message.header("Nats-Consumer-Stalled"))
        {
            client.publish(subject, "", &[], &[]);
        }
        let last = message.header("Nats-Last-Consumer");
        match last.and_then(|last| last.parse::<u64>().ok()) {
            Some(last) if last != self.delivered => Delivery::Lost,
            _ => Delivery::Other,
        }
    }
}

/// What JetStream says of a message that was published, or of a question; no error for what it is
/// not.
///
/// # Errors
/// [`Error::JetStream`]
pub fn acknowledgement(body: &[u8]) -> Result<Value, Option<Error>> {
    #[derive(Deserialize)]
    struct Refusal {
        #[serde(default)]
        code: u64,
        #[serde(default)]
        err_code: u64,
        #[serde(default)]
        description: String,
    }
    let answer: Value = serde_json::from_slice(body).map_err(|_| None)?;
    match answer.get("error") {
        None => Ok(answer),
        Some(refusal) => {
            let refusal = Refusal::deserialize(refusal).map_err(|_| None)?;
            Err(Some(Error::JetStream {
                code: refusal.err_code,
                status: refusal.code,
                description: refusal.description,
            }))
        }
    }
}

/// A delivered message's number in the stream, its number among the delivered, and how many follow:
/// `$JS.ACK.[DOMAIN.ACCOUNT.]STREAM.CONSUMER.TIMES.STREAM#.CONSUMER#.TIME.PENDING[.RANDOM]`.
fn place(reply: &str) -> Option<(u64, u64, u64)> {
    let words: Vec<&str> = reply.split('.').collect();
    let words = match words.len() {
        9 => words.get(5..)?,
        11.. => words.get(7..)?,
        _ => return None,
    };
    let number = |at: usize| words.get(at)?.parse().ok();
    Some((number(0)?, number(1)?, number(3)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_place_are_read() {
        assert_eq!(place("$JS.ACK.S.c.1.20.3.99.7"), Some((20, 3, 7)));
        assert_eq!(place("$JS.ACK._.x.S.c.1.20.3.99.7.r"), Some((20, 3, 7)));
        assert_eq!(place("$JS.ACK.S.c.1.20.3"), None);
        assert_eq!(place("$JS.ACK.S.c.1.many.3.99.7"), None);
    }
}
