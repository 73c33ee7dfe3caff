//! Random arithmetic, evaluated independently of the programs.

use harness::Random;
use serde_json::{Map, Value};

type Row = Map<String, Value>;

/// A number as arithmetic sees it.
#[derive(Clone, Copy, Debug)]
enum Number {
    Whole(i128),
    Fraction(f64),
}

impl Number {
    fn of(value: &Value) -> Option<Number> {
        let text = match value {
            Value::Number(number) if number.is_f64() => {
                return number.as_f64().map(Number::Fraction);
            }
            Value::Number(number) => number.to_string(),
            Value::String(text) => text.clone(),
            _ => return None,
        };
        let digits = text.strip_prefix('-').unwrap_or(&text);
        let is_number = digits.starts_with(|c: char| c.is_ascii_digit())
            && digits
                .chars()
                .all(|c| c.is_ascii_digit() || ".eE+-".contains(c));
        if !is_number {
            return None;
        }
        match text.parse() {
            Ok(whole) => Some(Number::Whole(whole)),
            Err(_) => text.parse().ok().map(Number::Fraction),
        }
    }

    fn float(self) -> f64 {
        match self {
            Number::Whole(value) => value as f64,
            Number::Fraction(value) => value,
        }
    }

    fn value(self) -> Option<Value> {
        match self {
            Number::Whole(value) => match (i64::try_from(value), u64::try_from(value)) {
                (Ok(value), _) => Some(value.into()),
                (_, Ok(value)) => Some(value.into()),
                _ => None,
            },
            Number::Fraction(value) => value.is_finite().then(|| value.into()),
        }
    }
}

/// Operators over two numbers.
const OPERATORS: [&str; 6] = ["+", "-", "*", "/", "//", "%"];

/// Both numbers as multiples of the same power of two, and how many of these are one.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the values are whole and in range"
)]
fn scaled(a: Number, b: Number) -> Option<(i128, i128, f64)> {
    const MAX: f64 = (1_u128 << 120) as f64;
    let times = |number: Number, unit: f64| match number {
        Number::Whole(value) => {
            let value = value.checked_mul(unit as i128)?;
            ((value as f64).abs() < MAX).then_some(value)
        }
        Number::Fraction(value) => {
            let value = value * unit;
            (value.fract() == 0.0 && value.abs() < MAX).then_some(value as i128)
        }
    };
    (0..100)
        .map(|exponent| 2_f64.powi(exponent))
        .find_map(|unit| Some((times(a, unit)?, times(b, unit)?, unit)))
}

fn apply(operator: &str, a: Number, b: Number) -> Option<Number> {
    let divides = ["/", "//", "%"].contains(&operator);
    if divides && b.float() == 0.0 {
        return None;
    }
    if let (Number::Whole(a), Number::Whole(b)) = (a, b)
        && operator != "/"
    {
        let down = |a: i128, b: i128| {
            let (quotient, left) = (a / b, a % b);
            if left != 0 && (left < 0) != (b < 0) {
                quotient - 1
            } else {
                quotient
            }
        };
        return Some(Number::Whole(match operator {
            "+" => a.checked_add(b)?,
            "-" => a.checked_sub(b)?,
            "*" => a.checked_mul(b)?,
            "//" => down(a, b),
            _ => a - b * down(a, b),
        }));
    }
    let exact = scaled(a, b).filter(|_| ["//", "%"].contains(&operator));
    if let Some((a, b, unit)) = exact {
        let quotient = a.div_euclid(b) - i128::from(b < 0 && a.rem_euclid(b) != 0);
        return Some(Number::Fraction(match operator {
            "//" => quotient as f64,
            _ => (a - b * quotient) as f64 / unit,
        }));
    }
    let (a, b) = (a.float(), b.float());
    let result = match operator {
        "+" => a + b,
        "-" => a - b,
        "*" => a * b,
        "/" => a / b,
        // Of another magnitude: the quotient is far from the next whole number, or has no fraction.
        "//" => (a / b).floor(),
        _ if a % b != 0.0 && (a < 0.0) != (b < 0.0) => a % b + b,
        _ => a % b,
    };
    let result = if result == 0.0 { 0.0 } else { result };
    result.is_finite().then_some(Number::Fraction(result))
}

/// Adds fields that are computed from those of the rows, under their arithmetic.
pub(crate) fn add_computed(random: &mut Random, rows: &mut [Row], count: u64) {
    let mut names: Vec<String> = Vec::new();
    for row in rows.iter() {
        for name in row.keys() {
            if name != "ts" && name != "dur" && !names.contains(name) {
                names.push(name.clone());
            }
        }
    }
    let one =
        |random: &mut Random, length: usize| usize::try_from(random.below(length as u64)).unwrap();
    for _ in 0..count {
        let operator = OPERATORS[one(random, OPERATORS.len())];
        let left = names[one(random, names.len())].clone();
        let right = match random.below(3) {
            0 => Err(names[one(random, names.len())].clone()),
            1 => Ok(Value::from(random.below(2_000))),
            _ => Ok(Value::from(random.below(9) as f64 / 4.0)),
        };
        let is_of_duration = random.below(4) == 0;
        let (left, operator) = match (is_of_duration, operator) {
            // The unit of the result is a number then.
            (true, "/" | "//") => ("dur".to_owned(), operator),
            (true, _) => ("dur".to_owned(), "/"),
            (false, _) => (left, operator),
        };
        let written = match &right {
            Ok(value) => value.to_string(),
            Err(field) => format!("`{field}`"),
        };
        let text = format!("(`{left}` {operator} {written})");
        for row in rows.iter_mut() {
            let right = match &right {
                Ok(value) => Some(value),
                Err(field) => row.get(field),
            };
            let operands = (row.get(&left).and_then(Number::of)).zip(right.and_then(Number::of));
            let result = operands.and_then(|(a, b)| apply(operator, a, b));
            if let Some(value) = result.and_then(Number::value) {
                row.insert(text.clone(), value);
            }
        }
    }
}

/// The row as the trace contains it.
pub(crate) fn without_computed(row: &Row) -> Row {
    let own = row.iter().filter(|(name, _)| !name.starts_with('('));
    own.map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}
