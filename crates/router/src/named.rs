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

pub(crate) use named;
