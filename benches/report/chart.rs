//! The chart: bars per layer, peers beside ours. Readable on light and on dark, and without
//! colours: ours are solid, with bold names; peers are hatched.

use std::fmt::Write as _;

/// What is compared on one axis.
pub(crate) struct Panel {
    pub(crate) title: &'static str,
    pub(crate) groups: Vec<Vec<Bar>>,
}

pub(crate) struct Bar {
    pub(crate) name: &'static str,
    pub(crate) is_ours: bool,
    pub(crate) ns: f64,
}

const WIDTH: f64 = 860.0;
const MARGIN: f64 = 24.0;
/// Where the bars begin, and where the longest one ends.
const LEFT: f64 = 312.0;
const RIGHT: f64 = 780.0;
const ROW: f64 = 19.0;
const GAP: f64 = 9.0;

/// Dark where the reader's system is: on its own ground, so that it does not matter what the page
/// is.
const STYLE: &str = "\
svg { --ground: #ffffff; --edge: #d1d9e0; --text: #1f2328; --soft: #59636e; --grid: #e4e8ec; --ours: #0b5fce; --peer: #8a929b; --fill: #eef0f3 }
@media (prefers-color-scheme: dark) {
  svg { --ground: #0f141a; --edge: #30363d; --text: #e6edf3; --soft: #9ea7b0; --grid: #232a32; --ours: #58a6ff; --peer: #7f8790; --fill: #1b222a }
}
text { font: 12px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: var(--soft) }
.head { font-size: 17px; font-weight: 600; fill: var(--text) }
.title { font-size: 13px; font-weight: 600; fill: var(--text) }
.ours { font-weight: 600; fill: var(--text) }
.tick, .note { font-size: 11px }
.end { text-anchor: end }
.mid { text-anchor: middle }
.ground { fill: var(--ground); stroke: var(--edge) }
.grid { stroke: var(--grid) }
.axis { stroke: var(--soft) }
.bar { fill: var(--ours) }
.peer { fill: url(#hatch); stroke: var(--peer) }
.lines { fill: none; stroke: var(--peer); stroke-width: 1.4 }
.hatch { fill: var(--fill) }";

const HATCH: &str = "\
<defs><pattern id=\"hatch\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
<rect class=\"hatch\" width=\"6\" height=\"6\"/><path class=\"lines\" d=\"M0 0V6\"/></pattern></defs>";

pub(crate) fn svg(panels: &[Panel], caption: &str) -> String {
    let mut chart = Chart {
        body: String::new(),
        y: MARGIN + 14.0,
    };
    chart.text(
        MARGIN,
        "head",
        "What a layer adds to a call, in nanoseconds",
    );
    chart.y += 20.0;
    let about = "Above the bare tool, which is pending once, as all real ones are; each call a new one; success path; shorter is better";
    chart.text(MARGIN, "note", about);
    chart.y += 12.0;
    chart.legend();
    for panel in panels {
        chart.panel(panel);
    }
    for line in wrapped(caption, 130) {
        chart.text(MARGIN, "note", &line);
        chart.y += 15.0;
    }
    let height = chart.y + 4.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n\
         <title>What a layer adds to a call, beside other crates, in nanoseconds</title>\n\
         <style>\n{STYLE}\n</style>\n{HATCH}\n\
         <rect class=\"ground\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"8\"/>\n{}</svg>\n",
        WIDTH - 1.0,
        height - 1.0,
        chart.body
    )
}

/// Grows downwards.
struct Chart {
    body: String,
    y: f64,
}

impl Chart {
    fn push(&mut self, element: &str) {
        self.body.push_str(element);
        self.body.push('\n');
    }

    fn text(&mut self, x: f64, class: &str, text: &str) {
        let text = text
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;");
        let y = self.y;
        self.push(&format!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>"
        ));
    }

    fn rect(&mut self, class: &str, x: f64, width: f64) {
        let (y, height) = (self.y + 3.5, ROW - 7.0);
        self.push(&format!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
        ));
    }

    fn line(&mut self, class: &str, x: f64, to: f64) {
        let y = self.y;
        self.push(&format!(
            "<path class=\"{class}\" d=\"M{x:.1} {y:.1}V{to:.1}\"/>"
        ));
    }

    fn legend(&mut self) {
        self.rect("bar", MARGIN, 28.0);
        self.rect("peer", MARGIN + 190.0, 28.0);
        self.y += 13.5;
        self.text(MARGIN + 36.0, "ours", "tower-toolcall");
        self.text(MARGIN + 226.0, "", "others");
        self.y += 12.0;
    }

    fn panel(&mut self, panel: &Panel) {
        let longest = panel.groups.iter().flatten().map(|bar| bar.ns);
        let longest = longest.fold(1.0, f64::max);
        let scale = |ns: f64| ns.max(0.0) / longest * (RIGHT - LEFT);
        let rows = panel.groups.iter().map(Vec::len).sum::<usize>() as f64;
        let bottom = self.y + 34.0 + rows * ROW + panel.groups.len() as f64 * GAP;

        self.y += 22.0;
        self.text(MARGIN, "title", panel.title);
        self.y += 8.0;
        let step = step(longest);
        for tick in (0..)
            .map(|n| f64::from(n) * step)
            .take_while(|t| *t <= longest)
        {
            let class = if tick == 0.0 { "axis" } else { "grid" };
            self.line(class, LEFT + scale(tick), bottom);
        }
        self.y += 4.0;
        for group in &panel.groups {
            for bar in group {
                self.bar(bar, scale(bar.ns));
            }
            self.y += GAP;
        }
        self.y = bottom + 14.0;
        for tick in (0..)
            .map(|n| f64::from(n) * step)
            .take_while(|t| *t <= longest)
        {
            self.text(LEFT + scale(tick), "tick mid", &format!("{tick} ns"));
        }
        self.y += 22.0;
    }

    fn bar(&mut self, bar: &Bar, width: f64) {
        let (label, class) = match bar.is_ours {
            true => ("ours", "bar"),
            false => ("", "peer"),
        };
        self.rect(class, LEFT, width.max(1.0));
        self.y += 13.5;
        self.text(LEFT - 8.0, &format!("{label} end"), bar.name);
        let ns = match bar.ns {
            ns if ns < 9.95 => format!("{:.1}", ns.max(0.0)),
            ns => format!("{ns:.0}"),
        };
        self.text(LEFT + width.max(1.0) + 6.0, label, &ns);
        self.y += ROW - 13.5;
    }
}

/// Between the marks of an axis: 1, 2 or 5 and zeros, for four to ten of them.
fn step(longest: f64) -> f64 {
    let tens = 10_f64.powf((longest / 4.0).log10().floor());
    let steps = [5.0, 2.0, 1.0].map(|n| n * tens);
    let fits = steps.into_iter().find(|step| longest / step >= 4.0);
    fits.unwrap_or(tens)
}

/// Lines of about so many characters.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("one at least");
        if line.len() + word.len() > width {
            lines.push(word.to_owned());
        } else {
            let space = if line.is_empty() { "" } else { " " };
            let _ = write!(line, "{space}{word}");
        }
    }
    lines
}
