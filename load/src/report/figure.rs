//! Formats numbers for people: `6.28 M/s`, `3.9 µs`, `4.7 KB`, `23.4x`.

use super::Case;

/// The placeholder for a missing number.
pub const NONE: &str = "–";

/// Formats a rate per second.
pub fn rate(per_second: f64) -> String {
    scaled(per_second, &[(1e9, " G/s"), (1e6, " M/s"), (1e3, " k/s"), (1.0, "/s")], three_digits)
}

/// Formats a time in microseconds with a suitable unit.
pub fn time_us(microseconds: f64) -> String {
    if microseconds < 1.0 {
        return scaled(microseconds * 1e3, &[(1.0, " ns")], whole);
    }
    scaled(microseconds, &[(1e6, " s"), (1e3, " ms"), (1.0, " µs")], two_digits)
}

/// Formats bytes with decimal units: 1 KB is 1,000 bytes.
pub fn bytes(bytes: f64) -> String {
    if bytes < 1e3 {
        return scaled(bytes, &[(1e3, " KB"), (1.0, " B")], whole);
    }
    scaled(bytes, &[(1e9, " GB"), (1e6, " MB"), (1e3, " KB")], two_digits)
}

/// Formats a count with thousands separators: `1,234,567`.
pub fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a ratio with an `x`.
pub fn ratio(ratio: f64) -> String {
    match ratio {
        _ if !ratio.is_finite() => NONE.to_owned(),
        _ if ratio >= 99.95 => format!("{}x", count(ratio.round() as u64)),
        _ if ratio >= 0.995 => format!("{ratio:.1}x"),
        _ if ratio >= 0.0995 => format!("{ratio:.2}x"),
        _ => format!("{ratio:.3}x"),
    }
}

/// Formats a number in the unit of its case.
pub fn of_unit(unit: &str, figure: f64) -> String {
    match unit {
        _ if !figure.is_finite() => NONE.to_owned(),
        "us" => time_us(figure),
        _ if unit.ends_with("/s") => rate(figure),
        _ if unit.starts_with("bytes") => bytes(figure),
        _ => format!("{} {unit}", three_digits(figure)),
    }
}

/// Formats the median of a case, or returns the text that replaces it.
pub fn median(case: &Case) -> String {
    if let Some(instead) = &case.instead {
        return instead.clone();
    }
    of_unit(&case.unit, case.median)
}

/// Scales to the greatest unit in which the number is at least one after rounding.
fn scaled(figure: f64, units: &[(f64, &str)], digits: fn(f64) -> String) -> String {
    if !figure.is_finite() {
        return NONE.to_owned();
    }
    // A number that rounds to a thousand of a unit uses the next one: 999.96 µs are 1.0 ms.
    let fits = |&&(size, _): &&(f64, &str)| figure / size >= 0.9995;
    let Some((size, name)) = units.iter().find(fits).or(units.last()) else { return NONE.to_owned() };
    format!("{}{name}", digits(figure / size))
}

fn three_digits(figure: f64) -> String {
    match figure {
        _ if figure >= 999.5 => count(figure.round() as u64),
        _ if figure >= 99.95 => format!("{figure:.0}"),
        _ if figure >= 9.995 => format!("{figure:.1}"),
        _ => format!("{figure:.2}"),
    }
}

fn two_digits(figure: f64) -> String {
    if figure >= 99.95 { whole(figure) } else { format!("{figure:.1}") }
}

fn whole(figure: f64) -> String {
    count(figure.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_three_digits() {
        let expected = [
            (0.0, "0.00/s"),
            (8.123, "8.12/s"),
            (812.4, "812/s"),
            (999.4, "999/s"),
            (999.6, "1.00 k/s"),
            (79_300.0, "79.3 k/s"),
            (181_400.0, "181 k/s"),
            (6_281_234.0, "6.28 M/s"),
            (1.2e10, "12.0 G/s"),
            (f64::NAN, "–"),
        ];
        for (per_second, text) in expected {
            assert_eq!(rate(per_second), text);
        }
    }

    #[test]
    fn times_and_sizes_have_a_decimal_below_a_hundred() {
        let expected = [(0.42, "420 ns"), (3.88, "3.9 µs"), (99.96, "100 µs"), (999.96, "1.0 ms"), (1_234.0, "1.2 ms")];
        for (microseconds, text) in expected {
            assert_eq!(time_us(microseconds), text);
        }
        assert_eq!(time_us(2_500_000.0), "2.5 s");
        for (size, text) in [(0.0, "0 B"), (606.0, "606 B"), (4_700.0, "4.7 KB"), (893e6, "893 MB"), (24e9, "24.0 GB")]
        {
            assert_eq!(bytes(size), text);
        }
    }

    #[test]
    fn ratios_keep_their_significant_digits() {
        let expected = [
            (1_234.4, "1,234x"),
            (182.4, "182x"),
            (23.41, "23.4x"),
            (1.0, "1.0x"),
            (0.19, "0.19x"),
            (0.0042, "0.004x"),
        ];
        for (times, text) in expected {
            assert_eq!(ratio(times), text);
        }
        assert_eq!(ratio(f64::INFINITY), "–");
    }

    #[test]
    fn counts_have_thousands_separators() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(number), text);
        }
    }

    #[test]
    fn the_unit_determines_the_format_of_a_figure() {
        assert_eq!(of_unit("pages/s", 79_300.0), "79.3 k/s");
        assert_eq!(of_unit("bytes/inbox", 4_700.0), "4.7 KB");
        assert_eq!(of_unit("us", 1_234.0), "1.2 ms");
        assert_eq!(of_unit("hops", 3.0), "3.00 hops");
    }
}
