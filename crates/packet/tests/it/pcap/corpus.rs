//! Captures of the corpus.

use std::fs::File;

use packet::pcap::ETHERNET;

use crate::common::{read, read_every_way, singly};

#[test]
fn every_outside_capture_reads_to_its_end_in_every_way() {
    let Some(folder) = sys::require::corpus() else {
        return;
    };
    let mut packets = 0;
    for entry in std::fs::read_dir(folder.join("pcap")).unwrap() {
        let path = entry.unwrap().path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if !matches!(extension, Some("pcap" | "pcapng")) {
            continue;
        }
        let whole = read(File::open(&path).unwrap(), singly);
        assert_eq!(whole.1, None, "{}", path.display());
        let file = std::fs::read(&path).unwrap();
        assert!(read_every_way(&file) == whole, "{}", path.display());
        for frame in &whole.0 {
            if frame.link_type == ETHERNET {
                // The result does not matter: it must not panic.
                let _ = packet::parse::parse(&frame.frame);
            }
        }
        packets += whole.0.len();
    }
    assert!(packets > 0, "no captures in {}", folder.display());
}
