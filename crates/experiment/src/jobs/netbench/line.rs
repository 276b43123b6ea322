//! The line rate of a card: recorded with each trial, because it bounds goodput and round trips.

use netdev::Link;

use crate::outcome::Outcome;

/// Where the kernel has a device's speed.
pub(super) fn speed_of(device: &str) -> String {
    format!("/sys/class/net/{device}/speed")
}

/// Notes the device that a trial's packets leave by, and its `speed` as the kernel has it.
pub(super) fn note(link: &Link, speed: Option<&str>, outcome: &mut Outcome) {
    let facts = &mut outcome.environment;
    facts.insert("line.device".to_owned(), link.name.as_str().into());
    facts.insert("line.mtu".to_owned(), link.mtu.into());
    // The driver of a virtual device has made its number up, and -1 is none.
    let known = speed.filter(|_| link.kind.is_none() && !link.loopback);
    let known = known.and_then(|speed| speed.trim().parse::<u64>().ok());
    if let Some(speed) = known.filter(|speed| *speed > 0) {
        facts.insert("line.speed_mbps".to_owned(), speed.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_cards_speed_is_a_speed() {
        let card = Link {
            name: "eth1".to_owned(),
            mtu: 9000,
            ..Link::default()
        };
        let noted = |link: &Link, speed| {
            let mut outcome = Outcome::default();
            note(link, speed, &mut outcome);
            outcome.environment
        };
        let facts = noted(&card, Some("10000\n"));
        assert_eq!(facts["line.speed_mbps"], 10_000);
        assert_eq!(
            (&facts["line.device"], &facts["line.mtu"]),
            (&"eth1".into(), &9000.into())
        );
        let veth = Link {
            kind: Some("veth".to_owned()),
            ..card.clone()
        };
        let loopback = Link {
            loopback: true,
            ..card.clone()
        };
        for (link, speed) in [
            (&veth, Some("10000\n")),
            (&loopback, Some("10000\n")),
            (&card, Some("-1\n")),
            (&card, Some("0\n")),
            (&card, None),
        ] {
            assert!(
                !noted(link, speed).contains_key("line.speed_mbps"),
                "{link:?} {speed:?}"
            );
        }
    }
}
