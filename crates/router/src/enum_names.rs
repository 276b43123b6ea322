//! Names of enum variants in options, configuration and output.

/// Implements `ALL`, `name`, `Display` and `FromStr` for an enum. Unknown names are an `$unknown`.
macro_rules! enum_names {
    ($enum:ident or $unknown:ident: $($variant:ident = $name:literal),+ $(,)?) => {
        impl $enum {
            /// All of them.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }
        }

        impl std::fmt::Display for $enum {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl std::str::FromStr for $enum {
            type Err = $unknown;

            fn from_str(name: &str) -> Result<Self, $unknown> {
                let found = Self::ALL.into_iter().find(|variant| variant.name() == name);
                found.ok_or_else(|| $unknown(name.to_owned()))
            }
        }
    };
}

/// Declares the file formats of routes or rules: an enum with a name and an importer for each format, and the
/// error for unknown names.
macro_rules! formats {
    ($format:ident or $unknown:ident of $what:literal by $importer:ty:
     $($(#[$doc:meta])* $variant:ident = $name:literal: $reads:expr,)+) => {
        #[doc = concat!("Formats of ", $what, ".")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $format {
            $($(#[$doc])* $variant,)+
        }

        /// The name of an unknown format.
        #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
        #[error("{}", $crate::enum_names::refusal(.0, $what, &$format::ALL.map($format::name)))]
        pub struct $unknown(String);

        $crate::enum_names::enum_names! { $format or $unknown: $($variant = $name),+ }

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

pub(crate) use enum_names;
pub(crate) use formats;
