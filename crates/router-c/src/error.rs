//! What went wrong last in each thread, and panics, which must not unwind into C.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Keeps the text, and returns what says that there is one.
pub(crate) fn fail<T>(what: &(impl Display + ?Sized), sign: T) -> T {
    let text = what.to_string().replace('\0', " ");
    LAST.with_borrow_mut(|last| *last = CString::new(text).unwrap_or_default());
    sign
}

/// This thread's last text.
pub(crate) fn last() -> *const c_char {
    LAST.with_borrow(|last| last.as_ptr())
}

/// What `call` returns, or the sign of failure if it panics.
pub(crate) fn guarded<T>(sign: T, call: impl FnOnce() -> T) -> T {
    // The router is read only, and answers half written are announced as a failure.
    catch_unwind(AssertUnwindSafe(call))
        .unwrap_or_else(|_| fail("a bug in liblowroad_router: see standard error", sign))
}
