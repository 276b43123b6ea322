//! The few elements the page is made of.

use std::fmt::Write;

use crate::svg::{Figure, NARROW, WIDTH, escape};

/// A cell of a table.
pub(super) enum Cell {
    Text(String),
    /// Right-aligned.
    Number(String),
    /// Already HTML.
    Html(String),
}

impl Cell {
    pub(super) fn text(words: impl AsRef<str>) -> Self {
        Self::Text(words.as_ref().to_owned())
    }

    pub(super) fn number(words: impl Into<String>) -> Self {
        Self::Number(words.into())
    }
}

/// A table that scrolls inside itself; `heads` starting with `#` stand above numbers.
pub(super) fn table(caption: &str, heads: &[&str], rows: Vec<Vec<Cell>>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut html = format!(
        "{}<table><caption>{}</caption><thead><tr>",
        scroll_start(caption),
        escape(caption)
    );
    for head in heads {
        let _ = match head.strip_prefix('#') {
            Some(number) => write!(
                html,
                "<th scope=\"col\" class=\"n\">{}</th>",
                escape(number)
            ),
            None => write!(html, "<th scope=\"col\">{}</th>", escape(head)),
        };
    }
    html.push_str("</tr></thead><tbody>");
    for row in rows {
        html.push_str("<tr>");
        for (at, cell) in row.into_iter().enumerate() {
            html.push_str(&match cell {
                Cell::Text(words) if at == 0 => {
                    format!("<th scope=\"row\">{}</th>", escape(&words))
                }
                Cell::Html(inner) if at == 0 => format!("<th scope=\"row\">{inner}</th>"),
                Cell::Text(words) => format!("<td>{}</td>", escape(&words)),
                Cell::Html(inner) => format!("<td>{inner}</td>"),
                Cell::Number(words) => format!("<td class=\"n\">{}</td>", escape(&words)),
            });
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table></div>");
    html
}

/// A figure and the caption that says what to see in it.
pub(super) fn figure(figure: &Figure, caption: &str) -> String {
    format!(
        "<figure>{}{}</div><figcaption>{}</figcaption></figure>",
        scroll_start(figure.title()),
        figure.inline(),
        escape(caption)
    )
}

/// A figure that is drawn twice: for a column of text, and for a telephone. `draw` has an identifier and a width.
pub(super) fn responsive(
    id: &str,
    caption: &str,
    draw: impl Fn(String, f64) -> Option<Figure>,
) -> String {
    let wide = draw(id.to_owned(), WIDTH);
    let narrow = draw(format!("{id}-narrow"), NARROW);
    let (Some(wide), Some(narrow)) = (wide, narrow) else {
        return String::new();
    };
    format!(
        "<figure><div class=\"wide\">{}</div><div class=\"narrow\">{}</div><figcaption>{}</figcaption></figure>",
        wide.inline(),
        narrow.inline(),
        escape(caption)
    )
}

/// Scrolls by keyboard as well, hence the tab stop and the name.
fn scroll_start(name: &str) -> String {
    format!(
        "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{}\">",
        escape(name)
    )
}

pub(super) fn paragraph(words: &str) -> String {
    format!("<p>{}</p>", escape(words))
}
