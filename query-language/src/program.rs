//! A filter compiled to tests with two exits each, so that an event passes only the tests that
//! decide about it, and no field is looked up by name.

use std::collections::HashSet;

use memchr::memmem::Finder;

use crate::arithmetic::Computed;
use crate::operand::arithmetic;
use crate::syntax::{CompareOp, Condition, Expr, Filter, Pattern, Predicate, Scalar};
use crate::{FieldId, FieldPath, FieldSource, FieldTable, Number, Value};

/// Exit of a test: the event matches.
const ACCEPT: u32 = u32::MAX;
/// Exit of a test: the event does not match.
const REJECT: u32 = u32::MAX - 1;
/// Longest list that is searched linearly; longer ones are hashed.
const LIST_WALK_MAX: usize = 8;

/// A filter compiled for evaluation on millions of events.
#[derive(Debug)]
pub struct Program {
    steps: Vec<Step>,
    entry: u32,
}

#[derive(Debug)]
struct Step {
    subject: Subject,
    on_true: u32,
    on_false: u32,
    check: Check,
}

/// What a step reads from an event.
#[derive(Debug)]
enum Subject {
    Field(FieldId),
    Computed(Box<Computed>),
}

impl Subject {
    fn new(field: &FieldPath, table: &mut FieldTable) -> Subject {
        match arithmetic(field) {
            Some(term) => Subject::Computed(Box::new(term.compile(table))),
            None => Subject::Field(table.insert(field)),
        }
    }
}

impl Program {
    /// Compiles `filter`. Its fields get their ids from `table`, with which the adapter then
    /// decodes events.
    pub fn compile(filter: &Filter, table: &mut FieldTable) -> Program {
        let mut program = Program {
            steps: Vec::new(),
            entry: ACCEPT,
        };
        // In the order of the text: the steps are generated from the last to the first.
        filter.for_each(&mut |predicate| {
            Subject::new(&predicate.field, table);
        });
        program.entry = program.emit(filter, table, ACCEPT, REJECT);
        program
    }

    /// Whether the event matches.
    #[inline]
    pub fn matches<S: FieldSource + ?Sized>(&self, event: &S) -> bool {
        let mut at = self.entry;
        while let Some(step) = self.steps.get(at as usize) {
            let value = match &step.subject {
                Subject::Field(field) => event.field(*field),
                Subject::Computed(computed) => computed.value(event),
            };
            let passed = value.is_some_and(|value| step.check.passes(value));
            at = if passed { step.on_true } else { step.on_false };
        }
        at == ACCEPT
    }

    /// Adds the steps of `expr` after those of its continuations, and returns the first one.
    fn emit(&mut self, expr: &Filter, table: &mut FieldTable, on_true: u32, on_false: u32) -> u32 {
        match expr {
            Expr::Not(operand) => self.emit(operand, table, on_false, on_true),
            Expr::And(operands) => cheapest_first(operands)
                .into_iter()
                .rev()
                .fold(on_true, |next, operand| {
                    self.emit(operand, table, next, on_false)
                }),
            Expr::Or(operands) => cheapest_first(operands)
                .into_iter()
                .rev()
                .fold(on_false, |next, operand| {
                    self.emit(operand, table, on_true, next)
                }),
            Expr::Test(Predicate {
                field, condition, ..
            }) => {
                let at = u32::try_from(self.steps.len()).expect("a query has few predicates");
                self.steps.push(Step {
                    subject: Subject::new(field, table),
                    on_true,
                    on_false,
                    check: Check::new(condition),
                });
                at
            }
        }
    }
}

/// Operands in the order that decides soonest; the result does not depend on it, because tests have
/// no side effects.
fn cheapest_first(operands: &[Filter]) -> Vec<&Filter> {
    let mut ordered: Vec<&Filter> = operands.iter().collect();
    ordered.sort_by_key(|operand| cost(operand));
    ordered
}

fn cost(expr: &Filter) -> u32 {
    match expr {
        Expr::And(operands) | Expr::Or(operands) => {
            operands.iter().map(cost).fold(0, u32::saturating_add)
        }
        Expr::Not(operand) => cost(operand),
        Expr::Test(predicate) => match &predicate.condition {
            Condition::Exists => 1,
            Condition::Compare(..) | Condition::StartsWith(_) => 2,
            Condition::In { .. } => 4,
            Condition::Contains(_) => 8,
            Condition::Matches(_) => 32,
        },
    }
}

/// One condition, for values without an event, such as those of a dictionary. A missing value
/// matches no condition.
#[derive(Debug)]
pub struct Matcher(Check);

impl Matcher {
    /// Compiles `condition`.
    pub fn new(condition: &Condition<Scalar>) -> Matcher {
        Matcher(Check::new(condition))
    }

    /// Whether an event whose field has this value matches.
    #[inline]
    pub fn passes(&self, value: Value<'_>) -> bool {
        self.0.passes(value)
    }
}

#[derive(Debug)]
enum Check {
    Present,
    /// Matches no value.
    Never,
    Text(CompareOp, Box<[u8]>),
    Number(CompareOp, Number),
    /// The usual case of `Number`, with a literal that fits a signed word.
    Int(CompareOp, i64),
    Bool(CompareOp, bool),
    Among(Box<List>),
    NotAmong(Box<List>),
    Matches(Pattern),
    Contains(Box<Finder<'static>>),
    StartsWith(Box<[u8]>),
}

impl Check {
    fn new(condition: &Condition<Scalar>) -> Check {
        match condition {
            Condition::Exists => Check::Present,
            Condition::Compare(op, Scalar::Str(text)) => Check::Text(*op, text.clone()),
            Condition::Compare(op, Scalar::Bool(value)) => Check::Bool(*op, *value),
            Condition::Compare(op, Scalar::Number(number)) => match number.normalize() {
                Number::Int(int) => match i64::try_from(int) {
                    Ok(int) => Check::Int(*op, int),
                    Err(_) => Check::Number(*op, Number::Int(int)),
                },
                Number::Float(float) if float.is_nan() => Check::Never,
                float => Check::Number(*op, float),
            },
            Condition::In { values, negated } => {
                let list = Box::new(List::new(values));
                if *negated {
                    Check::NotAmong(list)
                } else {
                    Check::Among(list)
                }
            }
            Condition::Matches(pattern) => Check::Matches(pattern.clone()),
            Condition::Contains(text) => {
                Check::Contains(Box::new(Finder::new(text.as_bytes()).into_owned()))
            }
            Condition::StartsWith(text) => Check::StartsWith(text.as_bytes().into()),
        }
    }

    #[inline]
    fn passes(&self, value: Value<'_>) -> bool {
        match (self, value) {
            (Check::Present, _) => true,
            (Check::Text(CompareOp::Eq, literal), Value::Str(text)) => **literal == *text,
            (Check::Text(op, literal), Value::Str(text)) => op.accepts(text.cmp(literal)),
            (Check::Int(op, literal), Value::Int(value)) => op.accepts(value.cmp(literal)),
            (Check::Int(op, literal), Value::Uint(value)) => {
                op.accepts(match i64::try_from(value) {
                    Ok(value) => value.cmp(literal),
                    Err(_) => std::cmp::Ordering::Greater,
                })
            }
            (Check::Int(op, literal), value) => {
                compare_number(*op, value, Number::Int(i128::from(*literal)))
            }
            (Check::Number(op, literal), value) => compare_number(*op, value, *literal),
            (Check::Bool(op, literal), Value::Bool(value)) => op.accepts(value.cmp(literal)),
            (Check::Among(list), value) => list.contains(value),
            (Check::NotAmong(list), value) => !list.contains(value),
            (Check::Matches(pattern), Value::Str(text)) => pattern.is_match(text),
            (Check::Contains(finder), Value::Str(text)) => finder.find(text).is_some(),
            (Check::StartsWith(prefix), Value::Str(text)) => text.starts_with(prefix),
            // A value of another type than the literal does not match.
            _ => false,
        }
    }
}

fn compare_number(op: CompareOp, value: Value<'_>, literal: Number) -> bool {
    value
        .as_number()
        .and_then(|number| number.compare(literal))
        .is_some_and(|order| op.accepts(order))
}

/// The values of `in`, by type.
#[derive(Debug)]
struct List {
    texts: Few<Box<[u8]>>,
    ints: Few<i128>,
    fractions: Vec<f64>,
    has_numbers: bool,
    bools: [bool; 2],
}

impl List {
    fn new(values: &[Scalar]) -> List {
        let (mut texts, mut ints, mut fractions) = (Vec::new(), Vec::new(), Vec::new());
        let mut bools = [false; 2];
        for value in values {
            match value {
                Scalar::Str(text) => texts.push(text.clone()),
                Scalar::Bool(value) => bools[usize::from(*value)] = true,
                Scalar::Number(number) => match number.normalize() {
                    Number::Int(int) => ints.push(int),
                    Number::Float(float) => fractions.push(float),
                },
            }
        }
        List {
            has_numbers: !(ints.is_empty() && fractions.is_empty()),
            texts: Few::new(texts),
            ints: Few::new(ints),
            fractions,
            bools,
        }
    }

    fn contains(&self, value: Value<'_>) -> bool {
        match value {
            Value::Bool(value) => self.bools[usize::from(value)],
            Value::Str(text) => {
                self.texts.has(text)
                    || (self.has_numbers && value.as_number().is_some_and(|n| self.number(n)))
            }
            _ => value.as_number().is_some_and(|number| self.number(number)),
        }
    }

    fn number(&self, number: Number) -> bool {
        match number.normalize() {
            Number::Int(int) => self.ints.has(&int),
            Number::Float(float) => self.fractions.contains(&float),
        }
    }
}

/// A set that is searched linearly while it is short.
#[derive(Debug)]
enum Few<T> {
    Walked(Vec<T>),
    Hashed(HashSet<T>),
}

impl<T: std::hash::Hash + Eq> Few<T> {
    fn new(values: Vec<T>) -> Few<T> {
        if values.len() <= LIST_WALK_MAX {
            Few::Walked(values)
        } else {
            Few::Hashed(values.into_iter().collect())
        }
    }

    fn has<Q>(&self, wanted: &Q) -> bool
    where
        T: std::borrow::Borrow<Q>,
        Q: std::hash::Hash + Eq + ?Sized,
    {
        match self {
            Few::Walked(values) => values.iter().any(|value| value.borrow() == wanted),
            Few::Hashed(values) => values.contains(wanted),
        }
    }
}
