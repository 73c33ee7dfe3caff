//! Parses text to a syntax tree.
//!
//! ```text
//! query     = or
//! or        = and ("or" and)*
//! and       = not ("and" not)*
//! not       = "not" not | primary
//! primary   = "(" or ")" | "exists" field | "exists" "(" operand ")" | operand question
//! question  = ("==" | "!=" | "<" | "<=" | ">" | ">=") value
//!           | ["not"] "in" "[" [value ("," value)*] "]"
//!           | ("~" | "contains" | "starts_with" | "like") string
//!           | "is" ["not"] "null"
//! operand   = field, or arithmetic over fields (operand.rs)
//! field     = [A-Za-z_][A-Za-z0-9_.]* | "`" any but a backquote "`"
//! value     = string | integer | fraction | "true" | "false" | duration | time
//! ```
//!
//! Keywords are read in any case. `exists`, `contains` and `starts_with` are keywords only where
//! no field can be, so that fields of these names, which DFTracer's language allows, stay
//! usable.

use crate::FieldPath;
use crate::arithmetic::Term;
use crate::error::{QUERY_BYTES_MAX, QUERY_DEPTH_MAX, QueryError, QueryErrorKind};
use crate::lexer::{Token, TokenKind, tokens};
use crate::operand::{operand, parse_arithmetic};
use crate::syntax::{Condition, Expr, Literal, Pattern, Predicate};

const OPERATORS: &str = "a comparison (== != < <= > >=), in, not in, ~, contains, starts_with, \
                         like, is null or is not null";

/// Parses all of `text`.
pub(crate) fn parse(text: &str) -> Result<Expr<Literal>, QueryError> {
    if text.len() > QUERY_BYTES_MAX {
        return Err(QueryError::new("", 0..0, QueryErrorKind::TooLong));
    }
    let mut parser = Parser {
        text,
        tokens: tokens(text)?,
        at: 0,
        depth: 0,
    };
    let expr = parser.or()?;
    match parser.peek() {
        TokenKind::End => Ok(expr),
        _ => Err(parser.expected("and, or, or the end of the query")),
    }
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn token(&self) -> &Token {
        // The last token is the end, which is never passed.
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn peek(&self) -> &TokenKind {
        &self.token().kind
    }

    fn peek_after(&self) -> &TokenKind {
        &self.tokens[(self.at + 1).min(self.tokens.len() - 1)].kind
    }

    fn take(&mut self, kind: &TokenKind) -> bool {
        let found = self.peek() == kind;
        self.at += usize::from(found);
        found
    }

    /// Whether the next word is `word`, in any case.
    fn is_word(&self, word: &str) -> bool {
        let token = self.token();
        token.kind == TokenKind::Word && self.text[token.span.clone()].eq_ignore_ascii_case(word)
    }

    fn expected(&self, expected: &'static str) -> QueryError {
        let token = self.token();
        let found = match token.kind {
            TokenKind::End => "the end of the query".to_owned(),
            _ if is_operator(&token.kind) => {
                let kind = QueryErrorKind::MisplacedArithmetic;
                return QueryError::new(self.text, token.span.clone(), kind);
            }
            _ => format!("`{}`", &self.text[token.span.clone()]),
        };
        let kind = QueryErrorKind::Expected { expected, found };
        QueryError::new(self.text, token.span.clone(), kind)
    }

    /// Bounds the recursion of brackets and `not`.
    fn nested<T>(
        &mut self,
        inner: impl FnOnce(&mut Self) -> Result<T, QueryError>,
    ) -> Result<T, QueryError> {
        if self.depth == QUERY_DEPTH_MAX {
            let span = self.token().span.clone();
            return Err(QueryError::new(self.text, span, QueryErrorKind::TooDeep));
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    fn or(&mut self) -> Result<Expr<Literal>, QueryError> {
        let mut operands = vec![self.and()?];
        while self.take(&TokenKind::Or) {
            operands.push(self.and()?);
        }
        Ok(single(operands, Expr::Or))
    }

    fn and(&mut self) -> Result<Expr<Literal>, QueryError> {
        let mut operands = vec![self.not()?];
        while self.take(&TokenKind::And) {
            operands.push(self.not()?);
        }
        Ok(single(operands, Expr::And))
    }

    fn not(&mut self) -> Result<Expr<Literal>, QueryError> {
        if self.take(&TokenKind::Not) {
            let operand = self.nested(Self::not)?;
            return Ok(Expr::Not(Box::new(operand)));
        }
        self.primary()
    }

    fn primary(&mut self) -> Result<Expr<Literal>, QueryError> {
        if *self.peek() == TokenKind::Open && !self.begins_arithmetic() {
            self.at += 1;
            let inner = self.nested(Self::or)?;
            return if self.take(&TokenKind::Close) {
                Ok(inner)
            } else {
                Err(self.expected("and, or, or `)`"))
            };
        }
        let start = self.token().span.start;
        let mut is_null = false;
        let (field, condition) = if self.begins_exists() {
            (self.exists()?, Condition::Exists)
        } else {
            let field = self.operand("a field, exists, not, or `(`")?;
            if self.is_word("is") {
                is_null = self.null()?;
                (field, Condition::Exists)
            } else {
                let condition = self.question()?;
                self.refuse_text(&field, &condition, start)?;
                (field, condition)
            }
        };
        let end = self.tokens[self.at - 1].span.end;
        let test = Expr::Test(Predicate {
            field,
            condition,
            span: start..end,
        });
        Ok(if is_null {
            Expr::Not(Box::new(test))
        } else {
            test
        })
    }

    /// The rest of `is null`, true, or of `is not null`, false.
    fn null(&mut self) -> Result<bool, QueryError> {
        self.at += 1;
        let is_negated = self.take(&TokenKind::Not);
        if !self.is_word("null") {
            return Err(self.expected("null or not null"));
        }
        self.at += 1;
        Ok(!is_negated)
    }

    /// `exists` followed by a field; before an operator it is a field itself.
    fn begins_exists(&self) -> bool {
        if !self.is_word("exists") {
            return false;
        }
        match self.peek_after() {
            TokenKind::Open | TokenKind::QuotedField => true,
            TokenKind::Word => {
                // `exists contains "x"` is a predicate on a field named exists.
                let after = &self.text[self.tokens[self.at + 1].span.clone()];
                let operator = ["contains", "starts_with"]
                    .iter()
                    .any(|word| after.eq_ignore_ascii_case(word));
                let value = self.tokens.get(self.at + 2).map(|token| &token.kind);
                !(operator && matches!(value, Some(TokenKind::Literal(_))))
            }
            _ => false,
        }
    }

    fn exists(&mut self) -> Result<FieldPath, QueryError> {
        self.at += 1;
        if !self.take(&TokenKind::Open) {
            return self.field("a field");
        }
        let field = self.operand("a field")?;
        if self.take(&TokenKind::Close) {
            Ok(field)
        } else {
            Err(self.expected("`)`"))
        }
    }

    fn field(&mut self, expected: &'static str) -> Result<FieldPath, QueryError> {
        let token = self.token();
        let written = &self.text[token.span.clone()];
        let name = match token.kind {
            TokenKind::Word => written,
            TokenKind::QuotedField if written.len() > 2 => &written[1..written.len() - 1],
            _ => return Err(self.expected(expected)),
        };
        let mut field = FieldPath::new(name);
        if field.is_computed() {
            // One spelling of the same arithmetic.
            field = parse_arithmetic(name)
                .map(Term::into_field)
                .map_err(|error| {
                    let start = token.span.start + 1;
                    let span = start + error.span().start..start + error.span().end;
                    QueryError::new(self.text, span, error.kind().clone())
                })?;
        }
        self.at += 1;
        Ok(field)
    }

    /// A field, or arithmetic over fields.
    fn operand(&mut self, expected: &'static str) -> Result<FieldPath, QueryError> {
        let is_alone = matches!(self.peek(), TokenKind::Word | TokenKind::QuotedField)
            && !is_operator(self.peek_after());
        if is_alone || *self.peek() == TokenKind::End {
            return self.field(expected);
        }
        let (field, end) = operand((self.text, &self.tokens), self.at, expected)?;
        self.at = end;
        Ok(field)
    }

    /// Whether a bracket contains arithmetic: what follows its end can only follow an operand.
    fn begins_arithmetic(&self) -> bool {
        let mut open = 0_usize;
        let close = self.tokens[self.at..].iter().position(|token| {
            match token.kind {
                TokenKind::Open => open += 1,
                TokenKind::Close => open -= 1,
                _ => {}
            }
            open == 0
        });
        let Some(after) = close.and_then(|close| self.tokens.get(self.at + close + 1)) else {
            return false;
        };
        let written = &self.text[after.span.clone()];
        let words = ["contains", "starts_with", "like", "is"];
        match &after.kind {
            TokenKind::Compare(_) | TokenKind::Tilde | TokenKind::In | TokenKind::Not => true,
            TokenKind::Word => words.iter().any(|word| written.eq_ignore_ascii_case(word)),
            other => is_operator(other),
        }
    }

    /// Arithmetic has numbers only.
    fn refuse_text(
        &self,
        field: &FieldPath,
        condition: &Condition<Literal>,
        start: usize,
    ) -> Result<(), QueryError> {
        let is_text = matches!(
            condition,
            Condition::Matches(_) | Condition::Contains(_) | Condition::StartsWith(_)
        );
        if !(is_text && field.is_computed()) {
            return Ok(());
        }
        let end = self.tokens[self.at - 1].span.end;
        let kind = QueryErrorKind::WrongUnit {
            field: field.to_string(),
            found: "text",
            expected: "a number, for arithmetic has no text",
        };
        Err(QueryError::new(self.text, start..end, kind))
    }

    fn question(&mut self) -> Result<Condition<Literal>, QueryError> {
        if let TokenKind::Compare(op) = *self.peek() {
            self.at += 1;
            return Ok(Condition::Compare(op, self.value()?));
        }
        if self.take(&TokenKind::In) {
            let values = self.list()?;
            return Ok(Condition::In {
                values,
                negated: false,
            });
        }
        if *self.peek() == TokenKind::Not && *self.peek_after() == TokenKind::In {
            self.at += 2;
            let values = self.list()?;
            return Ok(Condition::In {
                values,
                negated: true,
            });
        }
        if self.take(&TokenKind::Tilde) {
            return self.pattern(std::convert::identity);
        }
        if self.is_word("contains") {
            self.at += 1;
            return Ok(Condition::Contains(self.string()?));
        }
        if self.is_word("starts_with") {
            self.at += 1;
            return Ok(Condition::StartsWith(self.string()?));
        }
        if self.is_word("like") {
            self.at += 1;
            return self.pattern(like);
        }
        Err(self.expected(OPERATORS))
    }

    /// A pattern, whose text `translate` makes a regular expression.
    fn pattern(
        &mut self,
        translate: fn(String) -> String,
    ) -> Result<Condition<Literal>, QueryError> {
        let span = self.token().span.clone();
        let text = translate(self.string()?);
        let pattern = Pattern::new(&text).map_err(|reason| {
            QueryError::new(self.text, span, QueryErrorKind::BadPattern(reason))
        })?;
        Ok(Condition::Matches(pattern))
    }

    fn string(&mut self) -> Result<String, QueryError> {
        match self.peek() {
            TokenKind::Literal(Literal::Str(text)) => {
                let text = text.clone();
                self.at += 1;
                Ok(text)
            }
            _ => Err(self.expected("a string in quotes")),
        }
    }

    fn value(&mut self) -> Result<Literal, QueryError> {
        match self.peek() {
            TokenKind::Literal(literal) => {
                let literal = literal.clone();
                self.at += 1;
                Ok(literal)
            }
            _ => {
                Err(self
                    .expected("a value (string in quotes, number, duration, time, true or false)"))
            }
        }
    }

    fn list(&mut self) -> Result<Vec<Literal>, QueryError> {
        if !self.take(&TokenKind::OpenList) {
            return Err(self.expected("a list such as [1, 2]"));
        }
        let mut values = Vec::new();
        if self.take(&TokenKind::CloseList) {
            return Ok(values);
        }
        loop {
            values.push(self.value()?);
            if self.take(&TokenKind::CloseList) {
                return Ok(values);
            }
            if !self.take(&TokenKind::Comma) {
                return Err(self.expected("`,` or `]`"));
            }
        }
    }
}

fn is_operator(token: &TokenKind) -> bool {
    matches!(
        token,
        TokenKind::Plus
            | TokenKind::Minus
            | TokenKind::Star
            | TokenKind::Slash
            | TokenKind::DoubleSlash
            | TokenKind::Percent
    )
}

/// The regular expression of a pattern of SQL: `%` is any text, `_` any character.
fn like(pattern: String) -> String {
    let mut regex = String::from(r"\A");
    for c in pattern.chars() {
        match c {
            '%' => regex.push_str("(?s-u:.*)"),
            '_' => regex.push_str("(?s:.)"),
            other => regex.push_str(&regex::escape(other.encode_utf8(&mut [0; 4]))),
        }
    }
    regex.push_str(r"\z");
    regex
}

fn single(
    mut operands: Vec<Expr<Literal>>,
    join: fn(Vec<Expr<Literal>>) -> Expr<Literal>,
) -> Expr<Literal> {
    match operands.len() {
        1 => operands.remove(0),
        _ => join(operands),
    }
}
