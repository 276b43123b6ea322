//! Numbers as text. A float has the fewest digits that identify it among floats of its width.

use zmij::Float;

pub(super) fn integer(value: impl itoa::Integer, out: &mut Vec<u8>) {
    let mut buffer = itoa::Buffer::new();
    out.extend_from_slice(buffer.format(value).as_bytes());
}

/// Appends a float for CSV: `1e16` or larger and numbers below `1e-5` have an exponent (`f32`: `1e13`
/// and `1e-6`). The special values are `NaN`, `inf` and `-inf`.
pub(super) fn csv_float(value: impl Float, out: &mut Vec<u8>) {
    let mut buffer = zmij::Buffer::new();
    let text = buffer.format(value).as_bytes();
    match text.iter().position(|byte| *byte == b'+') {
        Some(plus) => {
            out.extend_from_slice(&text[..plus]);
            out.extend_from_slice(&text[plus + 1..]);
        }
        None => out.extend_from_slice(text),
    }
}

/// Appends a float for JSON: `1.0e10` or larger and numbers below `1.0e-5` have an exponent. JSON has
/// neither NaN nor infinities, so they become `null`.
pub(super) fn json_float64(value: f64, out: &mut Vec<u8>) {
    if !value.is_finite() {
        return out.extend_from_slice(b"null");
    }
    let mut buffer = zmij::Buffer::new();
    let text = buffer.format_finite(value);
    let size = value.abs();
    if size == 0.0 || (1e-5..1e10).contains(&size) {
        return out.extend_from_slice(text.as_bytes());
    }
    let bits = value.to_bits();
    let fraction = bits & ((1 << 52) - 1);
    // Below 2^62, no bound of an interval has fewer digits than the float. The interval of a power of
    // two is not symmetric.
    if size < 4_611_686_018_427_387_904.0 || fraction == 0 {
        return scientific(text, out);
    }
    let binary = Binary::new(fraction | 1 << 52, (bits >> 52) & 0x7ff, 1075);
    let mut decimal = Decimal::parse(text);
    decimal.leave_bound(&binary);
    decimal.write(value.is_sign_negative(), out);
}

/// Appends what `zmij` writes with an exponent and one digit before the point. The number is at least 10, or
/// below 1 and written with an exponent already.
fn scientific(text: &str, out: &mut Vec<u8>) {
    let (sign, number) = text.split_at(usize::from(text.starts_with('-')));
    out.extend_from_slice(sign.as_bytes());
    if let Some((digits, exponent)) = number.split_once('e') {
        out.extend_from_slice(digits.as_bytes());
        out.extend_from_slice(if digits.len() == 1 { b".0e" } else { b"e" });
        return out.extend_from_slice(exponent.trim_start_matches('+').as_bytes());
    }
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let (first, rest) = whole.split_at(1);
    out.extend_from_slice(first.as_bytes());
    out.push(b'.');
    if fraction == "0" {
        let digits = rest.trim_end_matches('0');
        let digits = if digits.is_empty() { "0" } else { digits };
        out.extend_from_slice(digits.as_bytes());
    } else {
        out.extend_from_slice(rest.as_bytes());
        out.extend_from_slice(fraction.as_bytes());
    }
    out.push(b'e');
    integer(rest.len(), out);
}

/// As [`json_float64`].
pub(super) fn json_float32(value: f32, out: &mut Vec<u8>) {
    if !value.is_finite() {
        return out.extend_from_slice(b"null");
    }
    let mut buffer = zmij::Buffer::new();
    let text = buffer.format_finite(value);
    if value == 0.0 {
        return out.extend_from_slice(text.as_bytes());
    }
    let mut decimal = Decimal::parse(text);
    let bits = value.to_bits();
    let (fraction, exponent) = (bits & ((1 << 23) - 1), (bits >> 23) & 0xff);
    if fraction != 0 {
        let implicit = if exponent == 0 { 0 } else { 1 << 23 };
        let mantissa = u64::from(fraction | implicit);
        let binary = Binary::new(mantissa, u64::from(exponent.max(1)), 150);
        decimal.round_half_up(&binary);
        decimal.leave_bound(&binary);
    }
    decimal.write(value.is_sign_negative(), out);
}

/// A positive float: `mantissa` times 2 to the power of `exponent`.
struct Binary {
    mantissa: u64,
    exponent: i32,
}

impl Binary {
    fn new(mantissa: u64, exponent: u64, bias: i32) -> Self {
        let exponent = i32::try_from(exponent).unwrap_or(0) - bias;
        Self { mantissa, exponent }
    }
}

/// A positive number: `digits` times 10 to the power of `exponent`.
struct Decimal {
    digits: u64,
    exponent: i32,
}

impl Decimal {
    /// Reads what `zmij` writes, without the sign and without zeros at the end.
    fn parse(text: &str) -> Self {
        let (number, exponent) = text.split_once('e').unwrap_or((text, "0"));
        let mut decimal = Self {
            digits: 0,
            exponent: exponent.parse().unwrap_or(0),
        };
        let mut is_fraction = false;
        for byte in number.bytes() {
            match byte {
                b'.' => is_fraction = true,
                b'0'..=b'9' => {
                    decimal.digits = decimal.digits * 10 + u64::from(byte - b'0');
                    decimal.exponent -= i32::from(is_fraction);
                }
                _ => {}
            }
        }
        while decimal.digits != 0 && decimal.digits.is_multiple_of(10) {
            decimal.digits /= 10;
            decimal.exponent += 1;
        }
        decimal
    }

    /// Of two numbers that are equally close to a float, takes the larger one, not the even one.
    fn round_half_up(&mut self, float: &Binary) {
        let half = Self {
            digits: self.digits * 10 + 5,
            exponent: self.exponent - 1,
        };
        if half.is(float) {
            self.digits += 1;
        }
    }

    /// Takes a number with another digit where this one is the lower bound of the interval that rounds
    /// to a float. A reader that does not round half to even would take the bound for the float below.
    fn leave_bound(&mut self, float: &Binary) {
        let bound = Binary {
            mantissa: 2 * float.mantissa - 1,
            exponent: float.exponent - 1,
        };
        if !self.is(&bound) {
            return;
        }
        // The bound is half a unit of the last bit below the float, and the unit is less than ten.
        let unit = f64::from(float.exponent).exp2();
        let place = unit.log10().floor();
        let above = (unit / 2.0 / 10f64.powf(place)).round();
        let digit = (1..=5).find(|digit| f64::from(*digit) >= above);
        while f64::from(self.exponent) > place {
            self.digits *= 10;
            self.exponent -= 1;
        }
        self.digits += u64::from(digit.unwrap_or(0u8));
    }

    /// Whether it is exactly a float. Both sides are compared without their factors of two.
    fn is(&self, float: &Binary) -> bool {
        let (twos, float_twos) = (
            self.digits.trailing_zeros(),
            float.mantissa.trailing_zeros(),
        );
        let (digits, mantissa) = (self.digits >> twos, float.mantissa >> float_twos);
        let exponent = |twos: u32, exponent: i32| i64::from(twos) + i64::from(exponent);
        if exponent(twos, self.exponent) != exponent(float_twos, float.exponent) {
            return false;
        }
        let fives = 5u128.checked_pow(self.exponent.unsigned_abs());
        let (scaled, other) = if self.exponent < 0 {
            (mantissa, digits)
        } else {
            (digits, mantissa)
        };
        let scaled = fives.and_then(|fives| fives.checked_mul(u128::from(scaled)));
        scaled == Some(u128::from(other))
    }

    fn write(&self, is_negative: bool, out: &mut Vec<u8>) {
        if is_negative {
            out.push(b'-');
        }
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(self.digits).as_bytes();
        // The place of the decimal point among the digits.
        let point = i32::try_from(digits.len()).unwrap_or(0) + self.exponent;
        if !(-4..=10).contains(&point) {
            let (first, rest) = digits.split_at(1);
            out.extend_from_slice(first);
            out.push(b'.');
            out.extend_from_slice(if rest.is_empty() { b"0" } else { rest });
            out.push(b'e');
            return integer(point - 1, out);
        }
        let zeros = |count: i32| std::iter::repeat_n(b'0', usize::try_from(count).unwrap_or(0));
        let whole = usize::try_from(point).unwrap_or(0);
        if whole == 0 {
            out.extend_from_slice(b"0.");
            out.extend(zeros(-point));
            out.extend_from_slice(digits);
        } else if whole < digits.len() {
            out.extend_from_slice(&digits[..whole]);
            out.push(b'.');
            out.extend_from_slice(&digits[whole..]);
        } else {
            out.extend_from_slice(digits);
            out.extend(zeros(self.exponent));
            out.extend_from_slice(b".0");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scientific_text_equals_its_decimal() {
        let digits = [
            1_u64,
            2,
            12,
            101,
            123_456,
            9_999_999_999,
            1_234_567_890_123_457,
        ];
        let exponents = (-340..=-20).chain(-6..=300);
        for (digits, exponent) in exponents.flat_map(|e| digits.map(|digits| (digits, e))) {
            let value: f64 = format!("-{digits}e{exponent}").parse().unwrap_or_default();
            if !value.is_finite() || (1e-5..1e10).contains(&value.abs()) || value == 0.0 {
                continue;
            }
            let mut buffer = zmij::Buffer::new();
            let text = buffer.format_finite(value);
            let (mut direct, mut expected) = (Vec::new(), Vec::new());
            scientific(text, &mut direct);
            Decimal::parse(text).write(true, &mut expected);
            assert_eq!(direct, expected, "{text}");
        }
    }
}
