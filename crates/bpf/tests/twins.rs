//! Headers against the packet and stats crates.

mod common;

#[test]
fn loads() {
    if !sys::require::root() {
        return;
    }
    let object = common::load("twins");
    for p in object.progs() {
        eprintln!("{:?} {:?}", p.name(), p.insn_cnt());
    }
}
