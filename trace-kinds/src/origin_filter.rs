//! Rewrites a filter for one stream: the origin of its events is known before they are read.

use std::convert::Infallible;

use crate::Origin;
use query_language::{Expr, FieldTable, Filter, Program, Value};

impl Origin {
    /// `filter` with every predicate on the fields of this origin evaluated.
    pub fn answer(&self, filter: &Filter) -> Filter {
        let known = |field: &str| Origin::FIELDS.contains(&field).then(|| self.field(field));
        let answered: Result<Filter, Infallible> = filter.rewrite(&mut |predicate| {
            let Some(value) = known(predicate.field.as_str()) else {
                return Ok(Expr::Test(predicate.clone()));
            };
            let mut table = FieldTable::new();
            let program = Program::compile(&Expr::Test(predicate.clone()), &mut table);
            let event = [value.map(Value::from)];
            Ok(if program.matches(event.as_slice()) {
                Expr::And(Vec::new())
            } else {
                Expr::Or(Vec::new())
            })
        });
        match answered {
            Ok(filter) => filter,
            Err(never) => match never {},
        }
    }
}

#[cfg(test)]
mod tests {
    use query_language::{BareUnit, Query};

    use super::*;

    fn check(query: &str, none: bool) {
        let origin = Origin {
            agent: Some("web".to_owned()),
            stream: None,
            storage: Some("first".to_owned()),
            kind: "ctf",
        };
        let filter = Query::parse(query).unwrap().bind(BareUnit::NANOS).unwrap();
        let answered = origin.answer(&filter);
        assert_eq!(answered.passes_none(), none, "{query}: {answered:?}");
    }

    #[test]
    fn streams_that_cannot_match_are_excluded() {
        check("agent == 'web'", false);
        check("agent == 'db'", true);
        check("agent == 'db' or name == 'x'", false);
        check("agent == 'db' and name == 'x'", true);
        check("not (agent == 'web') and name == 'x'", true);
        check("not (agent == 'db' and name == 'x')", false);
        check("kind in ['dft', 'raw']", true);
        check("storage ~ '^fir'", false);
        check("stream == 's'", true);
        check("not stream == 's'", false);
    }
}
