//! What cannot be done is said in one line, with what to do.

use gpu::{Backend, Device};
use router::engine::{Contents, Engine};
use router::gpu::{Error, Gpu, KERNELS, Options};

use super::{device, emulated};

#[test]
fn tables_that_are_too_large_for_the_device_are_refused() {
    let Some(mut device) = device() else { return };
    device.largest = 1 << 20;
    let refused = Gpu::setup(Contents::default(), &Options::of(device)).unwrap_err();
    assert!(matches!(refused, Error::Device(gpu::Error::Memory { .. })));
    let said = refused.to_string();
    assert!(said.contains("use smaller tables"), "{said}");
}

#[test]
fn kernels_that_the_device_refuses_are_an_error_with_its_words() {
    let Some(device) = emulated() else { return };
    let broken = Device::open(&device, "__kernel void lpm_v4(", &KERNELS).unwrap_err();
    let said = broken.to_string();
    assert!(said.contains("cannot build the kernels"), "{said}");
    assert!(said.contains("error"), "{said}");
    let missing = Device::open(&device, "__kernel void other() {}", &KERNELS).unwrap();
    let lane = missing.lane(gpu::Memory::Pageable, 1, 1).unwrap_err();
    assert!(lane.to_string().contains("finding a kernel"));
}

#[test]
fn a_device_that_is_not_there_is_told_from_those_that_are() {
    let Some(device) = device() else { return };
    assert_eq!(gpu::find(&device.name()).unwrap(), device);
    let there = gpu::devices().filter_map(|(_, found)| found.ok());
    let names: Vec<String> = there.flatten().map(|device| device.name()).collect();
    for other in ["opencl:99", "opencl", "vulkan:0", ""] {
        let said = gpu::find(other).unwrap_err().to_string();
        assert!(
            said.contains(&format!("choose among {}", names.join(", "))),
            "{said}"
        );
    }
    assert_eq!(Backend::ALL.map(Backend::name)[0], "opencl");
}
