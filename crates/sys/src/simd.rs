//! The vector instructions of this machine.

/// An instruction set that lookups are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Simd {
    /// The instructions that every machine has.
    Portable,
    /// AVX2, BMI1 and BMI2.
    Avx2,
    /// AVX-512 F, BW, DQ and VL, and what `Avx2` has.
    Avx512,
}

impl Simd {
    pub const ALL: [Self; 3] = [Self::Portable, Self::Avx2, Self::Avx512];

    /// All of them that this machine has.
    pub fn available() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|simd| simd.is_available())
    }

    /// The last of them that this machine has.
    pub fn widest() -> Self {
        Self::available().last().unwrap_or(Self::Portable)
    }

    /// Whether this machine has it.
    pub fn is_available(self) -> bool {
        match self {
            Self::Portable => true,
            Self::Avx2 => avx2(),
            Self::Avx512 => avx512(),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn avx2() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
}

#[cfg(target_arch = "x86_64")]
fn avx512() -> bool {
    avx2()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("popcnt")
}

#[cfg(not(target_arch = "x86_64"))]
fn avx2() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn avx512() -> bool {
    false
}
