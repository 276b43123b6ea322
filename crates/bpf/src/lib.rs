//! BPF headers shared by every program, and the build helper.
