use std::net::IpAddr;
use std::path::Path;

use super::forms::bits;
use super::{Error, Labels, Subject};

const SECOND: i64 = 1_000_000_000;

fn labels(text: &str) -> Result<Labels, Error> {
    Labels::parse(Path::new("labels.csv"), text.as_bytes())
}

/// A flow between these endpoints in these seconds since the epoch.
fn flow(from: (&str, u16), to: (&str, u16), protocol: u8, seconds: (i64, i64)) -> Subject {
    let address = |text: &str| bits(text.parse::<IpAddr>().unwrap());
    Subject {
        first_ns: seconds.0 * SECOND,
        last_ns: seconds.1 * SECOND,
        addresses: [address(from.0), address(to.0)],
        ports: [from.1, to.1],
        protocol,
    }
}

const A: (&str, u16) = ("10.0.0.1", 40_000);
const B: (&str, u16) = ("10.0.0.2", 80);

#[test]
fn own_labels_have_the_conditions_that_they_name() {
    let labels = labels(
        "first,last,src_ip,dst_ip,src_port,dst_port,protocol,label\n\
         100,200,10.0.0.1,10.0.0.2,,80,tcp,scan\n\
         ,,10.0.0.1,,,,,host\n\
         1970-01-01T00:08:20Z,1970-01-01T01:08:20.5+01:00,,,,,17,\"a, b\"\n\
         ,,fd00::1,,,,,six\n",
    )
    .unwrap();
    for (subject, expected) in [
        (flow(A, B, 6, (150, 160)), Some("scan")),
        // Either direction, and any overlap; the whole of second 200.
        (flow(B, A, 6, (50, 100)), Some("scan")),
        (flow(A, B, 6, (200, 300)), Some("scan")),
        (flow(A, B, 6, (201, 300)), Some("host")),
        (flow(A, B, 17, (150, 160)), Some("host")),
        (flow(A, ("10.0.0.2", 81), 6, (150, 160)), Some("host")),
        (flow(B, ("10.0.0.3", 9), 17, (500, 500)), Some("a, b")),
        (flow(B, ("10.0.0.3", 9), 17, (501, 502)), None),
        (flow(B, ("10.0.0.3", 9), 6, (500, 500)), None),
        (flow(("fd00::2", 1), ("fd00::1", 2), 6, (1, 1)), Some("six")),
    ] {
        assert_eq!(labels.label(&subject), expected, "{subject:?}");
    }
}

#[test]
fn the_identifier_of_an_echo_is_not_a_port() {
    let labels = labels("src_ip,dst_port,label\n10.0.0.1,80,web\n").unwrap();
    assert_eq!(labels.label(&flow(A, B, 6, (1, 1))), Some("web"));
    assert_eq!(labels.label(&flow(A, B, 1, (1, 1))), None);
}

#[test]
fn the_first_line_that_matches_wins_whatever_its_conditions() {
    let lines = [
        "10.0.0.1,,exact",
        ",6,protocol",
        "10.0.0.1,6,both",
        "10.0.0.1,,again",
    ];
    for first in 0..lines.len() {
        let mut ordered = lines;
        ordered.rotate_left(first);
        let text = format!("src_ip,protocol,label\n{}\n", ordered.join("\n"));
        let label = ordered[0].rsplit(',').next();
        let labels = labels(&text).unwrap();
        assert_eq!(labels.label(&flow(A, B, 6, (1, 2))), label);
    }
}

/// Compared with a look at every line.
#[test]
fn many_times_of_one_pair_are_told_apart() {
    let mut text = "first,last,src_ip,dst_ip,label\n".to_owned();
    let mut rules = Vec::new();
    let mut random = 12_345_u32;
    let mut next = |below: u32| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        i64::from((random >> 8) % below)
    };
    for line in 0..400 {
        let first = next(1000);
        let last = first + next(60);
        text += &format!("{first},{last},10.0.0.1,10.0.0.2,{line}\n");
        rules.push((first, last));
    }
    let labels = labels(&text).unwrap();
    for _ in 0..2000 {
        let first = next(1100);
        let last = first + next(20);
        let overlaps = |rule: &(i64, i64)| rule.0 <= last && first <= rule.1;
        let expected = rules.iter().position(overlaps).map(|line| line.to_string());
        let found = labels.label(&flow(A, B, 6, (first, last)));
        assert_eq!(found, expected.as_deref(), "{first} to {last}");
    }
}

#[test]
fn labelled_flows_of_cic_ids_2017() {
    // As its files are: spaces before names, clocks of twelve hours, empty lines at the end, negative durations.
    let labels = labels(
        "Flow ID, Source IP, Source Port, Destination IP, Destination Port, Protocol, Timestamp, Flow Duration, Total Fwd Packets, Label\r\n\
         192.168.10.50-172.16.0.1-80-33898-6,172.16.0.1,33898,192.168.10.50,80,6,5/7/2017 1:42,65000000,7,DoS Hulk\r\n\
         x,192.168.10.5,100,8.8.8.8,53,17,03/07/2017 08:55:58,-1,2,BENIGN\r\n\
         x,192.168.10.5,0,8.8.8.8,0,0,03/07/2017 11:55:58,10,2,other\r\n\
         ,,,,,,,,,\r\n",
    )
    .unwrap();
    // 13:42 in Fredericton is 16:42 UTC.
    let begin = 1_499_272_920;
    let (attacker, victim) = (("172.16.0.1", 33_898), ("192.168.10.50", 80));
    for (seconds, expected) in [
        ((begin - 10, begin - 1), None),
        ((begin, begin), Some("DoS Hulk")),
        ((begin + 124, begin + 130), Some("DoS Hulk")),
        ((begin + 126, begin + 130), None),
    ] {
        let found = labels.label(&flow(victim, attacker, 6, seconds));
        assert_eq!(found, expected, "{seconds:?}");
    }
    let benign = flow(
        ("192.168.10.5", 100),
        ("8.8.8.8", 53),
        17,
        (1_499_082_958, 1_499_082_958),
    );
    assert_eq!(labels.label(&benign), Some("BENIGN"));
    let other = flow(
        ("192.168.10.5", 7),
        ("8.8.8.8", 0),
        0,
        (1_499_093_758, 1_499_093_758),
    );
    assert_eq!(labels.label(&other), Some("other"));
}

#[test]
fn the_ground_truth_of_unsw_nb15() {
    let labels = labels(
        "Start time,Last time,Attack category,Attack subcategory,Protocol,Source IP,Source Port,Destination IP,Destination Port,Attack Name,Attack Reference,.\n\
         1421927414,1421927416,Reconnaissance,HTTP,tcp,175.45.176.0,13284,149.171.126.16,80,\"Domino Web Server Database Access: /doladmin.nsf (https://strikes.example/a,b)\",-,.\n\
         1421927415,1421927415,  Fuzzers ,OSPF,ospf,175.45.176.2,0,149.171.126.18,0,x,-,.\n\
         1421927415,1421927415,Analysis,x,unas,175.45.176.3,0,149.171.126.18,0,x,-,.\n",
    )
    .unwrap();
    let at = (1_421_927_416, 1_421_927_500);
    let scan = flow(("175.45.176.0", 13_284), ("149.171.126.16", 80), 6, at);
    assert_eq!(labels.label(&scan), Some("Reconnaissance"));
    let at = (1_421_927_415, 1_421_927_415);
    let fuzz = flow(("175.45.176.2", 0), ("149.171.126.18", 0), 89, at);
    assert_eq!(labels.label(&fuzz), Some("Fuzzers"));
    let unassigned = flow(("175.45.176.3", 0), ("149.171.126.18", 0), 200, at);
    assert_eq!(labels.label(&unassigned), Some("Analysis"));
}

#[test]
fn the_binetflow_files_of_ctu_13() {
    let labels = labels(
        "StartTime,Dur,Proto,SrcAddr,Sport,Dir,DstAddr,Dport,State,sTos,dTos,TotPkts,TotBytes,SrcBytes,Label\n\
         2011/08/10 09:46:53.047277,3550.182373,udp,212.50.71.179,39678,  <->,147.32.84.229,13363,CON,0,0,12,875,413,flow=Background-UDP-Established\n\
         2011/08/10 09:46:53.048843,0.000883,icmp,84.13.246.132,0x0008,  <->,147.32.84.229,0x0000,ECO,0,0,2,135,75,flow=From-Botnet-V42-ICMP\n\
         2011/08/10 09:46:53.048843,0.0,rtp,84.13.246.133,28431,  <->,147.32.84.229,13363,CON,0,0,2,135,75,flow=Normal\n\
         2011/08/10 09:46:53.048843,0.0,unas,84.13.246.134,,   ->,147.32.84.229,,INT,0,0,1,60,60,flow=Unassigned\n\
         2011/08/10 09:46:53.049895,0.000326,arp,00:11:22:33:44:55,,  who,147.32.84.1,,CON,,,2,120,60,flow=Background\n",
    )
    .unwrap();
    // 09:46:53 in Prague is 07:46:53 UTC.
    let begin = 1_312_962_413;
    let server = ("147.32.84.229", 13_363);
    for (from, to, protocol, seconds, expected) in [
        (
            ("212.50.71.179", 39_678),
            server,
            17,
            (begin + 3550, begin + 3700),
            Some("flow=Background-UDP-Established"),
        ),
        (
            ("212.50.71.179", 39_678),
            server,
            17,
            (begin + 3551, begin + 3700),
            None,
        ),
        (
            ("84.13.246.132", 77),
            ("147.32.84.229", 0),
            1,
            (begin, begin + 1),
            Some("flow=From-Botnet-V42-ICMP"),
        ),
        (
            ("84.13.246.133", 28_431),
            server,
            17,
            (begin, begin + 1),
            Some("flow=Normal"),
        ),
        (
            ("84.13.246.134", 0),
            ("147.32.84.229", 0),
            200,
            (begin, begin + 1),
            Some("flow=Unassigned"),
        ),
    ] {
        let found = labels.label(&flow(from, to, protocol, seconds));
        assert_eq!(found, expected, "{from:?} {seconds:?}");
    }
}

#[test]
fn a_line_that_cannot_be_read_is_an_error_with_its_number() {
    let own = "first,last,src_ip,dst_ip,src_port,dst_port,protocol,label\n,,,,,,,fine\n";
    let ctu = "StartTime,Dur,Proto,SrcAddr,Sport,Dir,DstAddr,Dport,Label\n";
    for (text, line, what) in [
        ("", 1, "names no columns of a known form"),
        ("a,b,c\n", 1, "column \"a\": names no columns"),
        ("src_ip,dst_ip\n", 1, "names no columns of a known form"),
        (
            " Destination Port, Flow Duration, Label\n",
            1,
            "column \"destination port\": names no columns",
        ),
        (&format!("{own}1,,,,,,,\n"), 3, "has no label"),
        (&format!("{own}soon,,,,,,,x\n"), 3, "\"soon\" is not a time"),
        (&format!("{own}2017-07-05,,,,,,,x\n"), 3, "is not a time"),
        (&format!("{own}9,8,,,,,,x\n"), 3, "\"8\" is before \"9\""),
        (
            &format!("{own},,10.0.0,,,,,x\n"),
            3,
            "\"10.0.0\" is not an IP address",
        ),
        (
            &format!("{own},,,,70000,,,x\n"),
            3,
            "\"70000\" is not a port",
        ),
        (
            &format!("{own},,,,,,blue,x\n"),
            3,
            "\"blue\" is not a protocol",
        ),
        (&format!("{own}\n\n,,\"\n"), 5, "a quote that does not end"),
        (&format!("{own},,,x\n"), 3, "has 4 columns only"),
        (
            &format!("{ctu}2011/13/10 09:46:53.0,1,tcp,1.2.3.4,1,->,1.2.3.4,2,x\n"),
            2,
            "is not a time as 2011/08/10",
        ),
        (
            &format!("{ctu}2011/08/10 09:46:53.0,long,tcp,1.2.3.4,1,->,1.2.3.4,2,x\n"),
            2,
            "\"long\" is not a duration",
        ),
        (
            &format!("{own},,,,,,,{}\n", "x".repeat(300)),
            3,
            "a label of more than 256 bytes",
        ),
    ] {
        let error = labels(text).unwrap_err().to_string();
        let begin = format!("labels.csv: line {line}: ");
        assert!(
            error.starts_with(&begin) && error.contains(what),
            "{what}: {error}"
        );
    }
}
