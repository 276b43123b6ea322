//! States and histories, each derived by hand from the rules of Zeek's conn.log.

use std::net::{IpAddr, SocketAddr};

use packet::{build, pcap};

use super::{ACK, FIN, PSH, RST, SYN, Segment, client, ends, handshake, row, rows, server};

/// A handshake, and what follows it.
fn after_handshake(segments: impl IntoIterator<Item = Segment>) -> Vec<Segment> {
    let mut all = handshake();
    all.extend(segments);
    all
}

#[test]
fn a_state_for_each_way_to_begin_and_to_end() {
    let syn = || client(SYN, 100, 0, 0);
    let answer = || server(SYN | ACK, 100, 101, 0);
    let data = || client(PSH | ACK, 101, 101, 10);
    let reply = || server(PSH | ACK, 101, 111, 20);
    for (state, history, segments) in [
        ("S0", "S", vec![syn()]),
        ("REJ", "Sr", vec![syn(), server(RST | ACK, 0, 101, 0)]),
        ("S1", "ShA", handshake()),
        (
            "SF",
            "ShADadFf",
            after_handshake([
                data(),
                server(ACK, 101, 111, 0),
                reply(),
                client(FIN | ACK, 111, 121, 0),
                server(FIN | ACK, 121, 112, 0),
                client(ACK, 112, 122, 0),
            ]),
        ),
        (
            "S2",
            "ShAF",
            after_handshake([client(FIN | ACK, 101, 101, 0)]),
        ),
        (
            "S3",
            "ShAf",
            after_handshake([server(FIN | ACK, 101, 101, 0)]),
        ),
        (
            "RSTO",
            "ShAR",
            after_handshake([client(RST | ACK, 101, 101, 0)]),
        ),
        (
            "RSTR",
            "ShADr",
            after_handshake([data(), server(RST, 101, 0, 0)]),
        ),
        ("RSTOS0", "SR", vec![syn(), client(RST, 101, 0, 0)]),
        ("RSTRH", "^hr", vec![answer(), server(RST, 101, 0, 0)]),
        ("SH", "SF", vec![syn(), client(FIN, 101, 0, 0)]),
        ("SHR", "^hf", vec![answer(), server(FIN | ACK, 101, 101, 0)]),
        ("OTH", "Da", vec![data(), server(ACK, 101, 111, 0)]),
        ("S1", "^hA", vec![answer(), client(ACK, 101, 101, 0)]),
    ] {
        let row = row(&segments);
        assert_eq!(
            (&row["conn_state"], &row["history"]),
            (&state.into(), &history.into())
        );
    }
}

#[test]
fn the_source_is_upper_case_where_the_answer_came_first() {
    let row = row(&[
        server(SYN | ACK, 100, 101, 0),
        client(ACK, 101, 101, 0),
        client(PSH | ACK, 101, 101, 5),
    ]);
    assert_eq!(row["src_port"], ends().0.port());
    assert_eq!(row["history"], "^hAD");
}

#[test]
fn letters_of_odd_segments() {
    for (history, state, segments) in [
        (
            "ShAI",
            "RSTO",
            after_handshake([client(FIN | RST, 101, 101, 0)]),
        ),
        ("Q", "SH", vec![client(SYN | FIN, 100, 0, 0)]),
        (
            "ShADaw",
            "S1",
            after_handshake([
                client(ACK, 101, 101, 10),
                server(ACK, 101, 111, 0).window(0),
            ]),
        ),
        // The server acknowledges 900 bytes that the capture does not have.
        ("ShAaG", "S1", after_handshake([server(ACK, 101, 1001, 0)])),
        (
            "ShAC",
            "S1",
            after_handshake([client(ACK, 101, 101, 10).damaged()]),
        ),
        // A segment that is damaged is not received.
        (
            "ShAc",
            "S1",
            after_handshake([server(RST, 101, 0, 0).damaged()]),
        ),
        // SYN and FIN count again with another sequence number, and not with the same one.
        (
            "ShAFF",
            "S2",
            after_handshake([
                client(FIN | ACK, 101, 101, 0),
                client(FIN | ACK, 101, 101, 0),
                client(FIN | ACK, 102, 101, 0),
            ]),
        ),
    ] {
        let row = row(&segments);
        let found = (&row["history"], &row["conn_state"]);
        assert_eq!(found, (&history.into(), &state.into()));
    }
}

#[test]
fn the_letter_of_a_retransmission_counts_by_powers_of_ten() {
    let data = client(ACK, 101, 101, 10);
    let history = |repetitions: usize| {
        let mut segments = handshake();
        segments.extend(std::iter::repeat_n(data.clone(), 1 + repetitions));
        row(&segments)["history"].clone()
    };
    for (repetitions, expected) in [(0, "ShAD"), (1, "ShADT"), (9, "ShADT"), (10, "ShADTT")] {
        assert_eq!(history(repetitions), expected, "{repetitions}");
    }
}

/// A capture of what the servers of 20 connections have sent, and the states and letters of Zeek 8 for it.
#[test]
fn the_servers_half_of_connections_from_outside() {
    const ACK_FIRST: [u64; 8] = [33910, 41164, 41268, 52294, 57189, 58646, 58649, 59246];

    let Some(corpus) = sys::require::corpus() else {
        return;
    };
    let path = corpus.join("pcap/zeek_zeek__ssh.server-side-half-duplex.pcap");
    let rows = rows(&std::fs::read(path).unwrap());
    assert_eq!(rows.len(), 20);
    for row in rows {
        let port = row["src_port"].as_u64().unwrap();
        let history = if ACK_FIRST.contains(&port) {
            "^hadf"
        } else {
            "^hdaf"
        };
        assert_eq!(
            (&row["conn_state"], &row["history"]),
            (&"SHR".into(), &history.into())
        );
        assert_eq!(row["fwd_packets"], 0);
    }
}

#[test]
fn datagrams_have_a_state_and_other_protocols_none() {
    let (client, server) = (
        SocketAddr::from(([10, 0, 0, 1], 5000)),
        SocketAddr::from(([10, 0, 0, 2], 53)),
    );
    let (client_ip, server_ip): (IpAddr, IpAddr) = (client.ip(), server.ip());
    let ask = build::udp(client, server).payload([1; 9]);
    let answer = build::udp(server, client).payload([1; 9]);
    let damaged = answer.clone().checksum(build::Checksum::Bad);
    let echo = build::echo(client_ip, server_ip);
    for (state, history, frames) in [
        ("S0", Some("D"), vec![&ask]),
        ("SF", Some("Dd"), vec![&ask, &answer, &ask]),
        ("S0", Some("Dc"), vec![&ask, &damaged]),
        ("OTH", None, vec![&echo]),
    ] {
        let mut writer = pcap::Writer::new(Vec::new(), pcap::ETHERNET).unwrap();
        for (time, frame) in (1..).zip(frames) {
            writer.write(time, &frame.frame()).unwrap();
        }
        let rows = rows(&writer.finish().unwrap());
        let row = &rows[0];
        let found = (row["conn_state"].as_str(), row["history"].as_str());
        assert_eq!((rows.len(), found), (1, (Some(state), history)));
        assert!(row["fwd_retransmissions"].is_null());
    }
}
