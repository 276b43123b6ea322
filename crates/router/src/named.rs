//! Enums whose variants have names that people write.

/// Gives an enum `ALL`, `name`, and what shows and reads names; what is no name is an `$unknown`.
macro_rules! named {
    ($named:ident or $unknown:ident: $($variant:ident = $name:literal),+ $(,)?) => {
        impl $named {
            /// All of them.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }
        }

        impl std::fmt::Display for $named {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl std::str::FromStr for $named {
            type Err = $unknown;

            fn from_str(name: &str) -> Result<Self, $unknown> {
                let found = Self::ALL.into_iter().find(|named| named.name() == name);
                found.ok_or_else(|| $unknown(name.to_owned()))
            }
        }
    };
}

/// Declares the formats of something that files hold: an enum with a name and an importer for each, and what a name
/// that is none is refused with.
macro_rules! formats {
    ($format:ident or $unknown:ident of $what:literal by $importer:ty:
     $($(#[$doc:meta])* $variant:ident = $name:literal: $reads:expr,)+) => {
        #[doc = concat!("Formats of ", $what, ".")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $format {
            $($(#[$doc])* $variant,)+
        }

        /// A name that is no format.
        #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
        #[error("{}", $crate::named::refusal(.0, $what, &$format::ALL.map($format::name)))]
        pub struct $unknown(String);

        $crate::named::named! { $format or $unknown: $($variant = $name),+ }

        impl $format {
            fn importer(self) -> &'static $importer {
                match self {
                    $(Self::$variant => &$reads,)+
                }
            }
        }
    };
}

pub(crate) fn refusal(name: &str, what: &str, known: &[&str]) -> String {
    let (last, others) = known.split_last().unwrap_or((&"", &[]));
    let others = others.join(", ");
    format!("{name:?} is no format of {what}: {others} or {last}")
}

pub(crate) use formats;
pub(crate) use named;
