//! The crate's modules over the primitives of the model checker loom, which runs every interleaving
//! of the programs in `variant/models.rs` and every value that a load may return. Weaker primitives show that
//! the models find the faults they look for.

#![allow(
    clippy::duplicate_mod,
    reason = "the crate's files over each set of primitives"
)]

mod sync;
mod variant;

use std::panic::catch_unwind;

use variant::{no_fence, relaxed_load, relaxed_store, sound, weak_fence};

/// Runs all interleavings of a program; panics where one of them fails.
fn explore(program: fn()) {
    loom::model(program);
}

/// The same, of interleavings that interrupt threads at most `preemptions` times where they could go on:
/// for programs that have too many.
fn explore_bounded(program: fn(), preemptions: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(program);
}

/// Whether an interleaving of a program fails.
fn fails(program: fn()) -> bool {
    catch_unwind(|| explore(program)).is_err()
}

#[test]
fn deferred_free_is_safe() {
    explore(sound::models::deferred_free);
    explore(sound::models::late_reader);
    explore_bounded(sound::models::reuse, 2);
}

#[test]
fn grace_period_wait_is_safe() {
    explore(sound::models::grace_period_wait);
    explore(sound::models::external_reader);
}

#[test]
fn deferred_unlink_is_safe() {
    explore(sound::models::deferred_unlink);
}

#[test]
fn generation_compare_is_safe() {
    explore(sound::models::generation_compare);
}

#[test]
fn version_contains_update() {
    explore(sound::models::version_of_update);
}

#[test]
fn missing_wait_is_found() {
    assert!(fails(sound::models::free_at_once));
    assert!(fails(sound::models::external_reader_unknown));
}

#[test]
fn missing_fence_is_found() {
    assert!(fails(no_fence::models::deferred_free));
    assert!(fails(no_fence::models::deferred_unlink));
    assert!(fails(no_fence::models::generation_compare));
}

#[test]
fn weak_fence_is_found() {
    assert!(fails(weak_fence::models::deferred_free));
    assert!(fails(weak_fence::models::grace_period_wait));
    assert!(fails(weak_fence::models::external_reader));
    assert!(fails(weak_fence::models::deferred_unlink));
}

#[test]
fn relaxed_store_is_found() {
    assert!(fails(relaxed_store::models::deferred_free));
    assert!(fails(relaxed_store::models::grace_period_wait));
    assert!(fails(relaxed_store::models::deferred_unlink));
}

#[test]
fn relaxed_load_is_found() {
    assert!(fails(relaxed_load::models::deferred_free));
    assert!(fails(relaxed_load::models::grace_period_wait));
    assert!(fails(relaxed_load::models::deferred_unlink));
    assert!(fails(relaxed_load::models::version_of_update));
}
