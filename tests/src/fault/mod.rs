//! Faults at named points of a server.

#![expect(dead_code, reason = "the next commit uses it")]

mod control;
mod scenario;
mod small_disk;
mod view;
