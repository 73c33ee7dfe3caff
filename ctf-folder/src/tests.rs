//! Tests of whole folders.

mod corpus;
mod generated;
