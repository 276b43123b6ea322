//! Opens a skeleton, has it prepared, and loads it.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{OpenObject, ProgramMut};

use crate::Error;

/// Loads the programs and maps of a skeleton after `prepare` has set constants and sizes of maps.
///
/// `what` names the programs in errors: `the flow programs`. When the verifier refuses a program,
/// libbpf writes the verifier's log to standard error, and the error has the kernel's error number.
///
/// # Errors
/// The object or a program is refused, or `prepare` fails.
pub fn load<'obj, B, E>(
    builder: B,
    storage: &'obj mut MaybeUninit<OpenObject>,
    what: &str,
    prepare: impl FnOnce(&mut B::Output) -> Result<(), E>,
) -> Result<<B::Output as OpenSkel<'obj>>::Output, E>
where
    B: SkelBuilder<'obj>,
    E: From<Error>,
{
    let mut open = builder
        .open(storage)
        .map_err(Error::of(format!("opening {what}")))?;
    prepare(&mut open)?;
    Ok(open.load().map_err(Error::of(format!("loading {what}")))?)
}

/// A descriptor of a loaded program, which lives on without the skeleton.
///
/// # Errors
/// The process has too many open files.
pub fn program(program: &ProgramMut<'_>) -> Result<OwnedFd, Error> {
    let name = program.name().display();
    program
        .as_fd()
        .try_clone_to_owned()
        .map_err(|error| Error::of(format!("keeping program {name}"))(error.into()))
}
