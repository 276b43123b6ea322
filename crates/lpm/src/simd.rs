//! Which instructions a lookup uses.

/// An instruction set that lookups are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Simd {
    /// What every machine has.
    Portable,
    /// AVX2, reading tables by ordinary loads.
    Avx2,
    /// AVX-512 F, BW, DQ and VL. For IPv4 it reads tables by gathers, and is the faster one only
    /// where a gather is not microcode; for IPv6 it reads them by ordinary loads.
    Avx512,
}

impl Simd {
    const ALL: [Self; 3] = [Self::Portable, Self::Avx2, Self::Avx512];

    /// All of them that this machine has.
    pub fn available() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|simd| simd.is_available())
    }

    /// The one that is never slow for IPv4: AVX2 where there is AVX2. Whether AVX-512 is faster
    /// still is for a measurement on the machine to say.
    pub fn usual() -> Self {
        if Self::Avx2.is_available() {
            Self::Avx2
        } else {
            Self::Portable
        }
    }

    /// The last of them that this machine has, which is the fastest for IPv6.
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
