//! Charts of curves, timelines and heat maps, as SVG.

mod chart;
mod picture;
mod scale;
mod svg;

pub use picture::{cache_picture, io_picture};
