//! vmlinux.h against the running kernel: a field that is missing or has another type fails to load.

use crate::common;

#[test]
fn every_declared_type_loads() {
    if !sys::require::root() {
        return;
    }
    let object = common::load("headers");
    assert_eq!(object.progs().count(), 9);
}
