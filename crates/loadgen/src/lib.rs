//! Packet generators and pcap replay.
