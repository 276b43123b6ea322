//! The limits of a budget, and where they are met.

use std::io::{Read as _, repeat};

use super::*;

#[test]
fn limits_grow_with_the_file() {
    let budget = Budget::with_divisor(1 << 10);
    let most = 64 << 10;
    assert_eq!(budget.hold(most), Ok(()));
    let refusal = Exhaustion::Memory {
        read: 0,
        most: most as u64,
    };
    assert_eq!(budget.hold(1), Err(refusal));
    assert_eq!(budget.exhaustion(), Some(refusal));
    budget.read(10);
    assert_eq!(budget.hold(640), Ok(()));
    assert!(budget.room(1).is_err());
    budget.release(1000);
    assert_eq!(budget.room(1000), Ok(()));
    assert_eq!(budget.memory(), most - 360);
    // What is refused is not in use.
    assert!(budget.hold(usize::MAX).is_err());
    assert_eq!(budget.memory(), most - 360);
}

#[test]
fn work_and_content_add_up() {
    let budget = Budget::with_divisor(1 << 10);
    for _ in 0..128 {
        assert_eq!(budget.work(1 << 10), Ok(()));
    }
    assert!(matches!(budget.work(1), Err(Exhaustion::Work { .. })));
    let budget = Budget::with_divisor(1 << 10);
    let mut packed = Counter::new(&b"0123456789"[..], &budget);
    packed.read_exact(&mut [0; 10]).unwrap();
    let mut unpacked = Unpacker::new(repeat(0), &budget);
    let mut content = vec![0; (64 << 10) + 1280];
    unpacked.read_exact(&mut content).unwrap();
    let refused = unpacked.read(&mut [0; 1]).unwrap_err();
    assert!(
        refused
            .to_string()
            .starts_with("10 packed bytes become more than 66816"),
        "{refused}"
    );
    let budget = Budget::with_divisor(1 << 10);
    let mut lines = Unpacker::new(repeat(b'\n'), &budget);
    lines.read_exact(&mut vec![0; 32 << 10]).unwrap();
    assert!(lines.read(&mut [0; 1]).is_err());
    assert!(matches!(budget.exhaustion(), Some(Exhaustion::Work { .. })));
}
