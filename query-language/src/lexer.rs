//! Splits the text of a query into tokens.

use std::ops::Range;

use crate::Number;
use crate::error::{QueryError, QueryErrorKind};
use crate::syntax::{CompareOp, Literal};
use crate::time::{self, TimeErrorKind};

/// A token and its bytes in the text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) span: Range<usize>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TokenKind {
    /// A field, or one of the words that are keywords only between a field and a value.
    Word,
    /// A field between backquotes, for names with other characters.
    QuotedField,
    Literal(Literal),
    Compare(CompareOp),
    Tilde,
    And,
    Or,
    Not,
    In,
    Open,
    Close,
    OpenList,
    CloseList,
    Comma,
    Plus,
    Minus,
    Star,
    Slash,
    DoubleSlash,
    Percent,
    End,
}

/// Splits `text` into tokens; the last one is always [`TokenKind::End`].
pub(crate) fn tokens(text: &str) -> Result<Vec<Token>, QueryError> {
    let mut lexer = Lexer {
        text,
        at: 0,
        is_after_operand: false,
    };
    let mut tokens = Vec::new();
    loop {
        let token = lexer.next()?;
        lexer.is_after_operand = matches!(
            token.kind,
            TokenKind::Word | TokenKind::QuotedField | TokenKind::Literal(_) | TokenKind::Close
        );
        let end = token.kind == TokenKind::End;
        tokens.push(token);
        if end {
            return Ok(tokens);
        }
    }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    /// Whether a minus sign subtracts, and is not the sign of a number.
    is_after_operand: bool,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn error(&self, span: Range<usize>, kind: QueryErrorKind) -> QueryError {
        QueryError::new(self.text, span, kind)
    }

    /// Skips the characters that `wanted` accepts and returns them.
    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let length = rest.find(|c| !wanted(c)).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    fn next(&mut self) -> Result<Token, QueryError> {
        self.take_while(char::is_whitespace);
        let start = self.at;
        let Some(first) = self.rest().chars().next() else {
            return Ok(self.token(TokenKind::End, start));
        };
        if let Some(kind) = self.operator() {
            return Ok(self.token(kind, start));
        }
        match first {
            '"' | '\'' | '`' => self.quoted(first),
            '0'..='9' => self.number(),
            '-' if !self.is_after_operand && self.begins_negative() => self.number(),
            '-' => {
                self.at += 1;
                Ok(self.token(TokenKind::Minus, start))
            }
            'A'..='Z' | 'a'..='z' | '_' => {
                let word = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
                Ok(self.token(keyword(word).unwrap_or(TokenKind::Word), start))
            }
            other => {
                let rest = self.rest();
                let foreign = OTHER_OPERATORS.iter();
                let foreign = foreign.copied().find(|(found, _)| rest.starts_with(found));
                let (length, kind) = match foreign {
                    Some((found, meant)) => {
                        (found.len(), QueryErrorKind::OtherOperator { found, meant })
                    }
                    None => (other.len_utf8(), QueryErrorKind::UnexpectedCharacter(other)),
                };
                Err(self.error(start..start + length, kind))
            }
        }
    }

    fn token(&self, kind: TokenKind, start: usize) -> Token {
        Token {
            kind,
            span: start..self.at,
        }
    }

    fn begins_negative(&self) -> bool {
        self.rest()[1..].starts_with(|c: char| c.is_ascii_digit())
    }

    fn operator(&mut self) -> Option<TokenKind> {
        let rest = self.rest();
        let (kind, length) = match rest.as_bytes() {
            [b'=', b'=', ..] => (TokenKind::Compare(CompareOp::Eq), 2),
            [b'!', b'=', ..] => (TokenKind::Compare(CompareOp::Ne), 2),
            [b'<', b'=', ..] => (TokenKind::Compare(CompareOp::Le), 2),
            [b'>', b'=', ..] => (TokenKind::Compare(CompareOp::Ge), 2),
            [b'<', ..] => (TokenKind::Compare(CompareOp::Lt), 1),
            [b'>', ..] => (TokenKind::Compare(CompareOp::Gt), 1),
            [b'~', ..] => (TokenKind::Tilde, 1),
            [b'(', ..] => (TokenKind::Open, 1),
            [b')', ..] => (TokenKind::Close, 1),
            [b'[', ..] => (TokenKind::OpenList, 1),
            [b']', ..] => (TokenKind::CloseList, 1),
            [b',', ..] => (TokenKind::Comma, 1),
            [b'+', ..] => (TokenKind::Plus, 1),
            [b'*', ..] => (TokenKind::Star, 1),
            [b'/', b'/', ..] => (TokenKind::DoubleSlash, 2),
            [b'/', ..] => (TokenKind::Slash, 1),
            [b'%', ..] => (TokenKind::Percent, 1),
            _ => return None,
        };
        self.at += length;
        Some(kind)
    }

    /// A string, or a field in backquotes. The text between the quotes is verbatim, as in DFTracer,
    /// so a regular expression needs no doubled backslashes.
    fn quoted(&mut self, quote: char) -> Result<Token, QueryError> {
        let start = self.at;
        let mut escaped = false;
        let body = &self.text[start + 1..];
        let end = body.char_indices().find(|&(_, c)| {
            let closes = c == quote && !escaped;
            escaped = !escaped && c == '\\' && quote != '`';
            closes
        });
        let Some((length, _)) = end else {
            let span = start..self.text.len();
            return Err(self.error(span, QueryErrorKind::UnterminatedString(quote)));
        };
        self.at = start + length + 2;
        let kind = match quote {
            '`' => TokenKind::QuotedField,
            _ => TokenKind::Literal(Literal::Str(body[..length].to_owned())),
        };
        Ok(self.token(kind, start))
    }

    fn date_time(&mut self) -> Result<Token, QueryError> {
        let start = self.at;
        let (time, length) = time::date_time_prefix(self.rest()).map_err(|error| {
            let span = start + error.span().start..start + error.span().end;
            self.error(span, QueryErrorKind::BadTime(error.kind().clone()))
        })?;
        self.at += length;
        let token = self.token(TokenKind::Literal(Literal::Time(time)), start);
        let end = self.at;
        let rest =
            self.take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | ':' | '.' | '+'));
        if !rest.is_empty() && keyword(rest).is_none() {
            let kind = QueryErrorKind::BadTime(TimeErrorKind::TRAILING);
            return Err(self.error(end..self.at, kind));
        }
        self.at = end;
        Ok(token)
    }

    fn number(&mut self) -> Result<Token, QueryError> {
        let start = self.at;
        if time::begins_date(self.rest()) {
            return self.date_time();
        }
        if time::begins_clock(self.rest()) {
            self.take_while(|c| c.is_ascii_digit() || matches!(c, ':' | '.'));
            let kind = QueryErrorKind::BadTime(TimeErrorKind::NoDate);
            return Err(self.error(start..self.at, kind));
        }
        let number = time::number_prefix(self.rest());
        self.at += number.len();
        if let Some(length) = time::duration_length(&self.text[start..]) {
            self.at = start + length;
            let nanos = time::wide_duration(&self.text[start..self.at]);
            let nanos = nanos
                .ok_or_else(|| self.error(start..self.at, QueryErrorKind::NumberOutOfRange))?;
            return Ok(self.token(TokenKind::Literal(Literal::Duration(nanos)), start));
        }
        let end = self.at;
        if self.rest().starts_with('.') {
            let expected = QueryErrorKind::Expected {
                expected: "a digit before and after the decimal point",
                found: "`.`".to_owned(),
            };
            return Err(self.error(end..end + 1, expected));
        }
        let letters = self.take_while(|c| c.is_alphanumeric() || c == '_');
        if !letters.is_empty() && keyword(letters).is_none() {
            let unit = letters.to_owned();
            return Err(self.error(end..self.at, QueryErrorKind::UnknownUnit(unit)));
        }
        // `5and` is a number and a keyword.
        self.at = end;
        let value = Number::parse(number.as_bytes()).filter(|value| match value {
            Number::Int(int) => (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(int),
            // Digits alone are an integer of any length: never silently rounded.
            Number::Float(_) => number.contains(['.', 'e', 'E']),
        });
        let value =
            value.ok_or_else(|| self.error(start..end, QueryErrorKind::NumberOutOfRange))?;
        let literal = match value {
            Number::Int(value) => Literal::Int(value),
            Number::Float(value) => Literal::Decimal(value, self.text[start..end].into()),
        };
        Ok(self.token(TokenKind::Literal(literal), start))
    }
}

/// Operators of other languages, and what they are here.
const OTHER_OPERATORS: [(&str, &str); 6] = [
    ("&&", "and"),
    ("&", "and"),
    ("||", "or"),
    ("|", "or"),
    ("!", "not"),
    ("=", "=="),
];

fn keyword(word: &str) -> Option<TokenKind> {
    let keywords = [
        ("and", TokenKind::And),
        ("or", TokenKind::Or),
        ("not", TokenKind::Not),
        ("in", TokenKind::In),
        ("true", TokenKind::Literal(Literal::Bool(true))),
        ("false", TokenKind::Literal(Literal::Bool(false))),
    ];
    keywords
        .into_iter()
        .find(|(name, _)| word.eq_ignore_ascii_case(name))
        .map(|(_, kind)| kind)
}
