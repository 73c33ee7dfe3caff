//! Parses arithmetic.
//!
//! ```text
//! sum     = product (("+" | "-") product)*
//! product = factor (("*" | "/" | "//" | "%") factor)*
//! factor  = "-" factor | "(" sum ")" | field | number | duration
//! field   = [A-Za-z_][A-Za-z0-9_.]* | "`" any but a backquote "`"
//! ```

use crate::arithmetic::{BareNumber, Operation, Operator, Term};
use crate::error::{QUERY_DEPTH_MAX, QueryError, QueryErrorKind};
use crate::lexer::{Token, TokenKind, tokens};
use crate::syntax::Literal;
use crate::{FieldPath, Number};

/// The tokens of an operand.
struct Operands<'t> {
    text: &'t str,
    tokens: &'t [Token],
    at: usize,
    /// Operators so far: they bound the depth of the tree.
    operators: usize,
    /// Brackets so far: they bound the recursion of the parser. The text of a tree has at most as
    /// many brackets as operators, so it is accepted if the text was that the tree was read from.
    brackets: usize,
}

/// Reads the operand that begins with token `at`: a field, or arithmetic over fields. Returns the
/// token after it, too.
pub(crate) fn operand(
    source: (&str, &[Token]),
    at: usize,
    expected: &'static str,
) -> Result<(FieldPath, usize), QueryError> {
    let (term, end) = term(source, at, expected)?;
    Ok((term.into_field(), end))
}

fn term(
    (text, tokens): (&str, &[Token]),
    at: usize,
    expected: &'static str,
) -> Result<(Term, usize), QueryError> {
    let mut operands = Operands {
        text,
        tokens,
        at,
        operators: 0,
        brackets: 0,
    };
    let term = operands.sum(expected)?;
    let start = tokens[at].span.start;
    let end = tokens[operands.at - 1].span.end;
    let mut has_field = false;
    term.for_each_field(&mut |_| has_field = true);
    if !has_field {
        return Err(QueryError::expected(text, start..end, expected));
    }
    match term.unit() {
        Ok(_) => Ok((term, operands.at)),
        Err(BareNumber(number)) => {
            let kind = QueryErrorKind::BareNumber { number };
            Err(QueryError::new(text, start..end, kind))
        }
    }
}

/// The arithmetic of a computed field; `None` for other fields.
pub fn arithmetic(field: &FieldPath) -> Option<Term> {
    field
        .is_computed()
        .then(|| parse_arithmetic(field.as_str()).ok())
        .flatten()
}

/// Parses a text that is arithmetic from its beginning to its end.
///
/// # Errors
/// When it is something else.
pub(crate) fn parse_arithmetic(text: &str) -> Result<Term, QueryError> {
    let tokens = tokens(text)?;
    let (term, end) = term((text, &tokens), 0, "arithmetic over a field")?;
    let after = &tokens[end.min(tokens.len() - 1)];
    match after.kind {
        TokenKind::End => Ok(term),
        _ => Err(QueryError::expected(
            text,
            after.span.clone(),
            "an operator (+ - * / // %)",
        )),
    }
}

impl Operands<'_> {
    fn token(&self) -> &Token {
        // The last token is the end, which is never passed.
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn peek(&self) -> &TokenKind {
        &self.token().kind
    }

    fn expected(&self, expected: &'static str) -> QueryError {
        let token = self.token();
        QueryError::expected(self.text, token.span.clone(), expected)
    }

    fn count_operator(&mut self) -> Result<(), QueryError> {
        self.operators += 1;
        self.check_depth(self.operators)
    }

    fn count_bracket(&mut self) -> Result<(), QueryError> {
        self.brackets += 1;
        self.check_depth(self.brackets)
    }

    fn check_depth(&self, depth: usize) -> Result<(), QueryError> {
        if depth > QUERY_DEPTH_MAX {
            let span = self.token().span.clone();
            return Err(QueryError::new(self.text, span, QueryErrorKind::TooDeep));
        }
        Ok(())
    }

    fn sum(&mut self, expected: &'static str) -> Result<Term, QueryError> {
        let mut left = self.product(expected)?;
        loop {
            let operator = match self.peek() {
                TokenKind::Plus => Operator::Plus,
                TokenKind::Minus => Operator::Minus,
                _ => return Ok(left),
            };
            self.count_operator()?;
            self.at += 1;
            let right = self.product(FACTOR)?;
            left = operation(operator, left, right);
        }
    }

    fn product(&mut self, expected: &'static str) -> Result<Term, QueryError> {
        let mut left = self.factor(expected)?;
        loop {
            let operator = match self.peek() {
                TokenKind::Star => Operator::Times,
                TokenKind::Slash => Operator::Over,
                TokenKind::DoubleSlash => Operator::Quotient,
                TokenKind::Percent => Operator::Remainder,
                _ => return Ok(left),
            };
            self.count_operator()?;
            self.at += 1;
            let right = self.factor(FACTOR)?;
            left = operation(operator, left, right);
        }
    }

    fn factor(&mut self, expected: &'static str) -> Result<Term, QueryError> {
        let token = self.token();
        let written = &self.text[token.span.clone()];
        let term = match &token.kind {
            TokenKind::Minus => {
                self.count_operator()?;
                self.at += 1;
                return Ok(Term::Negative(Box::new(self.factor(FACTOR)?)));
            }
            TokenKind::Open => {
                self.count_bracket()?;
                self.at += 1;
                let inner = self.sum(FACTOR)?;
                return match self.peek() {
                    TokenKind::Close => {
                        self.at += 1;
                        Ok(inner)
                    }
                    _ => Err(self.expected("an operator (+ - * / // %) or `)`")),
                };
            }
            TokenKind::Word => Term::Field(FieldPath::new(written)),
            TokenKind::QuotedField if written.len() > 2 => {
                let field = FieldPath::new(&written[1..written.len() - 1]);
                if field.is_computed() {
                    let expected = "arithmetic without backquotes, or `args.` before the name";
                    return Err(self.expected(expected));
                }
                Term::Field(field)
            }
            TokenKind::Literal(Literal::Int(value)) => Term::Number(Number::Int(*value)),
            TokenKind::Literal(Literal::Decimal(value, _)) => Term::Number(Number::Float(*value)),
            TokenKind::Literal(Literal::Duration(nanos)) => Term::Duration(*nanos),
            _ => return Err(self.expected(expected)),
        };
        self.at += 1;
        Ok(term)
    }
}

const FACTOR: &str = "a field, a number, a duration, or `(`";

fn operation(operator: Operator, left: Term, right: Term) -> Term {
    Term::Operation(Box::new(Operation {
        operator,
        left,
        right,
    }))
}

/// Whether a number is zero, which needs no unit.
pub(crate) fn is_zero(number: Number) -> bool {
    number.normalize() == Number::Int(0)
}
