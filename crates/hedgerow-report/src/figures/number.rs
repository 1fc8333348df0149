//! Numbers and lists as people read them: on axes, in tables and in sentences.

use hedgerow_lab::results::Moments;

/// `value` with this number of significant digits: `0.00644`, `12 300`, `6.44·10⁻⁹`.
pub(crate) fn significant(value: f64, digits: usize) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if !value.is_finite() {
        return "not finite".to_owned();
    }
    let scientific = format!("{value:.*e}", digits.saturating_sub(1));
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..7).contains(&exponent) {
        return format!("{}·{}", signed(mantissa), power_of_ten(exponent));
    }
    let decimals = digits as i32 - 1 - exponent;
    fixed(value, decimals.max(0) as usize)
}

/// A ratio: `1.17`, `11.0`, `230`.
pub(crate) fn times(ratio: f64) -> String {
    significant(ratio, 3)
}

/// With a capital first letter, for the beginning of a sentence.
pub(crate) fn capitalised(words: &str) -> String {
    let mut letters = words.chars();
    letters
        .next()
        .map_or(String::new(), |first| format!("{}{}", first.to_uppercase(), letters.as_str()))
}

/// `a, b and c`
pub(crate) fn listed(names: &[impl AsRef<str>]) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    match names.as_slice() {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// `value` with this number of decimals and a space between thousands.
pub(crate) fn fixed(value: f64, decimals: usize) -> String {
    let plain = format!("{value:.decimals$}");
    let (whole, fraction) = plain.split_once('.').unwrap_or((&plain, ""));
    let digits = whole.trim_start_matches('-');
    let mut grouped = String::new();
    if whole.len() != digits.len() && plain.contains(|c: char| ('1'..='9').contains(&c)) {
        grouped.push('−');
    }
    for (i, digit) in digits.chars().enumerate() {
        // Four digits read well unbroken: 1000, but 10 000.
        if i > 0 && digits.len() > 4 && (digits.len() - i).is_multiple_of(3) {
            grouped.push('\u{202f}');
        }
        grouped.push(digit);
    }
    if !fraction.is_empty() {
        grouped.push('.');
        grouped.push_str(fraction);
    }
    grouped
}

/// Mean and spread, or the mean alone where a single trial has no spread.
pub(crate) fn with_spread(moments: Moments, trials: usize) -> String {
    let mean = significant(moments.mean, 3);
    if trials > 1 && moments.sd.is_finite() {
        // Round-off between equal trials is no spread.
        let sd = if moments.sd < moments.mean.abs() * 1e-12 { 0.0 } else { moments.sd };
        format!("{mean} ± {}", significant(sd, 2))
    } else {
        mean
    }
}

/// A share as a percentage: `83%`, `0.4%`, `<0.1%`.
pub(crate) fn percent(share: f64) -> String {
    let hundredfold = share * 100.0;
    if hundredfold > 0.0 && hundredfold < 0.1 {
        "<0.1%".to_owned()
    } else if hundredfold > 0.0 && hundredfold < 9.95 {
        format!("{hundredfold:.1}%")
    } else {
        format!("{hundredfold:.0}%")
    }
}

/// `396 bytes`, `12.3 kB`.
pub(crate) fn bytes_in_words(bytes: f64) -> String {
    match bytes {
        1.0 => "1 byte".to_owned(),
        bytes if bytes >= 10_000.0 => format!("{} kB", significant(bytes / 1000.0, 3)),
        bytes if bytes >= 100.0 || bytes.fract() == 0.0 => {
            format!("{} bytes", fixed(bytes, 0))
        }
        bytes => format!("{} bytes", significant(bytes, 3)),
    }
}

/// `10⁻³`
pub(crate) fn power_of_ten(exponent: i32) -> String {
    const RAISED: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let raised = exponent
        .to_string()
        .chars()
        .map(|c| match c.to_digit(10) {
            Some(digit) => RAISED[digit as usize],
            None => '⁻',
        })
        .collect::<String>();
    format!("10{raised}")
}

/// With a minus sign as wide as the digits.
fn signed(text: &str) -> String {
    text.replace('-', "−")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn significant_digits_at_every_size() {
        for (value, expected) in [
            (0.006_443, "0.00644"),
            (1.166, "1.17"),
            (12_345.0, "12\u{202f}345"),
            (-0.5, "−0.500"),
            (6.44e-9, "6.44·10⁻⁹"),
            (-1e300, "−1.00·10³⁰⁰"),
            (0.0, "0"),
            (999.96, "1000"),
            (f64::INFINITY, "not finite"),
        ] {
            assert_eq!(significant(value, 3), expected);
        }
    }

    #[test]
    fn no_negative_zero() {
        assert_eq!(fixed(-0.001, 1), "0.0");
    }

    #[test]
    fn a_single_trial_has_no_spread() {
        let moments = Moments { mean: 0.5, sd: 0.0 };
        assert_eq!(with_spread(moments, 1), "0.500");
        assert_eq!(with_spread(moments, 2), "0.500 ± 0");
    }

    #[test]
    fn round_off_is_no_spread_but_a_small_one_is() {
        assert_eq!(with_spread(Moments { mean: -0.25, sd: 5.9e-17 }, 10), "−0.250 ± 0");
        assert_eq!(with_spread(Moments { mean: 0.25, sd: 1e-9 }, 10), "0.250 ± 1.0·10⁻⁹");
        assert_eq!(with_spread(Moments { mean: 0.0, sd: 1e-3 }, 10), "0 ± 0.0010");
    }

    #[test]
    fn percentages_keep_small_shares_visible() {
        assert_eq!(percent(0.0), "0%");
        assert_eq!(percent(0.000_4), "<0.1%");
        assert_eq!(percent(0.004), "0.4%");
        assert_eq!(percent(0.834), "83%");
    }

    #[test]
    fn bytes_read_well() {
        for (bytes, words) in [
            (0.0, "0 bytes"),
            (1.0, "1 byte"),
            (11.25, "11.2 bytes"),
            (396.4, "396 bytes"),
            (43_560.0, "43.6 kB"),
        ] {
            assert_eq!(bytes_in_words(bytes), words);
        }
    }
}
