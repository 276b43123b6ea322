//! Kernels compiled for one architecture, by NVIDIA's run-time compiler, which needs neither a device nor
//! its driver.

use std::ffi::CString;

use cudarc::nvrtc::result::{self, NvrtcError};
use cudarc::nvrtc::sys::{
    is_culib_present, nvrtcGetCUBIN, nvrtcGetCUBINSize, nvrtcProgram, nvrtcResult,
};
use datapath::Missing;

use crate::Error;

/// A program that goes when it is done with.
struct Program(nvrtcProgram);

/// Whether there is a compiler.
pub(super) fn check() -> Result<(), Missing> {
    // SAFETY: asks for a library, which does nothing when it is loaded.
    if unsafe { is_culib_present() } {
        return Ok(());
    }
    Err(Missing::new(
        "there is no libnvrtc.so.12, which compiles kernels",
        "pip install nvidia-cuda-nvrtc-cu12, and name its folder nvidia/cuda_nvrtc/lib in LD_LIBRARY_PATH",
    ))
}

/// Compiles a source for an architecture.
pub(crate) fn binary(source: &str, architecture: &str, device: &str) -> Result<Vec<u8>, Error> {
    check()?;
    let broken = |log: String| Error::Build {
        device: device.to_owned(),
        log,
    };
    let failed = |error: NvrtcError| broken(format!("{:?}", error.0));
    let source = CString::new(source).map_err(|error| broken(error.to_string()))?;
    let program = Program(result::create_program(&source, None).map_err(failed)?);
    let options = [
        format!("--gpu-architecture={architecture}"),
        "--std=c++17".to_owned(),
    ];
    // SAFETY: a program that was just made.
    if let Err(error) = unsafe { result::compile_program(program.0, &options) } {
        let log = program.log();
        return Err(broken(log.unwrap_or_else(|| format!("{:?}", error.0))));
    }
    program.binary().map_err(failed)
}

impl Program {
    fn log(&self) -> Option<String> {
        // SAFETY: a program that was compiled.
        let log = unsafe { result::get_program_log(self.0) }.ok()?;
        let bytes: Vec<u8> = log.iter().map(|byte| byte.to_ne_bytes()[0]).collect();
        let log = String::from_utf8_lossy(&bytes);
        Some(log.trim_end_matches('\0').trim().to_owned())
    }

    fn binary(&self) -> Result<Vec<u8>, NvrtcError> {
        let checked = |result| match result {
            nvrtcResult::NVRTC_SUCCESS => Ok(()),
            error => Err(NvrtcError(error)),
        };
        let mut bytes = 0;
        // SAFETY: a program that was compiled; one number is written.
        checked(unsafe { nvrtcGetCUBINSize(self.0, &raw mut bytes) })?;
        let mut binary = vec![0_u8; bytes];
        // SAFETY: as many bytes as it has.
        checked(unsafe { nvrtcGetCUBIN(self.0, binary.as_mut_ptr().cast()) })?;
        Ok(binary)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: it was made once, and goes once.
        let _ = unsafe { result::destroy_program(self.0) };
    }
}
