//! The skeletons that [`build`](crate::build) generated, as a module of the calling crate.

/// Declares a module with what was generated from `bpf/NAME.bpf.c`:
/// `bpf::skeleton!(pub(crate) mod flow = "flow")`. That code is not ours, and not held to our lints.
#[macro_export]
macro_rules! skeleton {
    ($visible:vis mod $module:ident = $name:literal) => {
        #[allow(
            warnings,
            clippy::all,
            clippy::pedantic,
            clippy::restriction,
            reason = "generated code"
        )]
        $visible mod $module {
            include!(concat!(env!("OUT_DIR"), "/", $name, ".skel.rs"));
        }
    };
}
