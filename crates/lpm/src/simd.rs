//! Which instructions a lookup uses.

/// An instruction set that lookups are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Simd {
    /// What every machine has.
    Portable,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
}

impl Simd {
    /// All of them that this machine has, the fastest last.
    pub fn available() -> &'static [Self] {
        if avx512() {
            &[Self::Portable, Self::Avx512]
        } else {
            &[Self::Portable]
        }
    }

    /// The fastest that this machine has.
    pub fn best() -> Self {
        if avx512() {
            Self::Avx512
        } else {
            Self::Portable
        }
    }

    /// Whether this machine has it.
    pub fn is_available(self) -> bool {
        self == Self::Portable || avx512()
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx512 => "avx512",
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
}

#[cfg(not(target_arch = "x86_64"))]
fn avx512() -> bool {
    false
}
