//! report.html: one page that needs nothing but itself. Answers first, then what they rest on, then
//! the evidence that they can be believed.

mod cost;
mod demo;
mod element;
mod evidence;
mod questions;

pub use demo::{DemoPart, demo, demo_answer};

use crate::analysis::Analysis;
use crate::palette;
use crate::svg::escape;

const STYLE: &str = include_str!("style.css");

/// The whole page.
pub fn page(analysis: &Analysis<'_>) -> String {
    let body = [
        questions::answers(analysis),
        questions::sections(analysis),
        cost::section(analysis),
        evidence::sections(analysis),
    ];
    let name = &analysis.record.header.experiment;
    document(name, &lead(analysis), &body.join("\n"))
}

/// A page of this name, with HTML for what leads and what follows.
fn document(name: &str, lead: &str, body: &str) -> String {
    let name = escape(name);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\
         <title>{name}: lowroad report</title><style>{}</style></head>\n<body>\
         <header><h1>{name}</h1>{lead}</header>\n<main>{body}</main>\n\
         <footer><p>Written by <code>lowroad report</code> from <code>record.jsonl</code>. Nothing on \
         this page was measured by it, and nothing on it is loaded from elsewhere.</p></footer>\
         </body></html>\n",
        style(),
    )
}

/// The disturbances of the run, as a paragraph.
fn disturbance_notice(analysis: &Analysis<'_>) -> String {
    let words = crate::words::disturbance(analysis.record);
    words.map_or_else(String::new, |words| {
        format!("<p class=\"notice\">{}</p>", escape(&words))
    })
}

/// Colours of the reader's preference; print is light.
fn style() -> String {
    const NIGHT: &str = ":root{--page:#14171d;--ink:#e4e7ec;--soft:#a6afbd;--line:#363d49;--tint:#1d222b;\
                         --link:#8ab4ff;--flame:#333c4b;--bpf:#234a86;--good:#5fd08d;--bad:#ff9a8f}";
    format!(
        "{STYLE}{}@media screen and (prefers-color-scheme:dark){{{NIGHT}{}}}",
        palette::rules(false),
        palette::rules(true)
    )
}

fn lead(analysis: &Analysis<'_>) -> String {
    let header = &analysis.record.header;
    let headline = header
        .questions
        .iter()
        .find_map(|question| crate::words::headline(analysis, question));
    let headline = headline.map_or_else(String::new, |words| {
        format!("<p class=\"headline\">{}</p>", escape(&words))
    });
    let disturbance = disturbance_notice(analysis);
    let of = |key: &str| {
        let value = header.machine.get(key)?.as_str()?;
        Some(format!(" {} {}.", key, value))
    };
    let kernel = of("kernel").unwrap_or_default();
    let places = [
        crate::words::builds(header),
        crate::words::programs(header),
        crate::words::placed(header),
        crate::words::away(header),
        Some(crate::words::scope(analysis)),
    ];
    let places = places.into_iter().flatten();
    let placed: String = places.map(|said| format!(" {}", escape(&said))).collect();
    let quick = if header.quick {
        "<p class=\"notice\">A quick run: fewer blocks and arms, good for a look. Quote full runs \
         only.</p>"
    } else {
        ""
    };
    format!(
        "{headline}<p class=\"lead\">{} arms, {} loads, {} blocks. Started {}, seed {}.{}{placed}</p>{quick}{disturbance}",
        header.arms.len(),
        header.loads.len(),
        header.blocks,
        escape(&crate::words::whole_seconds(&header.started)),
        header.seed,
        escape(&kernel)
    )
}
