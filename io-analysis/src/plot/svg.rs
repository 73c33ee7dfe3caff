//! The SVG shapes that charts use.

use std::fmt::Write as _;

/// An SVG image that is being built. Lengths are in CSS pixels; y grows downwards.
#[derive(Debug)]
pub(super) struct Svg {
    body: String,
}

/// Alignment of a text to its point.
#[derive(Debug, Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Svg {
    pub(super) fn new() -> Self {
        Self {
            body: String::new(),
        }
    }

    pub(super) fn rectangle(&mut self, x: f64, y: f64, width: f64, height: f64, fill: &str) {
        self.put(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
             fill=\"{fill}\"/>\n"
        ));
    }

    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), stroke: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.put(format_args!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" \
             stroke=\"{stroke}\"/>\n"
        ));
    }

    pub(super) fn polyline(
        &mut self,
        points: impl Iterator<Item = (f64, f64)>,
        stroke: &str,
        dashes: &str,
    ) {
        self.body.push_str("<polyline points=\"");
        for (x, y) in points {
            self.put(format_args!("{x:.1},{y:.1} "));
        }
        self.put(format_args!(
            "\" fill=\"none\" stroke=\"{stroke}\" stroke-width=\"1.5\""
        ));
        if !dashes.is_empty() {
            self.put(format_args!(" stroke-dasharray=\"{dashes}\""));
        }
        self.body.push_str("/>\n");
    }

    /// A point that no line leads to.
    pub(super) fn point(&mut self, (x, y): (f64, f64), fill: &str) {
        self.put(format_args!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"1.5\" fill=\"{fill}\"/>\n"
        ));
    }

    pub(super) fn text(&mut self, x: f64, y: f64, anchor: Anchor, text: &str) {
        self.text_of("", x, y, anchor, text);
    }

    /// The label of a tick.
    pub(super) fn tick(&mut self, x: f64, y: f64, anchor: Anchor, text: &str) {
        self.text_of(" class=\"tick\"", x, y, anchor, text);
    }

    fn text_of(&mut self, class: &str, x: f64, y: f64, anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"{class}>"
        ));
        for c in text.chars() {
            match c {
                '<' => self.body.push_str("&lt;"),
                '>' => self.body.push_str("&gt;"),
                '&' => self.body.push_str("&amp;"),
                c if c.is_control() => self.body.push('\u{fffd}'),
                c => self.body.push(c),
            }
        }
        self.body.push_str("</text>\n");
    }

    pub(super) fn finish(self, width: f64, height: f64) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" \
             height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             font-family=\"sans-serif\" font-size=\"11\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{}</svg>\n",
            self.body
        )
    }

    fn put(&mut self, arguments: std::fmt::Arguments<'_>) {
        self.body
            .write_fmt(arguments)
            .expect("writing to a string cannot fail");
    }
}
