//! The crate once over each set of primitives, with the models that use it.

pub(crate) mod no_fence;
pub(crate) mod relaxed_load;
pub(crate) mod relaxed_store;
pub(crate) mod sound;
pub(crate) mod weak_fence;
