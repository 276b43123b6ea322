//! The kernels for NVIDIA's devices, none of which has to be here: their compiler alone.

use router::gpu::{KERNELS, PERSISTENT_SOURCE};

/// Compiles a source for an architecture; none, with the skip reported, where there is no compiler.
fn compiled(source: &str, architecture: &str) -> Option<Result<Vec<u8>, gpu::Error>> {
    match gpu::cuda_binary(source, architecture) {
        Err(gpu::Error::Missing(missing)) => {
            let reason = format!("{missing}: {}", missing.remedy);
            sys::require::skip(sys::require::Class::Hardware, &reason);
            None
        }
        compiled => Some(compiled),
    }
}

#[test]
fn kernels_compile_for_architectures_old_and_new() {
    for architecture in ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120"] {
        let Some(binary) = compiled(PERSISTENT_SOURCE, architecture) else {
            return;
        };
        let binary = binary.unwrap();
        assert!(binary.starts_with(b"\x7fELF"), "{architecture}");
        for name in KERNELS {
            let section = format!(".text.{name}\0");
            let mut windows = binary.windows(section.len());
            let found = windows.any(|bytes| bytes == section.as_bytes());
            assert!(found, "{architecture}: {name}");
        }
    }
}

#[test]
fn what_the_compiler_refuses_is_told_in_its_words() {
    let Some(refused) = compiled("extern \"C\" __global__ void lpm_v4(", "sm_90") else {
        return;
    };
    let said = refused.unwrap_err().to_string();
    assert!(
        said.contains("cannot build the kernels") && said.contains("error"),
        "{said}"
    );
}
