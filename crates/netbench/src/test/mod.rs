//! The tests. Each is a module that defines the facts of a test and its method: what the two ends do. Everything else that
//! depends on a test (help, checks of arguments, output, metrics of experiments) follows from these.

/// The list of all tests, in the order in which help and errors list them. It passes each variant of [`Test`] and its
/// module to the macro `$then`.
macro_rules! all_tests {
    ($then:ident) => {
        $then! {
            TcpStream tcp_stream,
            UdpStream udp_stream,
            TcpRr tcp_rr,
            UdpRr udp_rr,
            TcpCrr tcp_crr,
            UdpRate udp_rate,
            Icmp icmp,
        }
    };
}

mod icmp;
pub(crate) mod method;
mod tcp_crr;
mod tcp_rr;
mod tcp_stream;
mod udp_rate;
mod udp_rr;
mod udp_stream;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use method::Method;

/// Sockets, and threads at either end, of one test.
pub const MAX_FLOWS: u16 = 1024;
/// The largest request, response or write to a stream, in bytes.
pub const MAX_MESSAGE: u32 = 16 << 20;
/// The largest payload of a datagram over IPv4 without options, in bytes.
pub const MAX_DATAGRAM: u32 = 65_507;
/// The payload of a datagram that fills a usual Ethernet frame, in bytes.
pub const ETHERNET_PAYLOAD: u32 = 1472;
/// The share of datagrams that may be lost at a rate that a search finds.
pub const MAX_LOSS: f64 = 1e-3;

macro_rules! declare {
    ($($variant:ident $module:ident,)*) => {
        /// A kind of measurement: what the two ends do.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Test {
            $($variant,)*
        }

        impl Test {
            pub const ALL: [Self; [$(Self::$variant),*].len()] = [$(Self::$variant),*];

            /// The name in arguments, in output and on the wire: that of its module.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($module),)*
                }
            }

            fn facts(self) -> &'static Facts {
                match self {
                    $(Self::$variant => &$module::FACTS,)*
                }
            }

            pub(crate) fn method(self) -> &'static Method {
                match self {
                    $(Self::$variant => &$module::METHOD,)*
                }
            }
        }
    };
}

all_tests!(declare);

/// The tests that run where none is named.
pub const DEFAULT_TESTS: &str = "tcp_stream,udp_rate,tcp_rr,udp_rr";

/// What is true of a test, whoever runs it.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) quantity: Quantity,
    pub(crate) transport: Transport,
    pub(crate) sizes: Sizes,
    pub(crate) rate: Rate,
    /// It has one flow and no more.
    pub(crate) single_flow: bool,
    /// Its reads can poll before they sleep.
    pub(crate) busy_poll: bool,
}

/// What a test measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantity {
    /// How much arrives of what one end sends: [`crate::Outcome::transfer`].
    Transfer,
    /// How long transactions take: [`crate::Outcome::latency`].
    Latency,
}

/// What carries its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Connections,
    Datagrams,
}

/// Which sizes it has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sizes {
    /// One, of a message: of what is written at once, or of a datagram's payload, in bytes.
    Message { default: u32 },
    /// That of a request and that of a response.
    Transaction,
}

/// Whether messages may have times of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rate {
    /// They may not: it goes as fast as it can.
    None,
    /// Where a rate is given.
    Optional,
    /// At this rate where none is given, in messages a second.
    Default(u32),
}

impl Test {
    /// Whether bytes go one way, and how many arrive is measured; else transactions are timed.
    pub fn streams(self) -> bool {
        self.facts().quantity == Quantity::Transfer
    }

    /// Whether it sends messages of one size; else requests and responses.
    pub fn has_messages(self) -> bool {
        matches!(self.facts().sizes, Sizes::Message { .. })
    }

    /// Whether its messages are datagrams.
    pub fn datagrams(self) -> bool {
        self.facts().transport == Transport::Datagrams
    }

    /// Whether it may be given a rate.
    pub fn takes_rate(self) -> bool {
        self.facts().rate != Rate::None
    }

    /// Whether its reads can poll before they sleep.
    pub fn can_busy_poll(self) -> bool {
        self.facts().busy_poll
    }

    /// Whether it may end after a number of bytes.
    pub fn takes_bytes(self) -> bool {
        self.streams() && self.takes_rate()
    }

    /// The size of a request and of a response where none is given, in bytes. A datagram has room for its sequence
    /// number and time, and still fits the smallest Ethernet frame.
    pub fn default_transaction(self) -> u32 {
        match self.facts().transport {
            Transport::Connections => 1,
            Transport::Datagrams => 16,
        }
    }

    /// Flows at once.
    pub fn max_flows(self) -> u16 {
        match self.facts().single_flow {
            true => 1,
            false => MAX_FLOWS,
        }
    }

    /// The largest message, request or response, in bytes.
    pub fn max_size(self) -> u32 {
        match self.facts().transport {
            Transport::Connections => MAX_MESSAGE,
            Transport::Datagrams => MAX_DATAGRAM,
        }
    }

    /// The size of a message where none is given, in bytes; none where it has requests and responses.
    pub fn default_message(self) -> Option<u32> {
        match self.facts().sizes {
            Sizes::Message { default } => Some(default),
            Sizes::Transaction => None,
        }
    }

    /// Messages a second where no rate is given; none: as fast as they go.
    pub fn default_rate(self) -> Option<u32> {
        match self.facts().rate {
            Rate::Default(rate) => Some(rate),
            Rate::None | Rate::Optional => None,
        }
    }

    /// Whether it needs a server at the other end.
    pub fn needs_server(self) -> bool {
        !matches!(self.method(), Method::Client(_))
    }

    /// Whether it searches for a rate, which may take longer than its duration.
    pub fn searches(self) -> bool {
        matches!(self.method(), Method::Search(_))
    }

    /// Whether its load stays the same where no rate is given.
    pub fn has_steady_load(self) -> bool {
        !self.searches() && self.default_rate().is_none()
    }

    /// Whether the share of datagrams that is lost is a result. A search keeps it below [`MAX_LOSS`].
    pub fn measures_loss(self) -> bool {
        self.streams() && self.datagrams() && !self.searches()
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Test {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|test| test.name() == text);
        named.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("no test \"{text}\"; there are: {names}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_on_the_wire() {
        for test in Test::ALL {
            let json = serde_json::to_value(test).unwrap();
            assert_eq!(json, test.name());
        }
        let default: Result<Vec<Test>, _> = DEFAULT_TESTS.split(',').map(str::parse).collect();
        assert_eq!(default.unwrap().len(), 4);
    }
}
