//! The defects of CICFlowMeter (commit 98a5eba), each on a capture of a few packets with values
//! computed by hand: `cic.v1` has the right ones.

mod frames;
mod row;

use features::dissect::tcp_flag::{ACK, FIN, PSH, RST, SYN, URG};
use features::flow::Flow;
use features::schema::find;
use packet::build;

use frames::{MILLISECOND, SECOND, TimedFrame, ends, every, handshake, sequence, tcp, udp, window};
use row::{Cell, flow, flows, get, nulls, numbers, row};

/// The header of its files. Its own comments count to 85 with the label: one number is left out.
const HEADER: &str = "Flow ID,Src IP,Src Port,Dst IP,Dst Port,Protocol,Timestamp,Flow Duration,\
Total Fwd Packet,Total Bwd packets,Total Length of Fwd Packet,Total Length of Bwd Packet,\
Fwd Packet Length Max,Fwd Packet Length Min,Fwd Packet Length Mean,Fwd Packet Length Std,\
Bwd Packet Length Max,Bwd Packet Length Min,Bwd Packet Length Mean,Bwd Packet Length Std,\
Flow Bytes/s,Flow Packets/s,Flow IAT Mean,Flow IAT Std,Flow IAT Max,Flow IAT Min,\
Fwd IAT Total,Fwd IAT Mean,Fwd IAT Std,Fwd IAT Max,Fwd IAT Min,\
Bwd IAT Total,Bwd IAT Mean,Bwd IAT Std,Bwd IAT Max,Bwd IAT Min,\
Fwd PSH Flags,Bwd PSH Flags,Fwd URG Flags,Bwd URG Flags,Fwd Header Length,Bwd Header Length,\
Fwd Packets/s,Bwd Packets/s,Packet Length Min,Packet Length Max,Packet Length Mean,\
Packet Length Std,Packet Length Variance,FIN Flag Count,SYN Flag Count,RST Flag Count,\
PSH Flag Count,ACK Flag Count,URG Flag Count,CWR Flag Count,ECE Flag Count,Down/Up Ratio,\
Average Packet Size,Fwd Segment Size Avg,Bwd Segment Size Avg,Fwd Bytes/Bulk Avg,\
Fwd Packet/Bulk Avg,Fwd Bulk Rate Avg,Bwd Bytes/Bulk Avg,Bwd Packet/Bulk Avg,Bwd Bulk Rate Avg,\
Subflow Fwd Packets,Subflow Fwd Bytes,Subflow Bwd Packets,Subflow Bwd Bytes,FWD Init Win Bytes,\
Bwd Init Win Bytes,Fwd Act Data Pkts,Fwd Seg Size Min,Active Mean,Active Std,Active Max,\
Active Min,Idle Mean,Idle Std,Idle Max,Idle Min,Label";

#[test]
fn the_columns_are_those_of_cicflowmeter() {
    let columns = find("cic.v1").unwrap().columns();
    let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
    assert_eq!(names.join(","), HEADER);
    assert_eq!(names.len(), 84);
}

#[test]
fn defect_1_each_payload_counts_once() {
    // CICFlowMeter enters the first payload twice: (100 + 100 + 40 + 10) / 4 = 62.5.
    let flow = flow(&[
        (0, udp(true, 100)),
        (SECOND, udp(true, 40)),
        (2 * SECOND, udp(false, 10)),
    ]);
    // Mean (100 + 40 + 10) / 3; variance (50^2 + 10^2 + 40^2) / 2.
    numbers(
        &flow,
        &[
            ("Packet Length Mean", 50.0),
            ("Packet Length Variance", 2100.0),
            ("Packet Length Std", 2100f64.sqrt()),
            ("Packet Length Min", 10.0),
            ("Packet Length Max", 100.0),
            ("Average Packet Size", 50.0),
            ("Fwd Packet Length Mean", 70.0),
            ("Fwd Packet Length Std", 1800f64.sqrt()),
            ("Fwd Act Data Pkts", 2.0),
        ],
    );
    nulls(&flow, &["Bwd Packet Length Std"]);
}

#[test]
fn defect_2_a_bulk_belongs_to_the_direction_that_sent_it() {
    // CICFlowMeter compares two Java references, and enters everything as backward.
    let mut frames = every(100 * MILLISECOND, 0, 4, || udp(true, 100));
    frames.extend(every(100 * MILLISECOND, 400 * MILLISECOND, 4, || {
        udp(false, 50)
    }));
    // Each bulk takes three gaps of 0.1 s.
    numbers(
        &flow(&frames),
        &[
            ("Fwd Bytes/Bulk Avg", 400.0),
            ("Fwd Packet/Bulk Avg", 4.0),
            ("Fwd Bulk Rate Avg", 400.0 / 0.3),
            ("Bwd Bytes/Bulk Avg", 200.0),
            ("Bwd Packet/Bulk Avg", 4.0),
            ("Bwd Bulk Rate Avg", 200.0 / 0.3),
        ],
    );
    let one_way = flow(&every(100 * MILLISECOND, 0, 4, || udp(true, 100)));
    nulls(&one_way, &["Bwd Bytes/Bulk Avg", "Bwd Packet/Bulk Avg"]);
}

#[test]
fn defect_3_the_initial_window_is_the_first() {
    // CICFlowMeter has the last one backward, 3000, and 0 where there is none.
    let flow = flow(&[
        (0, window(tcp(true, SYN, 0), 1000)),
        (MILLISECOND, window(tcp(false, SYN | ACK, 0), 2000)),
        (2 * MILLISECOND, window(tcp(true, ACK, 0), 1500)),
        (3 * MILLISECOND, window(tcp(false, ACK, 0), 3000)),
    ]);
    numbers(
        &flow,
        &[
            ("FWD Init Win Bytes", 1000.0),
            ("Bwd Init Win Bytes", 2000.0),
        ],
    );
    let datagrams = self::flow(&[(0, udp(true, 1)), (1, udp(false, 1))]);
    nulls(&datagrams, &["FWD Init Win Bytes", "Bwd Init Win Bytes"]);
}

#[test]
fn defect_4_a_connection_ends_with_both_fins_and_its_last_packets_belong_to_it() {
    // CICFlowMeter ends the flow at the server's FIN, and makes another of what follows it.
    let mut frames = handshake();
    frames.extend([
        (30 * MILLISECOND, tcp(true, PSH | ACK, 100)),
        (40 * MILLISECOND, tcp(false, FIN | ACK, 0)),
        (50 * MILLISECOND, tcp(true, ACK, 0)),
        (60 * MILLISECOND, tcp(true, PSH | ACK, 20)),
        (70 * MILLISECOND, tcp(true, FIN | ACK, 0)),
        (80 * MILLISECOND, tcp(false, ACK, 0)),
        // The FIN again, as if the last ACK had been lost.
        (90 * MILLISECOND, tcp(true, FIN | ACK, 0)),
        // The same ports with another initial sequence number: another connection.
        (SECOND, sequence(tcp(true, SYN, 0), 77)),
    ]);
    let flows = flows(&frames);
    assert_eq!(flows.len(), 2, "{flows:#?}");
    numbers(
        &flows[0],
        &[
            ("Total Fwd Packet", 7.0),
            ("Total Bwd packets", 3.0),
            ("Total Length of Fwd Packet", 120.0),
            ("FIN Flag Count", 3.0),
            ("SYN Flag Count", 2.0),
            ("Flow Duration", 90_000.0),
        ],
    );
    numbers(
        &flows[1],
        &[("Total Fwd Packet", 1.0), ("Total Bwd packets", 0.0)],
    );
}

#[test]
fn defect_4_a_reset_ends_a_connection_too() {
    let mut frames = handshake();
    frames.push((30 * MILLISECOND, tcp(false, RST, 0)));
    frames.push((6 * SECOND, sequence(tcp(true, SYN, 0), 1)));
    let flows = flows(&frames);
    assert_eq!(flows.len(), 2, "{flows:#?}");
    numbers(
        &flows[0],
        &[("RST Flag Count", 1.0), ("Total Bwd packets", 2.0)],
    );
}

#[test]
fn defect_5_packets_after_a_fin_count() {
    // CICFlowMeter drops what a side sends after its FIN, the repeated FIN too.
    let mut frames = handshake();
    frames.extend([
        (30 * MILLISECOND, tcp(true, FIN | ACK, 0)),
        (40 * MILLISECOND, tcp(true, PSH | ACK, 30)),
        (50 * MILLISECOND, tcp(true, FIN | ACK, 0)),
        (60 * MILLISECOND, tcp(false, ACK, 0)),
    ]);
    numbers(
        &flow(&frames),
        &[
            ("Total Fwd Packet", 5.0),
            ("Total Bwd packets", 2.0),
            ("Total Length of Fwd Packet", 30.0),
            ("FIN Flag Count", 2.0),
        ],
    );
}

#[test]
fn defect_6_flags_count_on_every_packet() {
    // CICFlowMeter looks at the flow's first packet only, which is a SYN.
    let mut frames = handshake();
    frames.extend([
        (30 * MILLISECOND, tcp(true, PSH | ACK, 10)),
        (40 * MILLISECOND, tcp(true, PSH | URG | ACK, 10)),
        (50 * MILLISECOND, tcp(false, PSH | ACK, 10)),
    ]);
    numbers(
        &flow(&frames),
        &[
            ("Fwd PSH Flags", 2.0),
            ("Bwd PSH Flags", 1.0),
            ("Fwd URG Flags", 1.0),
            ("Bwd URG Flags", 0.0),
            ("PSH Flag Count", 3.0),
            ("URG Flag Count", 1.0),
            ("ACK Flag Count", 5.0),
        ],
    );
}

#[test]
fn defect_7_averages_are_not_cut_to_integers() {
    // Forward bulks of 4 x 10 and 4 x 10 + 15 bytes, then three empty datagrams backward. The gap
    // of 2 s between the bulks makes two subflows.
    let mut frames = every(100 * MILLISECOND, 0, 4, || udp(true, 10));
    frames.extend(every(100 * MILLISECOND, 2300 * MILLISECOND, 4, || {
        udp(true, 10)
    }));
    frames.push((2700 * MILLISECOND, udp(true, 15)));
    frames.extend(every(100 * MILLISECOND, 2800 * MILLISECOND, 3, || {
        udp(false, 0)
    }));
    numbers(
        &flow(&frames),
        &[
            ("Down/Up Ratio", 3.0 / 9.0),
            ("Subflow Fwd Packets", 4.5),
            ("Subflow Fwd Bytes", 47.5),
            ("Subflow Bwd Packets", 1.5),
            ("Subflow Bwd Bytes", 0.0),
            ("Fwd Packet/Bulk Avg", 4.5),
            ("Fwd Bytes/Bulk Avg", 47.5),
            ("Fwd Bulk Rate Avg", 95.0 / 0.7),
        ],
    );
}

#[test]
fn defect_7_a_flow_without_long_gaps_is_one_subflow() {
    // CICFlowMeter counts from zero, and divides by nothing: 0.
    let flow = flow(&[(0, udp(true, 10)), (SECOND, udp(true, 20))]);
    numbers(
        &flow,
        &[("Subflow Fwd Packets", 2.0), ("Subflow Fwd Bytes", 30.0)],
    );
}

#[test]
fn defect_8_silence_ends_a_flow_and_one_packet_is_a_flow() {
    // CICFlowMeter ends a flow only by its age, and forgets one that has a single packet.
    let flows = flows(&[(0, udp(true, 10)), (120 * SECOND, udp(true, 20))]);
    assert_eq!(flows.len(), 2, "{flows:#?}");
    for (flow, bytes) in flows.iter().zip([10.0, 20.0]) {
        numbers(
            flow,
            &[
                ("Total Fwd Packet", 1.0),
                ("Total Length of Fwd Packet", bytes),
                ("Flow Duration", 0.0),
            ],
        );
    }
}

#[test]
fn defect_8_age_ends_a_flow() {
    // A packet each 100 s: those at 0 to 1700 s, then those from 1800 s.
    let flows = flows(&every(100 * SECOND, 0, 20, || udp(true, 1)));
    assert_eq!(flows.len(), 2, "{flows:#?}");
    numbers(
        &flows[0],
        &[("Total Fwd Packet", 18.0), ("Flow Duration", 1.7e9)],
    );
    numbers(
        &flows[1],
        &[("Total Fwd Packet", 2.0), ("Flow Duration", 1e8)],
    );
}

#[test]
fn defect_8_the_last_active_period_counts() {
    // CICFlowMeter has the first period only.
    let times = [0, 2, 10, 11];
    let flow = flow(&times.map(|second| (second * SECOND, udp(true, 1))));
    numbers(
        &flow,
        &[
            ("Active Mean", 1.5e6),
            ("Active Std", 0.5f64.sqrt() * 1e6),
            ("Active Max", 2e6),
            ("Active Min", 1e6),
            ("Idle Mean", 8e6),
            ("Idle Max", 8e6),
            ("Idle Min", 8e6),
        ],
    );
    nulls(&flow, &["Idle Std"]);
}

#[test]
fn defect_9_each_packet_moves_the_periods_once() {
    // CICFlowMeter moves them twice at a gap of more than 1 s: the second time finds no gap, and the
    // period that follows starts anew.
    let times = [0, 1, 8, 10, 20];
    let flow = flow(&times.map(|second| (second * SECOND, udp(true, 1))));
    // Active for 1, 2 and 0 s; idle for 7 and 10 s.
    numbers(
        &flow,
        &[
            ("Active Mean", 1e6),
            ("Active Std", 1e6),
            ("Active Max", 2e6),
            ("Active Min", 0.0),
            ("Idle Mean", 8.5e6),
            ("Idle Std", 4.5f64.sqrt() * 1e6),
            ("Idle Max", 10e6),
            ("Idle Min", 7e6),
        ],
    );
}

#[test]
fn defect_10_ipv6_is_measured_as_ipv4_is() {
    // CICFlowMeter has milliseconds here, no flags, no windows, and TCP's header length for UDP.
    let [four, six] = ["10.0.0.1", "fd00::1"].map(|client| row(&exchange(client)));
    let own = [
        "Flow ID",
        "Src IP",
        "Dst IP",
        "Fwd Header Length",
        "Bwd Header Length",
    ];
    for (v4, v6) in four.iter().zip(&six) {
        assert!(v4 == v6 || own.contains(&v4.0), "{v4:?} {v6:?}");
    }
    numbers(
        &exchange("fd00::1"),
        &[
            ("Flow Duration", 500.0),
            ("Flow IAT Mean", 250.0),
            ("SYN Flag Count", 2.0),
            ("FWD Init Win Bytes", 65535.0),
            // Two packets with 40 and 20 bytes of headers, and one.
            ("Fwd Header Length", 120.0),
            ("Bwd Header Length", 60.0),
        ],
    );
    let (source, destination) = ends("fd00::1");
    let datagram = build::udp(source, destination).payload([0; 5]).frame();
    numbers(
        &flow(&[(0, datagram)]),
        &[("Fwd Header Length", 48.0), ("Fwd Seg Size Min", 8.0)],
    );
}

/// A handshake between the client and its server, a packet each 250 us.
fn exchange(client: &str) -> Flow {
    let (source, destination) = ends(client);
    let microseconds = 1_000;
    flow(&[
        (0, build::tcp(source, destination, SYN, 0).frame()),
        (
            250 * microseconds,
            build::tcp(destination, source, SYN | ACK, 0).frame(),
        ),
        (
            500 * microseconds,
            build::tcp(source, destination, ACK, 0).frame(),
        ),
    ])
}

#[test]
fn defect_11_headers_are_the_ip_header_and_the_transport_header() {
    let (source, destination) = ends("10.0.0.1");
    // 20 + 8 and 20 + 12 bytes, then 20 and 20. CICFlowMeter: 32 + 20.
    let options = build::tcp(source, destination, SYN, 3).options(2).frame();
    let flow = flow(&[(0, options), (1, tcp(true, ACK, 10))]);
    numbers(
        &flow,
        &[
            ("Fwd Header Length", 100.0),
            ("Bwd Header Length", 0.0),
            ("Fwd Seg Size Min", 20.0),
            ("Total Length of Fwd Packet", 10.0),
        ],
    );
}

#[test]
fn defect_12_every_ip_protocol_makes_flows() {
    let (source, destination) = ends("10.0.0.1");
    let (from, to) = (source.ip(), destination.ip());
    let mut frames: Vec<TimedFrame> = [50, 47, 89]
        .map(|protocol| build::other(from, to, protocol).payload([0; 40]).frame())
        .map(|frame| (0, frame))
        .into();
    frames.push((1, build::echo(from, to).payload([0; 40]).frame()));
    let mut reply = build::echo(to, from).payload([0; 40]).frame();
    reply[34] = 0;
    frames.push((2, reply));
    // Ports 1000 and 2000 at the start of its header, as in TCP.
    let mut sctp = vec![0; 40];
    sctp[..4].copy_from_slice(&[0x03, 0xe8, 0x07, 0xd0]);
    frames.push((3, build::other(from, to, 132).payload(sctp).frame()));

    let flows = flows(&frames);
    let mut seen: Vec<[Cell; 4]> = flows
        .iter()
        .map(|flow| {
            [
                "Protocol",
                "Src Port",
                "Dst Port",
                "Total Length of Fwd Packet",
            ]
            .map(|name| get(flow, name))
        })
        .collect();
    seen.sort_by_key(|[protocol, ..]| format!("{protocol:?}"));
    let number = |value: u32| Cell::Number(value.into());
    let expected = [
        // The echo header is 8 bytes, SCTP's 12; of the others none is known. An echo's identifier is a port.
        [1, 1, 0, 40],
        [132, 1000, 2000, 28],
        [47, 0, 0, 40],
        [50, 0, 0, 40],
        [89, 0, 0, 40],
    ];
    assert_eq!(seen, expected.map(|row| row.map(number)));
    let echo = flows.iter().find(|flow| flow.key.protocol == 1).unwrap();
    numbers(
        echo,
        &[("Total Fwd Packet", 1.0), ("Total Bwd packets", 1.0)],
    );
    // Its type is kept, but as no port.
    assert_eq!(echo.icmp.map(|icmp| icmp.kind), Some(8));
}

#[test]
fn defect_13_rates_over_no_time_are_null() {
    let rates = [
        "Flow Bytes/s",
        "Flow Packets/s",
        "Fwd Packets/s",
        "Bwd Packets/s",
        "Fwd Bulk Rate Avg",
    ];
    let same_time: Vec<TimedFrame> = (0..5).map(|_| (0, udp(true, 10))).collect();
    for frames in [&same_time[..1], &same_time[..]] {
        let flow = flow(frames);
        nulls(&flow, &rates);
        for (name, cell) in row(&flow) {
            let finite = !matches!(cell, Cell::Number(number) if !number.is_finite());
            assert!(finite, "{name}: {cell:?}");
        }
    }
    numbers(
        &flow(&same_time),
        &[("Flow IAT Mean", 0.0), ("Fwd Packet/Bulk Avg", 5.0)],
    );
    let unknown = [
        "Flow IAT Mean",
        "Fwd IAT Total",
        "Bwd IAT Min",
        "Bwd Packet Length Max",
        "Fwd Packet Length Std",
        "Idle Mean",
        "Label",
    ];
    nulls(&flow(&same_time[..1]), &unknown);
}

#[test]
fn an_endpoint_first_in_order_makes_the_id_of_both_directions() {
    let there = flow(&[(0, udp(true, 1))]);
    let back = flow(&[(0, udp(false, 1))]);
    let id = Cell::Text("10.0.0.1-10.0.0.2-1000-2000-17".to_owned());
    assert_eq!(
        (get(&there, "Flow ID"), get(&back, "Flow ID")),
        (id.clone(), id)
    );
    assert_eq!(get(&back, "Src IP"), Cell::Text("10.0.0.2".to_owned()));
    assert_eq!(get(&there, "Timestamp"), Cell::Number(0.0));
}
