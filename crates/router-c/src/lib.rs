//! The C library `liblowroad_router`: what `include/lowroad_router.h` declares. It checks what C passes
//! and keeps errors' texts; lookups are `router`'s.

mod error;

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::slice;

use acl::{Action, Key4, Key6};
use router::library::{Library, Verdict};

use error::{fail, guarded};

const FAILURE: c_int = -1;

/// # Safety
/// Each of the names is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lowroad_router_open(
    routes: *const c_char,
    rules: *const c_char,
) -> *mut Library {
    // SAFETY: the caller's promise.
    let (routes, rules) = unsafe { (path(routes), path(rules)) };
    guarded(std::ptr::null_mut(), || {
        match Library::open(routes, rules) {
            Ok(library) => Box::into_raw(Box::new(library)),
            Err(error) => fail(&error, std::ptr::null_mut()),
        }
    })
}

/// # Safety
/// A C string, or null, which is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lowroad_router_open_image(image: *const c_char) -> *mut Library {
    // SAFETY: the caller's promise.
    let image = unsafe { path(image) };
    guarded(std::ptr::null_mut(), || match image {
        None => fail(&"the image's name is NULL", std::ptr::null_mut()),
        Some(image) => match Library::open_image(image) {
            Ok(library) => Box::into_raw(Box::new(library)),
            Err(error) => fail(&error, std::ptr::null_mut()),
        },
    })
}

/// # Safety
/// Null, or what opening returned and nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lowroad_router_close(router: *mut Library) {
    if !router.is_null() {
        // SAFETY: the caller's promise.
        guarded((), || drop(unsafe { Box::from_raw(router) }));
    }
}

/// The text is valid until this thread's next failing call.
#[unsafe(no_mangle)]
pub extern "C" fn lowroad_router_error() -> *const c_char {
    error::last()
}

/// # Safety
/// An open router; `count` addresses and room for as many hops.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lowroad_router_lookup4(
    router: *const Library,
    addresses: *const [u8; 4],
    count: usize,
    hops: *mut u16,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { batch(router, addresses, count, hops, Library::lookup4) }
}

/// # Safety
/// As `lowroad_router_lookup4`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lowroad_router_lookup6(
    router: *const Library,
    addresses: *const [u8; 16],
    count: usize,
    hops: *mut u16,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { batch(router, addresses, count, hops, Library::lookup6) }
}

/// # Safety
/// An open router; `count` keys and room for as many numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lowroad_router_classify4(
    router: *const Library,
    keys: *const Key4,
    count: usize,
    rules: *mut u32,
) -> c_int {
    // SAFETY: the caller's promise; a key is bytes, as the header declares them.
    unsafe { batch(router, keys, count, rules, Library::classify4) }
}

/// # Safety
/// As `lowroad_router_classify4`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lowroad_router_classify6(
    router: *const Library,
    keys: *const Key6,
    count: usize,
    rules: *mut u32,
) -> c_int {
    // SAFETY: as above.
    unsafe { batch(router, keys, count, rules, Library::classify6) }
}

/// # Safety
/// An open router.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lowroad_router_action(
    router: *const Library,
    family: c_int,
    rule: u32,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(router) = (unsafe { router.as_ref() }) else {
        return fail(&NO_ROUTER, FAILURE);
    };
    guarded(FAILURE, || match verdict(router, family, rule) {
        Some(verdict) => match verdict.action {
            Action::Accept => 0,
            Action::Drop => 1,
            Action::Punt => 2,
        },
        None => fail(&format!("no rule {rule} of IPv{family}"), FAILURE),
    })
}

/// # Safety
/// An open router, and `size` bytes that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lowroad_router_hop_text(
    router: *const Library,
    family: c_int,
    hop: u16,
    text: *mut c_char,
    size: usize,
) -> isize {
    // SAFETY: the caller's promise.
    let Some(router) = (unsafe { router.as_ref() }) else {
        return fail(&NO_ROUTER, -1);
    };
    let hops = match family {
        4 => router.hops4(),
        6 => router.hops6(),
        _ => &[],
    };
    let found = usize::from(hop).checked_sub(1).and_then(|at| hops.get(at));
    match found {
        // SAFETY: the caller's promise.
        Some(found) => unsafe { copy(found, text, size) },
        None => fail(&format!("no next hop {hop} of IPv{family}"), -1),
    }
}

/// # Safety
/// As `lowroad_router_hop_text`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lowroad_router_rule_text(
    router: *const Library,
    family: c_int,
    rule: u32,
    text: *mut c_char,
    size: usize,
) -> isize {
    // SAFETY: the caller's promise.
    let Some(router) = (unsafe { router.as_ref() }) else {
        return fail(&NO_ROUTER, -1);
    };
    match verdict(router, family, rule) {
        // SAFETY: the caller's promise.
        Some(verdict) => unsafe { copy(&verdict.text, text, size) },
        None => fail(&format!("no rule {rule} of IPv{family}"), -1),
    }
}

/// # Safety
/// An open router.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lowroad_router_routes(router: *const Library, family: c_int) -> usize {
    // SAFETY: the caller's promise.
    unsafe { router.as_ref() }.map_or(0, |router| of_family(router.routes(), family))
}

/// # Safety
/// An open router.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lowroad_router_rules(router: *const Library, family: c_int) -> usize {
    // SAFETY: the caller's promise.
    unsafe { router.as_ref() }.map_or(0, |router| of_family(router.rules(), family))
}

const NO_ROUTER: &str = "the router is NULL: see what lowroad_router_error said when it was opened";

/// # Safety
/// Null or a C string that outlives the path.
unsafe fn path<'a>(name: *const c_char) -> Option<&'a Path> {
    if name.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    Some(Path::new(OsStr::from_bytes(name.to_bytes())))
}

/// # Safety
/// An open router or null; `count` questions that can be read, and as many answers that can be written.
unsafe fn batch<Q, R>(
    router: *const Library,
    questions: *const Q,
    count: usize,
    answers: *mut R,
    look_up: impl FnOnce(&Library, &[Q], &mut [R]),
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(router) = (unsafe { router.as_ref() }) else {
        return fail(&NO_ROUTER, FAILURE);
    };
    if count == 0 {
        return 0;
    }
    if questions.is_null() || answers.is_null() {
        return fail(&"an array is NULL", FAILURE);
    }
    // SAFETY: neither is null, and they are as long as the caller says; C does not look at them
    // before the return.
    let (questions, answers) = unsafe {
        (
            slice::from_raw_parts(questions, count),
            slice::from_raw_parts_mut(answers, count),
        )
    };
    guarded(FAILURE, || {
        look_up(router, questions, answers);
        0
    })
}

/// # Safety
/// `size` bytes that may be written, or null for none.
unsafe fn copy(from: &str, text: *mut c_char, size: usize) -> isize {
    if !text.is_null() && size > 0 {
        let length = from.len().min(size - 1);
        // SAFETY: `length` + 1 bytes fit, and C's memory is not ours.
        unsafe {
            text.copy_from_nonoverlapping(from.as_ptr().cast(), length);
            text.add(length).write(0);
        }
    }
    isize::try_from(from.len()).unwrap_or(isize::MAX)
}

fn verdict(router: &Library, family: c_int, rule: u32) -> Option<Verdict> {
    match family {
        4 => router.verdict4(rule),
        6 => router.verdict6(rule),
        _ => None,
    }
}

fn of_family((v4, v6): (usize, usize), family: c_int) -> usize {
    match family {
        4 => v4,
        6 => v6,
        _ => 0,
    }
}
