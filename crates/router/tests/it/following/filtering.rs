//! Rules are compiled while routes change.

use std::sync::Mutex;
use std::sync::mpsc::channel;

use router::follow::Options;
use router::forward::Forwarding;
use router::rules::RuleSet;

use super::kernel::{is, router};
use super::lab::{TIMEOUT, follow_with};
use super::plane::Memory;

#[test]
fn routes_change_while_rules_are_compiled() {
    let Some((router, _one, _two)) = router("rules") else {
        return;
    };
    let ((begin, begun), (end, ended)) = (channel(), channel());
    let ended = Mutex::new(ended);
    let mut plane = Memory::new();
    plane.compiling = std::sync::Arc::new(move || {
        begin.send(()).unwrap();
        ended.lock().unwrap().recv_timeout(TIMEOUT).unwrap();
    });
    let followed = follow_with(&router, plane, Options::default());
    followed.with(|follow| follow.plane_mut().calls.clear());
    std::thread::scope(|scope| {
        let filter = scope.spawn(|| followed.rules(&RuleSet::default()));
        begun.recv_timeout(TIMEOUT).unwrap();
        // The compiler goes on only after the route.
        router.run("ip route add blackhole 192.0.2.0/24");
        is(&followed, "192.0.2.1", Forwarding::Drop);
        end.send(()).unwrap();
        filter.join().unwrap().unwrap();
    });
    let calls = followed.with(|follow| follow.plane().calls.clone());
    let at = |what: &str| calls.iter().position(|call| call.starts_with(what));
    assert!(at("192.0.2.0/24") < at("rules"), "{calls:?}");
    assert!(at("192.0.2.0/24").is_some(), "{calls:?}");
}
