//! The forms of files with labels, known by the columns that their first line names, and their lines.

use std::net::IpAddr;

use chrono::{DateTime, NaiveDate, NaiveDateTime};

use super::Rule;
use super::protocols;

/// A file whose first line names no known columns.
pub(super) const NO_HEADER: &str = "names no columns of a known form: own labels have first, last, src_ip, \
    dst_ip, src_port, dst_port, protocol and label, of which only label has to be there; CIC-IDS2017 has Source IP, \
    Timestamp and Label (its files of labelled flows); UNSW-NB15 has Start time and Attack category; \
    CTU-13 has StartTime, Dur, SrcAddr and Label";

const SECOND: i64 = 1_000_000_000;

/// A form, with the place of each of its columns in a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    kind: Kind,
    first: Option<usize>,
    /// The last time, or the duration.
    last: Option<usize>,
    addresses: [Option<usize>; 2],
    ports: [Option<usize>; 2],
    protocol: Option<usize>,
    label: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Our own: times are RFC 3339, or seconds since the epoch.
    Own,
    /// The labelled flows of CIC-IDS2017: times of Fredericton on a clock of twelve hours, to the minute or the
    /// second, and durations in microseconds.
    Cic,
    /// The ground truth of UNSW-NB15: seconds since the epoch.
    Unsw,
    /// The binetflow files of CTU-13, which Argus wrote: times of Prague, and durations in seconds.
    Ctu,
}

/// The names of a form's columns: first, last, source and destination address and port, protocol, label.
type Names = [&'static str; 8];

const OWN: Names = [
    "first", "last", "src_ip", "dst_ip", "src_port", "dst_port", "protocol", "label",
];
const FORMS: [(Kind, Names); 3] = [
    (
        Kind::Cic,
        [
            "timestamp",
            "flow duration",
            "source ip",
            "destination ip",
            "source port",
            "destination port",
            "protocol",
            "label",
        ],
    ),
    (
        Kind::Unsw,
        [
            "start time",
            "last time",
            "source ip",
            "destination ip",
            "source port",
            "destination port",
            "protocol",
            "attack category",
        ],
    ),
    (
        Kind::Ctu,
        [
            "starttime",
            "dur",
            "srcaddr",
            "dstaddr",
            "sport",
            "dport",
            "proto",
            "label",
        ],
    ),
];

impl Form {
    /// The form of a file that starts with these names.
    pub(super) fn of(header: &[String]) -> Result<Self, String> {
        let header: Vec<String> = header.iter().map(|name| name.to_lowercase()).collect();
        let places =
            |names: Names| names.map(|name| header.iter().position(|known| known.as_str() == name));
        for (kind, names) in FORMS {
            let places = places(names);
            if places.iter().all(Option::is_some) {
                return Self::at(kind, places);
            }
        }
        if let Some(unknown) = header.iter().find(|name| !OWN.contains(&name.as_str())) {
            return Err(format!("column \"{unknown}\": {NO_HEADER}"));
        }
        Self::at(Kind::Own, places(OWN))
    }

    fn at(kind: Kind, places: [Option<usize>; 8]) -> Result<Self, String> {
        let [first, last, source, destination, from, to, protocol, label] = places;
        Ok(Self {
            kind,
            first,
            last,
            addresses: [source, destination],
            ports: [from, to],
            protocol,
            label: label.ok_or(NO_HEADER)?,
        })
    }

    /// What a line says; none for a line about something else than IP packets.
    pub(super) fn rule(&self, fields: &[String]) -> Result<Option<Rule>, String> {
        let field = |place: Option<usize>| -> Result<&str, String> {
            match place {
                None => Ok(""),
                Some(place) => {
                    let field = fields.get(place).map(String::as_str);
                    field.ok_or_else(|| format!("has {} columns only", fields.len()))
                }
            }
        };
        let Some(protocol) = self.protocol(field(self.protocol)?)? else {
            return Ok(None);
        };
        let (first_ns, last_ns) = self.times(field(self.first)?, field(self.last)?)?;
        let [source, destination] = self.addresses;
        let addresses = [
            self.address(field(source)?)?,
            self.address(field(destination)?)?,
        ];
        let [from, to] = self.ports;
        let ports = match protocol {
            // Files have types, codes or nothing there.
            Some(protocol) if !protocols::has_ports(protocol) => [None; 2],
            None if self.kind != Kind::Own => [None; 2],
            _ => [self.port(field(from)?)?, self.port(field(to)?)?],
        };
        let label = field(Some(self.label))?;
        if label.is_empty() {
            return Err("has no label".to_owned());
        }
        Ok(Some(Rule {
            first_ns,
            last_ns,
            addresses,
            ports,
            protocol,
            label: label.to_owned(),
        }))
    }

    /// The protocol's number. `Some(None)` matches any protocol, and `None` leaves the line out: it is not about IP.
    fn protocol(&self, text: &str) -> Result<Option<Option<u8>>, String> {
        let name = text.to_lowercase();
        match (self.kind, name.as_str()) {
            (Kind::Own, "") => return Ok(Some(None)),
            // Argus counts these among UDP's packets.
            (Kind::Ctu, "rtp" | "rtcp" | "udt") => return Ok(Some(Some(17))),
            (Kind::Ctu, "arp" | "rarp" | "llc" | "ipx/spx" | "decnet") => return Ok(None),
            // "any" and "unas" stand for numbers that have no name.
            (Kind::Unsw | Kind::Ctu, "any" | "unas") => return Ok(Some(None)),
            (Kind::Unsw, "arp") => return Ok(None),
            _ => {}
        }
        match name.parse().ok().or_else(|| protocols::number(&name)) {
            Some(number) => Ok(Some(Some(number))),
            // Both have names of their own for protocols without ports: addresses and times tell the flow.
            None if matches!(self.kind, Kind::Unsw | Kind::Ctu) => Ok(Some(None)),
            None => Err(format!("\"{text}\" is not a protocol")),
        }
    }

    fn address(&self, text: &str) -> Result<Option<u128>, String> {
        if self.kind == Kind::Own && text.is_empty() {
            return Ok(None);
        }
        match text.parse() {
            Ok(address) => Ok(Some(bits(address))),
            Err(_) => Err(format!("\"{text}\" is not an IP address")),
        }
    }

    fn port(&self, text: &str) -> Result<Option<u16>, String> {
        let port = match text {
            "" if matches!(self.kind, Kind::Own | Kind::Ctu) => return Ok(None),
            // Argus writes ports that it cannot name in hexadecimal, as does UNSW-NB15.
            text => match text.strip_prefix("0x") {
                Some(digits) => u16::from_str_radix(digits, 16).ok(),
                None => text.parse().ok(),
            },
        };
        port.map(Some)
            .ok_or_else(|| format!("\"{text}\" is not a port"))
    }

    /// The first and the last nanosecond.
    fn times(&self, first: &str, last: &str) -> Result<(i64, i64), String> {
        let (first_ns, last_ns) = match self.kind {
            Kind::Own => {
                let first_ns = if first.is_empty() {
                    i64::MIN
                } else {
                    absolute(first)?.0
                };
                let last_ns = if last.is_empty() {
                    i64::MAX
                } else {
                    absolute(last)?.1
                };
                (first_ns, last_ns)
            }
            Kind::Unsw => (absolute(first)?.0, absolute(last)?.1),
            Kind::Cic => {
                let (first_ns, last_ns) = cic(first)?;
                (first_ns, after(last_ns, last, 1000.0)?)
            }
            Kind::Ctu => {
                let (first_ns, last_ns) = ctu(first)?;
                (first_ns, after(last_ns, last, 1e9)?)
            }
        };
        if first_ns > last_ns {
            return Err(format!("\"{last}\" is before \"{first}\""));
        }
        Ok((first_ns, last_ns))
    }
}

/// An address as a number.
pub(super) fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// A time of RFC 3339, or in seconds since the epoch: the first and the last nanosecond that it stands for.
fn absolute(text: &str) -> Result<(i64, i64), String> {
    let wrong = || {
        format!("\"{text}\" is not a time; write seconds since 1970, or as 2017-07-05T13:02:00Z")
    };
    if let Some(whole_and_fraction) = seconds(text) {
        return Ok(whole_and_fraction);
    }
    let time = DateTime::parse_from_rfc3339(text).map_err(|_| wrong())?;
    let first = time.timestamp_nanos_opt().ok_or_else(wrong)?;
    let digits = text.split_once('.').map_or(0, |(_, fraction)| {
        fraction.bytes().take_while(u8::is_ascii_digit).count()
    });
    Ok((first, first.saturating_add(resolution(digits))))
}

/// Seconds with up to nine digits behind the point.
fn seconds(text: &str) -> Option<(i64, i64)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(fraction) || fraction.len() > 9 {
        return None;
    }
    let digits = fraction.len();
    let nanoseconds: i64 = format!("{fraction:0<9}").parse().ok()?;
    let whole: i64 = whole.parse().ok()?;
    let first = whole.checked_mul(SECOND)?.checked_add(nanoseconds)?;
    Some((first, first.saturating_add(resolution(digits))))
}

/// The length in nanoseconds, less one, of the interval that a time with this number of fractional digits stands for.
fn resolution(digits: usize) -> i64 {
    let digits = u32::try_from(digits.min(9)).unwrap_or(9);
    10_i64.pow(9 - digits) - 1
}

/// A time of CIC-IDS2017: `5/7/2017 1:42` or `03/07/2017 08:55:58`, day first. The clock of Fredericton in summer is
/// three hours behind UTC. The captures went from 08:55 to 17:05, and the hours after noon are 1 to 5.
fn cic(text: &str) -> Result<(i64, i64), String> {
    const ZONE: i64 = -3 * 3600;
    let parse = || {
        let (date, time) = text.split_once(' ')?;
        let [day, month, year] = numbers::<3>(date, '/')?;
        let (time, resolution) = match numbers::<3>(time, ':') {
            Some(time) => (time, SECOND),
            None => {
                let [hour, minute] = numbers::<2>(time, ':')?;
                ([hour, minute, 0], 60 * SECOND)
            }
        };
        let [hour, minute, second] = time;
        let hour = if hour < 8 { hour + 12 } else { hour };
        let date = NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, month, day)?;
        let first = utc(date.and_hms_opt(hour, minute, second)?, ZONE)?;
        Some((first, first + resolution - 1))
    };
    parse().ok_or_else(|| format!("\"{text}\" is not a time as 5/7/2017 1:42"))
}

/// A time of CTU-13: `2011/08/10 09:46:53.047277`. The clock of Prague in summer is two hours ahead of UTC.
fn ctu(text: &str) -> Result<(i64, i64), String> {
    const ZONE: i64 = 2 * 3600;
    let parse = || {
        let (date, time) = text.split_once(' ')?;
        let [year, month, day] = numbers::<3>(date, '/')?;
        let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
        let [hour, minute, second] = numbers::<3>(time, ':')?;
        let (nanoseconds, last) = seconds(&format!("0.{fraction}"))?;
        let date = NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, month, day)?;
        let first = utc(date.and_hms_opt(hour, minute, second)?, ZONE)?;
        Some((first + nanoseconds, first + last))
    };
    parse().ok_or_else(|| format!("\"{text}\" is not a time as 2011/08/10 09:46:53.047277"))
}

fn numbers<const N: usize>(text: &str, separator: char) -> Option<[u32; N]> {
    let parts = text.split(separator).map(|part| part.parse().ok());
    let parts: Option<Vec<u32>> = parts.collect();
    parts?.try_into().ok()
}

/// Converts a local time to nanoseconds since 1970. `zone` is its offset from UTC in seconds.
fn utc(local: NaiveDateTime, zone: i64) -> Option<i64> {
    let local = local.and_utc().timestamp_nanos_opt()?;
    local.checked_sub(zone * SECOND)
}

/// So long after a time. Some files have durations below 0, which count as 0.
fn after(time_ns: i64, duration: &str, unit_ns: f64) -> Result<i64, String> {
    let duration = match duration.parse::<f64>() {
        Ok(duration) if duration.is_finite() => duration.max(0.0),
        _ => return Err(format!("\"{duration}\" is not a duration")),
    };
    #[expect(clippy::cast_possible_truncation, reason = "the conversion saturates")]
    let duration_ns = (duration * unit_ns).ceil() as i64;
    Ok(time_ns.saturating_add(duration_ns))
}
