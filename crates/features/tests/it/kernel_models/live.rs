//! Models of a running datapath.

use std::sync::Arc;
use std::time::{Duration, Instant};

use features::Options;
use features::kernel::{ModelSlot, Wakeup};
use features::live::{Direction, Plan, datapaths};
use features::schema;
use features::sink::Nowhere;
use packet::build;

use super::shapes::always;
use crate::kernel::frames::at;
use crate::kernel::wire::Wire;

/// Datagrams of so many flows.
fn datagrams(from_port: u16, flows: u16) -> Vec<Vec<u8>> {
    let ports = from_port..from_port + flows;
    let from = |port| at(&format!("192.0.2.1:{port}"));
    let frame = |port| build::udp(from(port), at("192.0.2.2:53")).frame();
    ports.map(frame).collect()
}

fn plan(ifindex: u32, slot: &Arc<ModelSlot>) -> Plan {
    Plan {
        interface: "eth0".to_owned(),
        ifindex,
        options: Options::default(),
        schema: schema::find("tree.v1").unwrap(),
        direction: Direction::In,
        promiscuous: false,
        tap: false,
        workers: None,
        wakeup: Wakeup::default(),
        steer: false,
        recorder: None,
        model: Some(Arc::clone(slot)),
        sink: Arc::new(|| Box::new(Nowhere)),
    }
}

#[test]
fn a_datapath_asks_the_model_of_its_plan_and_the_one_after() {
    if !sys::require::root() {
        return;
    }
    for name in ["xdp-flow", "tc-flow"] {
        asks_one_model_and_the_next(name);
    }
}

fn asks_one_model_and_the_next(name: &str) {
    let wire = Wire::new();
    let slot = Arc::new(ModelSlot::new(always(r#""action":"pass""#), false));
    let plan = plan(wire.ifindex, &slot);
    let datapath = datapaths().into_iter().find(|one| one.name() == name);
    let running = wire.near(|| datapath.unwrap().start(&plan).unwrap());
    let send = |from_port| {
        let sender = wire.sender();
        for frame in datagrams(from_port, 100) {
            assert!(sender.send(&frame));
            std::thread::sleep(Duration::from_micros(200));
        }
        let deadline = Instant::now() + Duration::from_secs(30);
        while slot.answers().unwrap().asked < 100 {
            assert!(Instant::now() < deadline, "{:?}", slot.answers());
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    send(1000);
    let before = slot.put(always(r#""action":"drop""#)).unwrap();
    assert_eq!((before.asked, before.packets), (100, [100, 0, 0, 0]));
    send(2000);
    running.stop();
    let after = slot.answers().unwrap();
    assert_eq!((after.asked, after.packets), (100, [0, 100, 0, 0]));
}

#[test]
fn datapaths_without_a_kernel_table_refuse_a_model() {
    if !sys::require::root() {
        return;
    }
    let slot = Arc::new(ModelSlot::new(always(r#""action":"pass""#), false));
    for name in ["recv", "tpacket", "xdp-ringbuf", "af-xdp"] {
        let datapath = datapaths().into_iter().find(|one| one.name() == name);
        let refused = datapath.unwrap().start(&plan(1, &slot)).err().unwrap();
        let refused = refused.to_string();
        assert!(
            refused.contains("xdp-flow, xdp-generic and tc-flow do"),
            "{refused}"
        );
    }
}
